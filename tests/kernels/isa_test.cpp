#include "kernels/isa.hpp"

#include <gmock/gmock.h>

#include "each_isa.hpp"

namespace sluice::kernels {
namespace {

class ForcedIsa : public OnEachIsa {};
SLUICE_ON_EACH_ISA(ForcedIsa);

TEST_P(ForcedIsa, IsTheOneInUse) { EXPECT_EQ(isa_in_use(), GetParam()); }

TEST(Isa, BestAvailableIsInUseAndScalarIsAlwaysThere) {
  const std::vector<Isa> isas = isas_available();
  EXPECT_EQ(isa_in_use(), isas.front());
#if defined(__x86_64__)
  EXPECT_THAT(isas, testing::Contains(Isa::kScalar));
#endif
}

TEST(Isa, ForcingNothingGoesBackToTheBest) {
  const std::vector<Isa> isas = isas_available();
  force_isa_for_test(isas.back());
  EXPECT_EQ(isas_available(), std::vector<Isa>{isas.back()});
  force_isa_for_test({});
  EXPECT_EQ(isas_available(), isas);
  EXPECT_EQ(isa_in_use(), isas.front());
}

}  // namespace
}  // namespace sluice::kernels
