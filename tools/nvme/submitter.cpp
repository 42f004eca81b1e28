#include "tools/nvme/submitter.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "tools/interrupt.hpp"

namespace sluice::tools {

std::uint32_t blocks_in_flight(const io::DriveSettings& settings, std::uint64_t block_bytes) {
  const std::uint64_t pieces = (block_bytes + settings.piece_bytes - 1) / settings.piece_bytes;
  if (settings.depth == 0 || pieces == 1) return settings.depth;
  // One more, so that there is something to cut while the last pieces of another are on their way: 8 pieces in flight
  // of blocks of 4 are 3 blocks.
  return static_cast<std::uint32_t>((settings.depth + pieces - 1) / pieces + 1);
}

// What a drive of 14 GB/s (PCIe 5.0 x4) moves in the 0.1 ms that flash takes to answer.
constexpr std::uint64_t kBusyBytes = 3 << 19;
constexpr std::uint32_t kMostAtRest = 15;

std::uint32_t batch_of(const std::vector<io::DriveSettings>& settings) {
  std::uint64_t at_rest = kMostAtRest;
  for (const io::DriveSettings& drive : settings) {
    if (drive.depth == 0) continue;
    const std::uint64_t in_flight_bytes = std::uint64_t{drive.depth} * drive.piece_bytes;
    const std::uint64_t spare_bytes = in_flight_bytes > kBusyBytes ? in_flight_bytes - kBusyBytes : 0;
    at_rest = std::min<std::uint64_t>({at_rest, drive.depth / 8, spare_bytes / drive.piece_bytes});
  }
  return 1 + static_cast<std::uint32_t>(at_rest);
}

std::uint32_t completions_to_await(std::uint32_t batch, std::int64_t left_ns, std::int64_t batch_ns) {
  return left_ns > 0 && left_ns < 2 * batch_ns ? 1 : batch;
}

/// One of the blocks that are kept in flight.
struct Submitter::Slot : io::Transfer {
  std::uint64_t block = 0;
  std::int64_t begun_ns = 0;
  bool noise_is_lost = false;  // a read has overwritten it
};

struct Submitter::Lane {
  explicit Lane(const DrivePart& drive, const DriveRun& run)
      : part(drive), choice(run.mix, run.pattern, drive.first_block, drive.blocks), next(drive.first_block) {}
  DrivePart part;
  peers::BlockChoice choice;
  std::uint64_t next;  // of a pass over all blocks
};

Submitter::Submitter(std::unique_ptr<io::Backend> backend, std::span<std::byte> memory, std::uint64_t seed)
    : backend_(std::move(backend)), memory_(memory), seed_(seed) {
  fill_with_noise(memory_, seed_);
}

Submitter::~Submitter() = default;

void Submitter::prepare_slots(const RunPart& part) {
  part_ = &part;
  const std::uint64_t block_bytes = part.run->block_bytes;
  lanes_.clear();
  slots_.clear();
  for (const DrivePart& drive : part.drives) lanes_.emplace_back(drive, *part.run);
  std::size_t count = 0;
  for (const io::DriveSettings& settings : part.settings) count += blocks_in_flight(settings, block_bytes);
  slots_.resize(count);
  std::size_t index = 0;
  std::vector<std::uint32_t> left;
  for (const io::DriveSettings& settings : part.settings)
    left.push_back(blocks_in_flight(settings, block_bytes));
  // A drive in turn, so that none has all its requests begun before another's first.
  while (index < count) {
    for (std::uint32_t drive = 0; drive < left.size(); ++drive) {
      if (left[drive] == 0) continue;
      --left[drive];
      Slot& slot = slots_[index];
      slot.drive = drive;
      slot.file = part.drives[drive].file;
      slot.buffer = memory_.data() + index++ * block_bytes;
      slot.bytes = block_bytes;
      slot.on_done = on_done;
      slot.owner = this;
    }
  }
}

// What is to be compared is the same noise in every block, told apart by its stamps.
void Submitter::prepare_contents() {
  const bool stamped = part_->kind != RunPart::Kind::kMeasure ||
                       std::any_of(lanes_.begin(), lanes_.end(),
                                   [](const Lane& lane) { return lane.part.contents != nullptr; });
  if (!stamped) return;
  if (expected_ == nullptr || expected_->bytes().size() != part_->run->block_bytes)
    expected_ = std::make_unique<ExpectedBlock>(part_->run->block_bytes, seed_);
  for (Slot& slot : slots_) slot.noise_is_lost = true;
}

Status Submitter::run(const RunPart& part) {
  prepare_slots(part);
  prepare_contents();
  counts_ = {};
  failure_ = {};
  over_ = false;
  begun_ = 0;
  io::Queue queue(*backend_, {.drives = part.settings});
  queue_ = &queue;
  now_ns_ = io::steady_now_ns();
  std::uint32_t depth = 0;
  for (const io::DriveSettings& drive : part.settings) depth += drive.depth;
  counts_.batch = std::clamp(part.run->batch.value_or(batch_of(part.settings)), 1u, std::max(depth, 1u));
  std::int64_t batch_ns = 0;
  for (Slot& slot : slots_) give(slot);
  while (queue.in_flight() > 0) {
    const std::uint32_t awaited = completions_to_await(counts_.batch, part.end_ns - now_ns_, batch_ns);
    queue.wait(io::kNoDeadline, awaited);
    // Once a batch: its completions are seen up to the time that it took to fill after they came.
    const std::int64_t before_ns = std::exchange(now_ns_, io::steady_now_ns());
    if (awaited == counts_.batch) batch_ns = std::max(now_ns_ - before_ns, batch_ns - batch_ns / 8);
    over_ =
        over_ || now_ns_ >= part.end_ns || Interrupt::signal() != 0 ||
        part.failed->load(std::memory_order_relaxed);  // the others' status is read after they were joined
    queue.poll();
  }
  queue_ = nullptr;
  if (!failure_.ok()) part.failed->store(true);
  SLUICE_RETURN_IF_ERROR(failure_);
  return Interrupt::check();
}

void Submitter::give(Slot& slot) {
  if (over_ || begun_ >= part_->blocks_max || !choose(slot)) return;
  ++begun_;
  slot.offset = slot.block * slot.bytes;
  slot.begun_ns = now_ns_;
  queue_->submit(slot);
}

bool Submitter::choose(Slot& slot) {
  Lane& lane = lanes_[slot.drive];
  if (part_->kind == RunPart::Kind::kMeasure) return choose_measured(slot, lane);
  if (lane.next == lane.part.first_block + lane.part.blocks) return false;
  const std::uint64_t block = lane.next++;
  part_->kind == RunPart::Kind::kFill ? begin_write(slot, block) : begin_read(slot, block);
  return true;
}

bool Submitter::choose_measured(Slot& slot, Lane& lane) {
  peers::BlockChoice::Next next = lane.choice.next();
  if (DriveBlocks* contents = lane.part.contents; contents != nullptr) {
    // Two requests on one block could finish in either order. A free one is found: there are more than slots.
    while (contents->in_flight[next.block] != 0) next = lane.choice.next();
    contents->in_flight[next.block] = 1;
  }
  next.write ? begin_write(slot, next.block) : begin_read(slot, next.block);
  return true;
}

void Submitter::begin_read(Slot& slot, std::uint64_t block) {
  slot.op = io::Op::kRead;
  slot.block = block;
}

void Submitter::begin_write(Slot& slot, std::uint64_t block) {
  // Of the same priority as reads: the test measures the drive, not the order of classes.
  slot.op = io::Op::kWrite;
  slot.block = block;
  DriveBlocks* contents = lanes_[slot.drive].part.contents;
  if (contents == nullptr && part_->kind == RunPart::Kind::kMeasure) return;
  const std::span<std::byte> buffer(slot.buffer, slot.bytes);
  if (std::exchange(slot.noise_is_lost, false))
    std::copy(expected_->bytes().begin(), expected_->bytes().end(), buffer.begin());
  stamp(buffer, {slot.drive, block, contents == nullptr ? 1 : ++contents->generations[block]});
}

void Submitter::on_done(io::Transfer& transfer) {
  Slot& slot = static_cast<Slot&>(transfer);
  Submitter& self = *static_cast<Submitter*>(slot.owner);
  if (const Status status = self.finish(slot); !status.ok()) {
    if (self.failure_.ok()) self.failure_ = status;
    self.over_ = true;
  }
  self.give(slot);
}

Status Submitter::finish(Slot& slot) {
  SLUICE_RETURN_IF_ERROR(slot.status);
  const bool read = slot.op == io::Op::kRead;
  (read ? counts_.bytes_read : counts_.bytes_written) += slot.bytes;
  ++counts_.blocks;
  if (DriveBlocks* contents = lanes_[slot.drive].part.contents; contents != nullptr) {
    contents->in_flight[slot.block] = 0;
    slot.noise_is_lost = slot.noise_is_lost || read;
  }
  if (part_->kind == RunPart::Kind::kCheck) return compare(slot);
  counts_.latency.add(static_cast<std::uint64_t>(now_ns_ - slot.begun_ns));
  counts_.timeline.add(now_ns_ - part_->start_ns, slot.bytes);
  return {};
}

Status Submitter::compare(const Slot& slot) {
  const BlockStamp expected{slot.drive, slot.block,
                            lanes_[slot.drive].part.contents->generations[slot.block]};
  const auto differs = expected_->first_difference({slot.buffer, slot.bytes}, expected);
  if (!differs) return {};
  return {Code::kDataLoss, fmt::format("{}: what was read back at offset {} is not what was written",
                                       slot.file->path(), slot.offset + *differs)};
}

}  // namespace sluice::tools
