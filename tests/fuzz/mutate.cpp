#include "mutate.hpp"

#include <algorithm>
#include <iterator>
#include <string>

namespace sluice::fuzz {
namespace {

constexpr std::uint64_t kNumbers[] = {
    0,           1,          2,          7,          8,
    127,         128,        255,        256,        4095,
    4096,        32767,      32768,      65535,      65536,
    99999999,    100000000,  100000001,  0x7fffffff, 0x80000000u,
    0xffffffffu, 1ull << 32, 1ull << 53, 1ull << 62, (1ull << 63) - 1,
    1ull << 63,  ~0ull - 7,  ~0ull - 1,  ~0ull,
};

class Mutation {
 public:
  Mutation(const std::vector<Input>& corpus, std::mt19937_64& random) : corpus_(corpus), random_(random) {}

  Input run() {
    input_ = any_input();
    for (std::uint64_t left = 1 + below(6); left > 0; --left) change();
    if (input_.size() > kInputBytesMax) input_.resize(kInputBytesMax);
    return std::move(input_);
  }

 private:
  std::uint64_t below(std::uint64_t end) { return random_() % end; }
  const Input& any_input() { return corpus_[below(corpus_.size())]; }
  Input::iterator at(std::uint64_t index) { return input_.begin() + static_cast<std::ptrdiff_t>(index); }

  void change() {
    switch (below(9)) {
      case 0:
        if (!input_.empty()) *any_place() ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      case 1:
        if (!input_.empty()) *any_place() = static_cast<std::uint8_t>(random_());
        break;
      case 2:
        input_.resize(below(input_.size() + 1));
        break;
      case 3:
        insert_random_bytes();
        break;
      case 4: {
        const std::uint64_t first = below(input_.size() + 1);
        input_.erase(at(first), at(first + below(std::min<std::uint64_t>(input_.size() - first, 16) + 1)));
        break;
      }
      case 5:
        replace_piece(input_);
        break;
      case 6:
        replace_piece(any_input());
        break;
      case 7:
        put_binary_number();
        break;
      case 8:
        put_written_number();
        break;
    }
  }

  Input::iterator any_place() { return at(below(input_.size())); }

  void insert_random_bytes() {
    Input bytes(1 + below(16));
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::uint8_t>(random_()); });
    input_.insert(at(below(input_.size() + 1)), bytes.begin(), bytes.end());
  }

  /// Puts a piece of `source` in the place of another piece, so that both join at odd places.
  void replace_piece(Input source) {
    const std::uint64_t source_first = below(source.size() + 1);
    const std::uint64_t bytes = below(source.size() - source_first + 1);
    const std::uint64_t first = below(input_.size() + 1);
    const std::uint64_t replaced = below(2) == 0 ? 0 : below(input_.size() - first + 1);
    input_.erase(at(first), at(first + replaced));
    const auto piece = source.begin() + static_cast<std::ptrdiff_t>(source_first);
    input_.insert(at(first), piece, piece + static_cast<std::ptrdiff_t>(bytes));
  }

  std::uint64_t any_number() { return kNumbers[below(std::size(kNumbers))]; }

  void put_binary_number() {
    const std::uint64_t width = std::uint64_t{1} << below(4);
    if (input_.size() < width) return;
    const std::uint64_t number = any_number();
    const std::uint64_t first = below(input_.size() - width + 1);
    for (std::uint64_t i = 0; i < width; ++i) *at(first + i) = static_cast<std::uint8_t>(number >> (8 * i));
  }

  /// In the place of a number in decimal digits, if there is one behind a random place.
  void put_written_number() {
    const auto is_digit = [](std::uint8_t byte) { return byte >= '0' && byte <= '9'; };
    const auto first = std::find_if(at(below(input_.size() + 1)), input_.end(), is_digit);
    if (first == input_.end()) return;
    const auto after = input_.erase(first, std::find_if_not(first, input_.end(), is_digit));
    const std::string digits = std::to_string(any_number());
    input_.insert(after, digits.begin(), digits.end());
  }

  const std::vector<Input>& corpus_;
  std::mt19937_64& random_;
  Input input_;
};

}  // namespace

Input mutate(const std::vector<Input>& corpus, std::mt19937_64& random) {
  return Mutation(corpus, random).run();
}

}  // namespace sluice::fuzz
