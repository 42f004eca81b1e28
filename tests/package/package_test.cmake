set(work ${BUILD}/package_test)
set(prefix ${work}/prefix)
set(example ${SOURCE}/examples/embed.cpp)
file(REMOVE_RECURSE ${work})
file(MAKE_DIRECTORY ${work}/run)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# The first C++ block of the README is the example, to the letter.
if(EXISTS ${SOURCE}/README.md)
  file(READ ${SOURCE}/README.md readme)
  file(READ ${example} source)
  string(FIND "${readme}" "```cpp\n${source}```" place)
  if(place EQUAL -1)
    message(FATAL_ERROR "README.md does not hold examples/embed.cpp as a ```cpp block")
  endif()
endif()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
set(flags "")
if(SANITIZE)
  set(flags -fsanitize=${SANITIZE})
endif()
run(${CMAKE_COMMAND} -S ${SOURCE}/tests/package/consumer -B ${work}/build -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER}
    -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_CXX_FLAGS=${flags} -D EXAMPLE=${example})
run(${CMAKE_COMMAND} --build ${work}/build)
# Twice: the second run goes on from the first one's commit.
run(${work}/build/embed ${work}/run)
execute_process(COMMAND ${work}/build/embed ${work}/run OUTPUT_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)
if(NOT said MATCHES "going on after step 10\n.*step 20: ")
  message(FATAL_ERROR "the example did not go on from its commit:\n${said}")
endif()
if(EXISTS ${prefix}/bin/sluice)
  run(${prefix}/bin/sluice --version)
endif()

# Rooms stay private: nothing of them is a dynamic symbol that a consumer could link.
file(GLOB library ${prefix}/lib*/libsluice.so ${prefix}/lib*/*/libsluice.so)
execute_process(COMMAND nm --dynamic --demangle --defined-only ${library} OUTPUT_VARIABLE symbols
                COMMAND_ERROR_IS_FATAL ANY)
if(NOT symbols MATCHES "sluice::Engine::create")
  message(FATAL_ERROR "${library} does not export sluice::Engine::create")
endif()
if(symbols MATCHES "[TB] (sluice::(io|kernels|plan|memory|device|comm|store|formats|engine)::[^\n]*)")
  message(FATAL_ERROR "${library} exports ${CMAKE_MATCH_1}")
endif()

file(REMOVE_RECURSE ${work})
