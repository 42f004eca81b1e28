#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "sluice/status.hpp"

namespace sluice::formats {

/// `text` as a JSON string with its quotes; nothing when it is not UTF-8.
std::optional<std::string> json_string(const std::string& text);

/// What JSON says, event by event, without a tree in memory: every event is refused unless a reader of one
/// kind of file takes it, so that nesting is as deep as that reader goes. Keeps the first reason.
class JsonEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  /// Reads all of `text`. `path` is for messages.
  /// Errors: kDataLoss with the byte where it is not JSON; what the reader refused; kResourceExhausted.
  Status read(std::string_view text, const std::string& path);

  bool null() override { return refuse_unexpected("null"); }
  bool boolean(bool) override { return refuse_unexpected("a boolean"); }
  bool number_integer(number_integer_t number) override {
    return refuse_unexpected("the number " + std::to_string(number));
  }
  bool number_unsigned(number_unsigned_t number) override {
    return refuse_unexpected("the number " + std::to_string(number));
  }
  bool number_float(number_float_t, const string_t& text) override;
  bool string(string_t&) override { return refuse_unexpected("a string"); }
  bool binary(binary_t&) override { return refuse_unexpected("binary data"); }
  bool start_object(std::size_t) override { return refuse_unexpected("an object"); }
  bool key(string_t&) override { return refuse_unexpected("a key"); }
  bool end_object() override { return refuse_unexpected("the end of an object"); }
  bool start_array(std::size_t) override { return refuse_unexpected("an array"); }
  bool end_array() override { return refuse_unexpected("the end of an array"); }
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception&) override;

 protected:
  /// Where in the file the reader is, for messages.
  virtual std::string place() const = 0;

  /// Ends the reading. Returns: false.
  bool refuse(Code code, const std::string& why);
  bool refuse(const std::string& why) { return refuse(Code::kDataLoss, why); }
  bool refuse_unexpected(const std::string& what);

 private:
  const std::string* path_ = nullptr;
  Status status_;
};

}  // namespace sluice::formats
