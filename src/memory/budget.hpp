#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "sluice/status.hpp"

namespace sluice::memory {

/// Bytes taken from a Budget; dropping it gives them back.
/// Lifetime: move-only; may outlive its Budget.
/// Threads: one at a time.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation();

  std::uint64_t bytes() const { return bytes_; }

 private:
  friend class Budget;
  struct Account;
  Reservation(std::shared_ptr<Account> account, std::uint64_t bytes);
  void give_back();

  std::shared_ptr<Account> account_;
  std::uint64_t bytes_ = 0;
};

/// A hard limit in bytes.
/// Invariant: sum of live reservations = used_bytes() <= capacity_bytes().
/// Threads: any.
class Budget {
 public:
  /// `name` is used in errors: "host budget".
  Budget(std::string name, std::uint64_t bytes);

  /// Errors: kResourceExhausted with the bytes needed for `what`, given, in use and left.
  Result<Reservation> reserve(std::uint64_t bytes, std::string_view what);

  std::uint64_t capacity_bytes() const;
  std::uint64_t used_bytes() const;
  std::uint64_t free_bytes() const { return capacity_bytes() - used_bytes(); }

 private:
  std::shared_ptr<Reservation::Account> account_;
};

}  // namespace sluice::memory
