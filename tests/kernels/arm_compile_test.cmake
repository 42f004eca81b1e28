# The kernels' one source compiles for Arm: NEON, and SVE with vectors of unknown length.
# Needs a cross compiler; without one the test says so and is skipped.
find_program(compiler aarch64-linux-gnu-g++)
if(NOT compiler)
  message("SKIPPED: no aarch64-linux-gnu-g++ (package g++-aarch64-linux-gnu)")
  return()
endif()

# Header libraries alone: the other headers beside them are this machine's.
set(work ${BUILD}/arm_compile_test)
file(REMOVE_RECURSE ${work})
file(MAKE_DIRECTORY ${work}/headers)
file(CREATE_LINK ${HWY}/hwy ${work}/headers/hwy SYMBOLIC)
file(CREATE_LINK ${XXHASH}/xxhash.h ${work}/headers/xxhash.h SYMBOLIC)

file(GLOB sources ${SOURCE}/kernels/*.cpp)
foreach(architecture armv8-a armv8.2-a+sve)
  foreach(source ${sources})
    execute_process(
      COMMAND ${compiler} -std=c++20 -O1 -march=${architecture} -ffp-contract=off -Wall -Wextra -Werror ${DEFINITIONS}
              -I ${SOURCE} -I ${SOURCE}/include -isystem ${work}/headers -fsyntax-only ${source}
      COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
endforeach()
file(REMOVE_RECURSE ${work})
