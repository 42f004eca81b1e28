#pragma once

#include <gmock/gmock.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/isa.hpp"

namespace sluice::kernels {

/// Runs a test once on every target that this CPU supports.
class OnEachIsa : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override { force_isa_for_test(GetParam()); }
  void TearDown() override { force_isa_for_test({}); }
};

#define SLUICE_ON_EACH_ISA(Suite)                                                              \
  INSTANTIATE_TEST_SUITE_P(Isa, Suite, testing::ValuesIn(::sluice::kernels::isas_available()), \
                           [](const testing::TestParamInfo<::sluice::kernels::Isa>& each) {    \
                             return std::string(::sluice::kernels::isa_name(each.param));      \
                           })

/// The bits of floats, to compare NaNs and signed zeros too.
inline std::vector<std::uint32_t> bits_of(const std::vector<float>& floats) {
  std::vector<std::uint32_t> bits;
  bits.reserve(floats.size());
  for (const float x : floats) bits.push_back(std::bit_cast<std::uint32_t>(x));
  return bits;
}

}  // namespace sluice::kernels
