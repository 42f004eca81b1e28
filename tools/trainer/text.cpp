#include "trainer/text.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <fstream>

#include <fmt/format.h>

namespace sluice::trainer {
namespace {

constexpr std::size_t kLeastHeldOutBytes = 4096;

constexpr std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

}  // namespace

Result<std::vector<std::uint8_t>> read_text(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff bytes = file ? static_cast<std::streamoff>(file.tellg()) : -1;
  if (bytes < 0) return status_from_errno(errno == 0 ? EIO : errno, "opening the text " + path);
  std::vector<std::uint8_t> text(static_cast<std::size_t>(bytes));
  file.seekg(0);
  if (!file.read(reinterpret_cast<char*>(text.data()), bytes)) {
    return status_from_errno(errno == 0 ? EIO : errno, "reading the text " + path);
  }
  return text;
}

Result<SplitText> split_text(std::span<const std::uint8_t> text, std::size_t context) {
  const std::size_t held_out = std::max({text.size() / 10, kLeastHeldOutBytes, context + 1});
  const std::size_t needed = held_out + context + 1;
  if (text.size() < needed) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("the text has {} bytes; needed are at least {}: {} held out for validation and one "
                    "sequence of {} + 1 to learn from",
                    text.size(), needed, held_out, context));
  }
  return SplitText{text.first(text.size() - held_out), text.last(held_out)};
}

double unigram_entropy(std::span<const std::uint8_t> text) {
  std::array<std::uint64_t, kVocabulary> counts{};
  for (const std::uint8_t byte : text) ++counts[byte];
  double entropy = 0;
  for (const std::uint64_t count : counts) {
    if (count == 0) continue;
    const double probability = static_cast<double>(count) / static_cast<double>(text.size());
    entropy -= probability * std::log(probability);
  }
  return entropy;
}

std::uint64_t random_below(std::uint64_t bound, std::uint64_t seed, std::uint64_t counter) {
  constexpr std::uint64_t kGoldenGamma = 0x9E3779B97F4A7C15U;
  const std::uint64_t bits = scramble(scramble(seed + kGoldenGamma) + (counter + 1) * kGoldenGamma);
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits) * bound) >> 64);
}

BatchBuffer::BatchBuffer(std::size_t sequences, std::size_t length)
    : sequences_(sequences), length_(length), inputs_(sequences * length), targets_(sequences * length) {}

Batch BatchBuffer::draw(std::span<const std::uint8_t> text, std::uint64_t seed, std::uint64_t number) {
  for (std::size_t sequence = 0; sequence < sequences_; ++sequence) {
    const std::uint64_t counter = number * sequences_ + sequence;
    put(sequence, text.subspan(random_below(text.size() - length_, seed, counter)));
  }
  return first_sequences(sequences_);
}

Batch BatchBuffer::follow(std::span<const std::uint8_t> text, std::size_t first) {
  std::size_t count = 0;
  for (; count < sequences_ && first + length_ < text.size(); ++count, first += length_) {
    put(count, text.subspan(first));
  }
  return first_sequences(count);
}

void BatchBuffer::put(std::size_t sequence, std::span<const std::uint8_t> from) {
  const auto at = static_cast<std::ptrdiff_t>(sequence * length_);
  std::ranges::copy(from.first(length_), inputs_.begin() + at);
  std::ranges::copy(from.subspan(1, length_), targets_.begin() + at);
}

Batch BatchBuffer::first_sequences(std::size_t count) const {
  const std::size_t tokens = count * length_;
  return {std::span(inputs_).first(tokens), std::span(targets_).first(tokens), length_};
}

}  // namespace sluice::trainer
