#include "trainer/progress.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "trainer/optimizer_numbers.hpp"
#include "trainer/xxh3.hpp"

namespace sluice::trainer {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t kMagic = 0x5254'4543'4955'4c53;  // "SLUICETR"
constexpr std::uint64_t kVersion = 2;
constexpr std::size_t kVersion1Settings = 13;
constexpr std::size_t kSettingsMost = 32;

std::uint64_t bits_of(double value) { return std::bit_cast<std::uint64_t>(value); }

Status refuse(std::string_view why) {
  return Status(Code::kFailedPrecondition, fmt::format("the commit's user bytes {}", why));
}

// What user bytes consist of, after magic and version.
struct Words {
  LossScaler::State scale;  // none where it is 0
  std::vector<std::uint64_t> settings;
  std::vector<std::uint64_t> losses;
};

// Takes words from the front; nothing where there are fewer.
class Reader {
 public:
  explicit Reader(std::span<const std::uint64_t> words) : rest_(words) {}
  std::optional<std::vector<std::uint64_t>> take(std::uint64_t count) {
    if (count > rest_.size()) return std::nullopt;
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return std::vector(taken.begin(), taken.end());
  }
  std::optional<std::vector<std::uint64_t>> take_counted() {
    const auto count = take(1);
    return count ? take(count->front()) : std::nullopt;
  }
  bool at_end() const { return rest_.empty(); }

 private:
  std::span<const std::uint64_t> rest_;
};

std::optional<Words> split(std::span<const std::uint64_t> words, std::uint64_t version) {
  Reader reader(words);
  const auto scale = version == 1 ? std::vector<std::uint64_t>(3) : reader.take(3);
  if (!scale) return std::nullopt;
  constexpr std::uint64_t kMost32 = std::numeric_limits<std::uint32_t>::max();
  if ((*scale)[1] > kMost32 || (*scale)[2] > kMost32) return std::nullopt;
  const auto settings = version == 1 ? reader.take(kVersion1Settings) : reader.take_counted();
  const auto losses = reader.take_counted();
  if (!settings || !losses || !reader.at_end()) return std::nullopt;
  return Words{.scale = {.scale = std::bit_cast<double>((*scale)[0]),
                         .good_steps = static_cast<std::uint32_t>((*scale)[1]),
                         .bad_steps_at_floor = static_cast<std::uint32_t>((*scale)[2])},
               .settings = *settings,
               .losses = *losses};
}

}  // namespace

std::vector<Progress::Setting> Progress::settings_of(const TrainOptions& options,
                                                     std::span<const std::uint8_t> training) {
  std::vector<Setting> settings = {
      {"text's training part, XXH3-64", Kind::kHash, xxh3(std::as_bytes(training))},
      {"text's training part, bytes", Kind::kCount, training.size()},
      {"layers", Kind::kCount, options.shape.layers},
      {"width", Kind::kCount, options.shape.width},
      {"heads", Kind::kCount, options.shape.heads},
      {"context", Kind::kCount, options.shape.context},
      {"seed", Kind::kCount, options.seed},
      {"batch", Kind::kCount, options.sequences},
      {"micro-batches", Kind::kCount, options.micro_batches},
      {"steps", Kind::kCount, options.steps},
      {"lr", Kind::kNumber, bits_of(learning_rate(options.optimizer))},
      {"warmup", Kind::kCount, options.warmup_steps},
      {"max-norm", Kind::kNumber, bits_of(options.max_norm)},
      {"schedule", Kind::kDecline, static_cast<std::uint64_t>(options.decline)},
      {"min-lr", Kind::kNumber, bits_of(options.min_lr)},
      {"optimizer", Kind::kRule, options.optimizer.index()}};
  for (const OptimizerNumber& number : kind_of(options.optimizer).numbers) {
    if (number.name != "lr")
      settings.push_back({number.name, Kind::kNumber, bits_of(number.get(options.optimizer))});
  }
  return settings;
}

Progress::Progress(const TrainOptions& options, std::span<const std::uint8_t> training)
    : settings_(settings_of(options, training)),
      steps_(options.steps),
      dynamic_(!options.loss_scale),
      fixed_scale_(options.loss_scale.value_or(1)) {}

