#include "tools/sizes.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>

#include "sluice/options.hpp"

namespace sluice::tools {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};
constexpr std::array kUnits = {Unit{"TiB", 0x1p40}, Unit{"GiB", 0x1p30}, Unit{"MiB", 0x1p20},
                               Unit{"KiB", 0x1p10}};

// A plain decimal number: no sign, no exponent, no "inf".
std::optional<double> parse_number(std::string_view text) {
  if (text.empty() || text.find_first_not_of("0123456789.") != text.npos) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Status refuse(std::string_view text, std::string_view accepted) {
  return {Code::kInvalidArgument, fmt::format("'{}' is not a size; accepted: {}", text, accepted)};
}

constexpr std::string_view kAccepted = "bytes, a number with KiB, MiB, GiB or TiB, or unlimited";

std::string reason(const Status& status) { return status.ok() ? std::string() : status.message(); }

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  if (text == "unlimited") return kUnlimited;
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.name)) continue;
    const auto value = parse_number(text.substr(0, text.size() - unit.name.size()));
    if (!value || *value * unit.bytes >= 0x1p63) return refuse(text, kAccepted);
    return static_cast<std::uint64_t>(*value * unit.bytes);
  }
  std::uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size() || bytes >> 63 != 0) {
    return refuse(text, kAccepted);
  }
  return bytes;
}

Result<std::uint64_t> parse_budget(std::string_view text, std::uint64_t whole_bytes) {
  if (!text.ends_with('x')) return parse_size(text);
  const auto part = parse_number(text.substr(0, text.size() - 1));
  const double bytes = part.value_or(0) * static_cast<double>(whole_bytes);
  if (!part || bytes >= 0x1p63) return refuse(text, "a size, or a part of the state such as 0.25x");
  return static_cast<std::uint64_t>(bytes);
}

std::string check_size(const std::string& text) { return reason(parse_size(text).status()); }
std::string check_budget(const std::string& text) { return reason(parse_budget(text, 1).status()); }

std::string size_text(std::uint64_t bytes) {
  if (bytes == kUnlimited) return "unlimited";
  for (const Unit& unit : kUnits) {
    const double value = static_cast<double>(bytes) / unit.bytes;
    if (value >= 1) return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : value < 100 ? 1 : 0, unit.name);
  }
  return fmt::format("{} bytes", bytes);
}

}  // namespace sluice::tools
