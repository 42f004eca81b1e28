#pragma once

#include <array>
#include <cstdint>

#include "io/transfer.hpp"

namespace sluice::io {

/// The transfers that wait for one drive, and which of them gets its next piece: demand before read-ahead
/// before the background, within `depth` pieces in flight.
/// A class that waits is passed over at most kPatience times in a row, so none starves. A lower class leaves
/// reserve() pieces of the depth free while a higher one was seen among the last kMemory pieces, so that what
/// somebody waits for is sent at once; where only one class is at work it has the whole depth.
/// Invariant: pieces in flight = the sum over the classes of those in flight, at most depth() when the last one
/// was started.
class DriveLane {
 public:
  static constexpr std::uint32_t kPatience = 8;
  static constexpr std::uint32_t kReserveMost = 2;
  static constexpr std::uint32_t kMemory = 128;

  /// Requires: at least 1.
  explicit DriveLane(std::uint32_t depth);

  void wait(Transfer& transfer) { waiting_[index(transfer.priority)].push(transfer); }
  /// Requires: it waits here.
  void leave(Transfer& transfer) { waiting_[index(transfer.priority)].remove(transfer); }

  /// The transfer that the next piece is to be cut from, first in the order of its class; null when none waits
  /// or there is no room. A caller that is given one starts a piece of it: the choice is booked.
  Transfer* start();
  /// A piece of this class has come back.
  void end(Priority priority) {
    --held_[index(priority)];
    --in_flight_;
  }

  std::uint32_t in_flight() const { return in_flight_; }
  std::uint32_t depth() const { return depth_; }
  void set_depth(std::uint32_t depth) { depth_ = depth; }

  /// 1 from a depth of 4, 2 from 8: that much of the depth is worth less than what a read waits for one write.
  std::uint32_t reserve() const { return depth_ / 4 < kReserveMost ? depth_ / 4 : kReserveMost; }

  /// The first that waits, of the highest class; null when none does.
  Transfer* first_waiting() const;

 private:
  static std::size_t index(Priority priority) { return static_cast<std::size_t>(priority); }

  std::array<TransferList, kPriorityCount> waiting_;
  std::array<std::uint32_t, kPriorityCount> passed_over_ = {};
  std::array<std::uint32_t, kPriorityCount> held_ = {};  // pieces in flight
  std::array<std::uint32_t, kPriorityCount> unseen_;     // pieces of lower classes since its last, to kMemory
  std::uint32_t in_flight_ = 0;
  std::uint32_t depth_;
};

}  // namespace sluice::io
