#include "sluice/status.hpp"

#include <cerrno>
#include <system_error>

namespace sluice {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kOk: return "Ok";
    case Code::kInvalidArgument: return "InvalidArgument";
    case Code::kNotFound: return "NotFound";
    case Code::kAlreadyExists: return "AlreadyExists";
    case Code::kFailedPrecondition: return "FailedPrecondition";
    case Code::kResourceExhausted: return "ResourceExhausted";
    case Code::kNoSpace: return "NoSpace";
    case Code::kIoError: return "IoError";
    case Code::kDataLoss: return "DataLoss";
    case Code::kUnavailable: return "Unavailable";
    case Code::kAborted: return "Aborted";
    case Code::kForked: return "Forked";
    case Code::kUnimplemented: return "Unimplemented";
    case Code::kInternal: return "Internal";
  }
  return "Unknown";
}

Status::Status(Code code, std::string message, std::int64_t native)
    : rep_(code == Code::kOk ? nullptr : std::make_shared<const Rep>(Rep{code, native, std::move(message)})) {}

const std::string& Status::message() const {
  static const std::string kEmpty;
  return rep_ ? rep_->message : kEmpty;
}

std::string Status::to_string() const {
  if (ok()) return "Ok";
  std::string text(code_name(code()));
  if (native() != 0) text += " (native " + std::to_string(native()) + ")";
  return text + ": " + message();
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return *this;
  return Status(code(), std::string(context) + ": " + message(), native());
}

Status status_from_errno(int error, std::string_view doing) {
  Code code = Code::kIoError;
  switch (error) {
    case ENOSPC:
    case EDQUOT: code = Code::kNoSpace; break;
    case ENOMEM: code = Code::kResourceExhausted; break;
    case ENOENT: code = Code::kNotFound; break;
    case EEXIST: code = Code::kAlreadyExists; break;
    default: break;
  }
  return Status(code, std::string(doing) + ": " + std::generic_category().message(error), error);
}

}  // namespace sluice
