#include "formats/json_text.hpp"

#include <fmt/format.h>

#include <new>

#include "formats/tensors.hpp"

namespace sluice::formats {

std::optional<std::string> json_string(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    return std::nullopt;
  }
}

Status JsonEvents::read(std::string_view text, const std::string& path) {
  path_ = &path;
  // The parser takes a NUL for the end of its input and would not look at what follows.
  if (const std::size_t nul = text.find('\0'); nul != text.npos) {
    return Status(Code::kDataLoss, fmt::format("{}: not JSON, a NUL at byte {}", path, nul));
  }
  try {
    if (nlohmann::json::sax_parse(text.begin(), text.end(), this)) return Status();
  } catch (const std::bad_alloc&) {
    return Status(Code::kResourceExhausted,
                  fmt::format("{}: no memory for what {} bytes of JSON say", path, text.size()));
  }
  return status_;
}

bool JsonEvents::number_float(number_float_t, const string_t& text) {
  return refuse_unexpected("the number " + in_quotes(text) + ", not an integer from 0 to 2^64-1,");
}

bool JsonEvents::parse_error(std::size_t position, const std::string& token,
                             const nlohmann::detail::exception&) {
  return refuse(fmt::format("not JSON at byte {}, near {}", position, in_quotes(token)));
}

bool JsonEvents::refuse(Code code, const std::string& why) {
  const std::string where = place();
  status_ = Status(code, fmt::format("{}: {}{}{}", *path_, where, where.empty() ? "" : ": ", why));
  return false;
}

bool JsonEvents::refuse_unexpected(const std::string& what) { return refuse(what + " where it may not be"); }

}  // namespace sluice::formats
