#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "sluice/export.hpp"

namespace sluice {

/// What kind of thing went wrong; the message says what was being done to what.
enum class Code : std::uint8_t {
  kOk,
  kInvalidArgument,     ///< an argument is outside its accepted range; nothing was done
  kNotFound,            ///< the named thing does not exist
  kAlreadyExists,       ///< the name or file is taken
  kFailedPrecondition,  ///< the call is not allowed in this state (order of calls, an open lease)
  kResourceExhausted,   ///< a budget, a lock limit or the memory of the machine does not allow it
  kNoSpace,             ///< the drive is full
  kIoError,             ///< the drive, the kernel or a device reported an error
  kDataLoss,            ///< a checksum does not match, a file is truncated or foreign
  kUnavailable,         ///< a peer or a device is gone, or a feature is forbidden here
  kAborted,             ///< given up because of an earlier failure, a close or an abort
  kForked,              ///< called in a child made by fork()
  kUnimplemented,       ///< this build or this version does not have it
  kInternal,            ///< a broken invariant of the library itself
};

/// The code's name without its k, for example "NoSpace".
SLUICE_API std::string_view code_name(Code code);

/// The outcome of a call: ok, or a code, the native code and a sentence.
/// Cost: an ok status is one null pointer.
class [[nodiscard]] SLUICE_API Status {
 public:
  Status() = default;
  /// `native` is an errno, cudaError_t or ncclResult_t, 0 where there is none.
  Status(Code code, std::string message, std::int64_t native = 0);

  bool ok() const { return rep_ == nullptr; }
  Code code() const { return rep_ ? rep_->code : Code::kOk; }
  std::int64_t native() const { return rep_ ? rep_->native : 0; }
  const std::string& message() const;

  /// "IoError (native 5): reading …"; "Ok" when ok.
  std::string to_string() const;

  /// The same failure with `context` and ": " before its message; ok stays ok.
  Status with_context(std::string_view context) const;

 private:
  struct Rep {
    Code code;
    std::int64_t native;
    std::string message;
  };
  std::shared_ptr<const Rep> rep_;
};

/// A Status from an errno value (positive), its code chosen from the errno: ENOSPC and EDQUOT kNoSpace, ENOMEM
/// kResourceExhausted, ENOENT kNotFound, EEXIST kAlreadyExists, otherwise kIoError.
/// The message is `doing`, ": " and the system's words for the errno.
SLUICE_API Status status_from_errno(int error, std::string_view doing);

/// A T or the Status that says why there is none. `value()` requires ok().
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit by design
  Result(Code code, std::string message, std::int64_t native = 0)
      : status_(code, std::move(message), native) {}

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace sluice

/// Returns from the enclosing function when the expression's Status is not ok.
#define SLUICE_RETURN_IF_ERROR(...)                                                                   \
  do {                                                                                                \
    if (::sluice::Status sluice_status_ = (__VA_ARGS__); !sluice_status_.ok()) return sluice_status_; \
  } while (false)

/// Moves the expression's value into `target` (a variable, or its declaration), or returns its Status from the
/// enclosing function. A statement list: give it braces of its own after an if.
#define SLUICE_ASSIGN_OR_RETURN(target, ...) \
  SLUICE_ASSIGN_OR_RETURN_NAMED_(SLUICE_JOIN_(sluice_result_, __LINE__), target, __VA_ARGS__)
#define SLUICE_ASSIGN_OR_RETURN_NAMED_(result, target, ...) \
  auto result = (__VA_ARGS__);                              \
  if (!result.ok()) return result.status();                 \
  target = std::move(result).value()
#define SLUICE_JOIN_(a, b) SLUICE_JOIN_EXPANDED_(a, b)
#define SLUICE_JOIN_EXPANDED_(a, b) a##b
