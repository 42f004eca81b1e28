#include <exception>
#include <iostream>

#include "tools/command.hpp"
#include "tools/interrupt.hpp"

namespace {

constexpr int kFailed = 1;
constexpr int kBadUsage = 2;
constexpr int kSignalled = 128;  // and the signal, as shells count it

int exit_code(sluice::Code code) {
  if (code == sluice::Code::kInvalidArgument) return kBadUsage;
  const int signal = sluice::tools::Interrupt::signal();
  return code == sluice::Code::kAborted && signal != 0 ? kSignalled + signal : kFailed;
}

// What a library throws that has no other way to tell, such as std::bad_alloc, ends in a message too.
sluice::Result<nlohmann::ordered_json> call(const sluice::tools::Command& command) {
  try {
    return command();
  } catch (const std::exception& error) {
    return sluice::Status(sluice::Code::kInternal, error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  using namespace sluice::tools;
  CLI::App app("Sluice: trains and runs models larger than memory.", "sluice");
  app.set_version_flag("--version", SLUICE_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  bool json = false;
  app.add_flag("--json", json, "Print one JSON object on stdout; what people read goes to stderr");

  Command chosen;
  add_doctor_command(app, chosen);
  add_nvme_command(app, chosen);
  add_bench_command(app, chosen);
  add_train_command(app, chosen);
  add_inspect_command(app, chosen);
  add_verify_command(app, chosen);
  add_export_command(app, chosen);
  add_import_command(app, chosen);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kBadUsage;
  }
  const auto result = call(chosen);
  if (!result.ok()) {
    std::cerr << "sluice: " << result.status().to_string() << '\n';
    return exit_code(result.status().code());
  }
  if (json) std::cout << result->dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
  return std::cout.good() && result->value("ok", true) ? 0 : kFailed;
}
