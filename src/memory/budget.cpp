#include "memory/budget.hpp"

#include <fmt/format.h>

#include <atomic>
#include <utility>

namespace sluice::memory {

struct Reservation::Account {
  const std::string name;
  const std::uint64_t capacity_bytes;
  std::atomic<std::uint64_t> used_bytes{0};  // no lock, which a forked child could find taken
};

Reservation::Reservation(std::shared_ptr<Account> account, std::uint64_t bytes)
    : account_(std::move(account)), bytes_(bytes) {}

Reservation::Reservation(Reservation&& other) noexcept
    : account_(std::move(other.account_)), bytes_(std::exchange(other.bytes_, 0)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    give_back();
    account_ = std::move(other.account_);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

Reservation::~Reservation() { give_back(); }

void Reservation::give_back() {
  if (account_ != nullptr) account_->used_bytes -= bytes_;
}

Budget::Budget(std::string name, std::uint64_t bytes)
    : account_(new Reservation::Account{.name = std::move(name), .capacity_bytes = bytes}) {}

Result<Reservation> Budget::reserve(std::uint64_t bytes, std::string_view what) {
  std::uint64_t used_bytes = account_->used_bytes;
  do {
    const std::uint64_t free_bytes = account_->capacity_bytes - used_bytes;
    if (bytes > free_bytes)
      return Status(Code::kResourceExhausted,
                    fmt::format("{}: {} bytes needed for {}, {} given, {} in use, {} left", account_->name,
                                bytes, what, account_->capacity_bytes, used_bytes, free_bytes));
  } while (!account_->used_bytes.compare_exchange_weak(used_bytes, used_bytes + bytes));
  return Reservation(account_, bytes);
}

std::uint64_t Budget::capacity_bytes() const { return account_->capacity_bytes; }

std::uint64_t Budget::used_bytes() const { return account_->used_bytes; }

}  // namespace sluice::memory