std::vector<std::byte> Progress::encode() const {
  const LossScaler::State scale = dynamic_ ? scaler_.state() : LossScaler::State{};
  std::vector<std::uint64_t> words = {
      kMagic, kVersion, bits_of(scale.scale), scale.good_steps, scale.bad_steps_at_floor, settings_.size()};
  for (const Setting& setting : settings_) words.push_back(setting.bits);
  words.push_back(losses_.size());
  for (const double loss : losses_) words.push_back(bits_of(loss));
  std::vector<std::byte> bytes(words.size() * sizeof(std::uint64_t));
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

std::uint64_t Progress::room_bytes(std::uint64_t steps) {
  constexpr std::uint64_t kRoom = 64 << 10;
  return ((7 + kSettingsMost + steps) * sizeof(std::uint64_t) + kRoom - 1) / kRoom * kRoom;
}

std::string Progress::text(Kind kind, std::uint64_t bits) {
  if (kind == Kind::kHash) return fmt::format("{:016x}", bits);
  if (kind == Kind::kNumber) return fmt::format("{}", std::bit_cast<double>(bits));
  if (kind == Kind::kDecline && bits < std::size(kDeclines))
    return std::string(decline_name(kDeclines[bits]));
  if (kind == Kind::kRule && bits < optimizer_kinds().size())
    return std::string(optimizer_kinds()[bits].name);
  return fmt::format("{}", bits);
}

// The numbers of two rules are not compared: they come after the rule, which says enough.
std::string Progress::differences(std::span<const std::uint64_t> committed) const {
  std::string differing;
  for (std::size_t i = 0; i < std::min(committed.size(), settings_.size()); ++i) {
    const Setting& setting = settings_[i];
    if (committed[i] == setting.bits) continue;
    differing += fmt::format("{}{} is {}, committed with {}", differing.empty() ? "" : "; ", setting.name,
                             text(setting.kind, setting.bits), text(setting.kind, committed[i]));
    if (setting.kind == Kind::kRule) break;
  }
  return differing;
}

Status Progress::resume(std::span<const std::byte> user_bytes) {
  std::vector<std::uint64_t> words(user_bytes.size() / sizeof(std::uint64_t));
  std::memcpy(words.data(), user_bytes.data(), words.size() * sizeof(std::uint64_t));
  if (words.size() < 2 || words[0] != kMagic) return refuse("are not those of this trainer");
  if (words[1] < 1 || words[1] > kVersion) {
    return {Code::kUnimplemented,
            fmt::format("the commit's user bytes are of version {} of this trainer's, known: 1..{}", words[1],
                        kVersion)};
  }
  std::optional<Words> held = split(std::span(words).subspan(2), words[1]);
  if (!held || user_bytes.size() % sizeof(std::uint64_t) != 0)
    return refuse(fmt::format("are {} bytes, which is not what they say that they hold", user_bytes.size()));
  if (words[1] == 1) {
    // What a version 1 trainer could not be told otherwise.
    const std::vector<Setting> then = settings_of({}, {});
    for (std::size_t i = kVersion1Settings; i < then.size(); ++i) held->settings.push_back(then[i].bits);
  }
  if (const std::string differing = differences(held->settings); !differing.empty()) {
    return {
        Code::kInvalidArgument,
        fmt::format("this is not the run that was committed: {}; accepted: the committed values", differing)};
  }
  if (held->settings.size() != settings_.size())
    return refuse(fmt::format("hold {} settings, not {}", held->settings.size(), settings_.size()));
  if (held->losses.size() > steps_)
    return refuse(fmt::format("tell of {} steps done of {}", held->losses.size(), steps_));
  if (dynamic_ && held->scale.scale != 0) {
    const Status restored = scaler_.restore(held->scale);
    if (!restored.ok()) return refuse(fmt::format("hold a {}", restored.message()));
  }
  losses_.clear();
  for (const std::uint64_t bits : held->losses) losses_.push_back(std::bit_cast<double>(bits));
  return {};
}

}  // namespace sluice::trainer
