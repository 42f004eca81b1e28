#include <iostream>
#include <memory>

#include <fmt/format.h>

#include "tools/command.hpp"
#include "tools/doctor/checks.hpp"
#include "tools/options.hpp"

namespace sluice::tools {
namespace {

std::string_view status_name(CheckStatus status) {
  switch (status) {
    case CheckStatus::kOk:
      return "ok";
    case CheckStatus::kDegraded:
      return "degraded";
    case CheckStatus::kMissing:
      return "missing";
  }
  return "unknown";
}

Result<nlohmann::ordered_json> run(const std::vector<std::string>& directories) {
  const Machine machine;
  std::vector<Check> checks;
  const auto add = [&](std::vector<Check> more) {
    for (Check& check : more) checks.push_back(std::move(check));
  };
  add(check_ring(machine));
  add(check_memory(machine));
  add(check_processors(machine, directories));
  add(check_accelerators(machine));
  add(check_drives(machine, directories));
  add(check_stores(directories));
  auto json = nlohmann::ordered_json::array();
  for (const Check& check : checks) {
    std::cerr << fmt::format("{:<9} {}: {}\n", status_name(check.status), check.name, check.detail);
    if (!check.remedy.empty()) std::cerr << fmt::format("{:<9} remedy: {}\n", "", check.remedy);
    json.push_back({{"name", check.name},
                    {"status", status_name(check.status)},
                    {"detail", check.detail},
                    {"remedy", check.remedy}});
  }
  return nlohmann::ordered_json{{"checks", json}};
}

}  // namespace

void add_doctor_command(CLI::App& app, Command& chosen) {
  auto directories = std::make_shared<std::vector<std::string>>();
  CLI::App* command =
      app.add_subcommand("doctor", "Say what this machine offers, and what would make it better");
  add_directories(*command, *directories)->required();
  command->callback([directories, &chosen] { chosen = [directories] { return run(*directories); }; });
}

}  // namespace sluice::tools
