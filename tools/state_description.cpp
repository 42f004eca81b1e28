#include "tools/state_description.hpp"

#include <filesystem>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "formats/json_text.hpp"
#include "formats/model_reader.hpp"

namespace sluice::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kKey = "sluice.state";
constexpr std::uint64_t kVersion = 1;
constexpr const char* kFp32 = "fp32";
constexpr const char* kBf16Once = "bf16_once";

Status check_name(std::string_view what, const std::string& name) {
  if (formats::json_string(name)) return {};
  return {Code::kDataLoss, fmt::format("{} {}: not UTF-8, which the optimizer's file cannot hold", what,
                                       formats::in_quotes(name))};
}

Status check_names(const StateDescription& description) {
  for (const StateDescription::Group& group : description.groups)
    SLUICE_RETURN_IF_ERROR(check_name("group", group.name));
  for (const StateDescription::Parameter& parameter : description.parameters)
    SLUICE_RETURN_IF_ERROR(check_name("parameter", parameter.name));
  for (const StateDescription::Alias& alias : description.aliases)
    SLUICE_RETURN_IF_ERROR(check_name("alias", alias.name));
  return {};
}

Json to_json(const Optimizer& optimizer) {
  const OptimizerKind& kind = kind_of(optimizer);
  Json json = {{"kind", kind.name}};
  for (const OptimizerNumber& number : kind.numbers) json[std::string(number.name)] = number.get(optimizer);
  return json;
}

// The following end in the exceptions of nlohmann::json, or in this one, which decode_description() turns into a
// Status.
struct Wrong {
  std::string what;
};

Optimizer to_optimizer(const Json& json) {
  const auto name = json.at("kind").get<std::string>();
  const OptimizerKind* kind = find_optimizer_kind(name);
  if (kind == nullptr) throw Wrong{fmt::format("optimizer '{}'", name)};
  Optimizer optimizer = kind->defaults;
  for (const OptimizerNumber& number : kind->numbers)
    number.set(optimizer, json.at(std::string(number.name)).get<double>());
  if (const Status valid = validate(optimizer); !valid.ok()) throw Wrong{valid.message()};
  return optimizer;
}

Policy to_policy(const std::string& name) {
  const std::optional<Policy> policy = find_policy(name);
  if (!policy) throw Wrong{fmt::format("policy '{}'", name)};
  return *policy;
}

DType to_dtype(const std::string& name) {
  const std::optional<DType> dtype = formats::dtype_of(name);
  if (!dtype) throw Wrong{fmt::format("dtype '{}'", name)};
  return *dtype;
}

GradientStorage to_gradient(const std::string& name) {
  if (name == kFp32) return GradientStorage::kFp32;
  if (name == kBf16Once) return GradientStorage::kBf16Once;
  throw Wrong{fmt::format("gradient storage '{}'", name)};
}

std::uint64_t to_count(const Json& json) {
  if (!json.is_number_unsigned()) throw Wrong{fmt::format("'{}' is no count", json.dump())};
  return json.get<std::uint64_t>();
}

std::uint32_t to_index(const Json& json, std::size_t size) {
  const std::uint64_t index = to_count(json);
  if (index >= size) throw Wrong{fmt::format("index {} of {}", index, size)};
  return static_cast<std::uint32_t>(index);
}

StateDescription to_description(const Json& json) {
  StateDescription description;
  description.steps = to_count(json.at("steps"));
  description.seed = to_count(json.at("seed"));
  for (const Json& group : json.at("groups")) {
    description.groups.push_back({.name = group.at("name").get<std::string>(),
                                  .policy = to_policy(group.at("policy").get<std::string>()),
                                  .optimizer = to_optimizer(group.at("optimizer")),
                                  .gradient = to_gradient(group.at("gradient").get<std::string>()),
                                  .frozen_dtype = to_dtype(group.at("frozen_dtype").get<std::string>())});
    const StateDescription::Group& last = description.groups.back();
    const Status together = last.policy == Policy::kFrozen ? Status() : validate(last.policy, last.optimizer);
    if (!together.ok()) throw Wrong{together.message()};
  }
  for (const Json& parameter : json.at("parameters")) {
    description.parameters.push_back({.name = parameter.at("name").get<std::string>(),
                                      .group = to_index(parameter.at("group"), description.groups.size())});
  }
  for (const Json& alias : json.at("aliases")) {
    description.aliases.push_back(
        {.name = alias.at("name").get<std::string>(),
         .parameter = to_index(alias.at("parameter"), description.parameters.size())});
  }
  return description;
}

}  // namespace

std::string user_bytes_name(std::uint32_t rank) { return fmt::format("sluice.user_bytes.{}", rank); }

std::string optimizer_path(const std::string& model_path) {
  const std::filesystem::path path(model_path);
  const bool usual = path.filename() == formats::kModelName || path.filename() == formats::kIndexName;
  const std::string name = usual ? "optimizer.safetensors" : path.stem().string() + ".optimizer.safetensors";
  return (path.parent_path() / name).string();
}

Result<formats::Metadata> encode(const StateDescription& description) {
  SLUICE_RETURN_IF_ERROR(check_names(description));
  Json json{{"version", kVersion}, {"steps", description.steps}, {"seed", description.seed}};
  auto groups = Json::array();
  for (const StateDescription::Group& group : description.groups) {
    groups.push_back({{"name", group.name},
                      {"policy", policy_name(group.policy)},
                      {"optimizer", to_json(group.optimizer)},
                      {"gradient", group.gradient == GradientStorage::kFp32 ? kFp32 : kBf16Once},
                      {"frozen_dtype", dtype_name(group.frozen_dtype)}});
  }
  auto parameters = Json::array();
  for (const StateDescription::Parameter& parameter : description.parameters)
    parameters.push_back({{"name", parameter.name}, {"group", parameter.group}});
  auto aliases = Json::array();
  for (const StateDescription::Alias& alias : description.aliases)
    aliases.push_back({{"name", alias.name}, {"parameter", alias.parameter}});
  json.update({{"groups", groups}, {"parameters", parameters}, {"aliases", aliases}});
  return formats::Metadata{{kKey, json.dump()}};
}

Result<StateDescription> decode_description(const formats::Metadata& metadata, const std::string& path) {
  const auto refuse = [&](std::string_view why) {
    return Status(Code::kDataLoss, fmt::format("{}: metadata {}: {}", path, kKey, why));
  };
  const auto entry = metadata.find(kKey);
  if (entry == metadata.end()) return refuse("is not there: not an optimizer's file of sluice export");
  const Json json = Json::parse(entry->second, nullptr, false);
  try {
    const std::uint64_t version = to_count(json.at("version"));
    if (version != kVersion) {
      return Status(Code::kUnimplemented,
                    fmt::format("{}: metadata {}: version {}, known: {}", path, kKey, version, kVersion));
    }
    return to_description(json);
  } catch (const nlohmann::json::exception& error) {
    return refuse(error.what());
  } catch (const Wrong& wrong) {
    return refuse(wrong.what);
  }
}

}  // namespace sluice::tools
