#include "trainer/generate.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "trainer/text.hpp"

namespace sluice::trainer {
namespace {

// A byte with probability softmax(logits / temperature); `chance` is uniform in [0, 1).
std::uint8_t choose(std::span<const float> logits, double temperature, double chance) {
  const double top = static_cast<double>(std::ranges::max(logits));
  const auto weight = [&](std::size_t byte) {
    return std::exp((static_cast<double>(logits[byte]) - top) / temperature);
  };
  double left = 0;
  for (std::size_t byte = 0; byte < logits.size(); ++byte) left += weight(byte);
  left *= chance;
  for (std::size_t byte = 0; byte < logits.size(); ++byte) {
    left -= weight(byte);
    if (left < 0) return static_cast<std::uint8_t>(byte);
  }
  return static_cast<std::uint8_t>(logits.size() - 1);
}

Result<std::uint8_t> next_byte(Engine& engine, const Registry& registry, Model& model,
                               std::span<const std::uint8_t> text, double temperature, double chance) {
  Result<Pass> pass = engine.begin_pass("generate");
  if (!pass.ok()) return pass.status();
  PassParameters parameters(registry, *pass);
  const auto logits = model.next_byte_logits(parameters, text);
  if (!logits.ok()) return logits.status();
  SLUICE_RETURN_IF_ERROR(pass->end());
  return choose(*logits, temperature, chance);
}

}  // namespace

Result<std::string> generate(Engine& engine, const Registry& registry, Model& model, std::size_t context,
                             std::span<const std::uint8_t> prompt, const GenerateOptions& options) {
  constexpr std::uint64_t kSteps = std::uint64_t{1} << 53;
  std::vector<std::uint8_t> text(prompt.begin(), prompt.end());
  for (std::size_t i = 0; i < options.bytes; ++i) {
    const double chance =
        static_cast<double>(random_below(kSteps, options.seed, i)) / static_cast<double>(kSteps);
    const auto seen = std::span(text).last(std::min(text.size(), context));
    const Result<std::uint8_t> byte = next_byte(engine, registry, model, seen, options.temperature, chance);
    if (!byte.ok()) return byte.status();
    text.push_back(*byte);
  }
  return std::string(text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end());
}

}  // namespace sluice::trainer
