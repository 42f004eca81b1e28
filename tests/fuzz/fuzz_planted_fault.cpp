// A parser with a fault, which the driver must find and write down.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size >= 4 && data[0] == 'L' && data[1] == 'E' && data[2] == 'N' && data[3] == 0xff) std::abort();
  return 0;
}
