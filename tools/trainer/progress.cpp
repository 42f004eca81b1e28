#include "trainer/progress.hpp"

#include <bit>
#include <cstring>

#include <fmt/format.h>

#include "trainer/xxh3.hpp"

namespace sluice::trainer {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t kMagic = 0x5254'4543'4955'4c53;  // "SLUICETR"
constexpr std::uint64_t kVersion = 1;

std::uint64_t bits_of(double value) { return std::bit_cast<std::uint64_t>(value); }

}  // namespace

Progress::Progress(const TrainOptions& options, std::span<const std::uint8_t> training)
    : settings_{{{"text's training part, XXH3-64", Kind::kHash, xxh3(std::as_bytes(training))},
                 {"text's training part, bytes", Kind::kCount, training.size()},
                 {"layers", Kind::kCount, options.shape.layers},
                 {"width", Kind::kCount, options.shape.width},
                 {"heads", Kind::kCount, options.shape.heads},
                 {"context", Kind::kCount, options.shape.context},
                 {"seed", Kind::kCount, options.seed},
                 {"batch", Kind::kCount, options.sequences},
                 {"micro-batches", Kind::kCount, options.micro_batches},
                 {"steps", Kind::kCount, options.steps},
                 {"lr", Kind::kNumber, bits_of(options.lr)},
                 {"warmup", Kind::kCount, options.warmup_steps},
                 {"max-norm", Kind::kNumber, bits_of(options.max_norm)}}},
      steps_(options.steps) {}

std::vector<std::byte> Progress::encode() const {
  std::vector<std::uint64_t> words = {kMagic, kVersion};
  for (const Setting& setting : settings_) words.push_back(setting.bits);
  words.push_back(losses_.size());
  for (const double loss : losses_) words.push_back(bits_of(loss));
  std::vector<std::byte> bytes(words.size() * sizeof(std::uint64_t));
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

std::uint64_t Progress::room_bytes(std::uint64_t steps) {
  constexpr std::uint64_t kRoom = 64 << 10;
  return ((3 + kSettings + steps) * sizeof(std::uint64_t) + kRoom - 1) / kRoom * kRoom;
}

Status Progress::resume(std::span<const std::byte> user_bytes) {
  const auto refuse = [](std::string_view why) {
    return Status(Code::kFailedPrecondition, fmt::format("the commit's user bytes {}", why));
  };
  std::vector<std::uint64_t> words(user_bytes.size() / sizeof(std::uint64_t));
  std::memcpy(words.data(), user_bytes.data(), words.size() * sizeof(std::uint64_t));
  if (words.size() < 2 || words[0] != kMagic) return refuse("are not those of this trainer");
  if (words[1] != kVersion) {
    return {Code::kUnimplemented,
            fmt::format("the commit's user bytes are of version {} of this trainer's, known: {}", words[1],
                        kVersion)};
  }
  const std::span rest = std::span(words).subspan(2);
  if (user_bytes.size() % sizeof(std::uint64_t) != 0 || rest.size() < kSettings + 1 ||
      rest[kSettings] != rest.size() - kSettings - 1) {
    return refuse(fmt::format("are {} bytes, which is not what they say that they hold", user_bytes.size()));
  }

  std::string differing;
  for (std::size_t i = 0; i < kSettings; ++i) {
    const Setting& setting = settings_[i];
    if (rest[i] == setting.bits) continue;
    const auto text = [&](std::uint64_t bits) {
      if (setting.kind == Kind::kHash) return fmt::format("{:016x}", bits);
      return setting.kind == Kind::kNumber ? fmt::format("{}", std::bit_cast<double>(bits))
                                           : fmt::format("{}", bits);
    };
    differing += fmt::format("{}{} is {}, committed with {}", differing.empty() ? "" : "; ", setting.name,
                             text(setting.bits), text(rest[i]));
  }
  if (!differing.empty()) {
    return {
        Code::kInvalidArgument,
        fmt::format("this is not the run that was committed: {}; accepted: the committed values", differing)};
  }
  const std::span losses = rest.subspan(kSettings + 1);
  if (losses.size() > steps_)
    return refuse(fmt::format("tell of {} steps done of {}", losses.size(), steps_));
  losses_.clear();
  for (const std::uint64_t bits : losses) losses_.push_back(std::bit_cast<double>(bits));
  return {};
}

}  // namespace sluice::trainer
