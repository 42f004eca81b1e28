# A room is one folder of the house and one static library. Its headers are reached as "<room>/<file>.hpp" through a
# folder of links that holds this room alone, so an include that crosses the direction of dependencies does not build.
#
#   sluice_room(NAME io SOURCES queue.cpp … SEES public other_room … LIBRARIES external targets …)
# creates the target sluice_<name>.
function(sluice_room)
  cmake_parse_arguments(ROOM "" "NAME" "SOURCES;SEES;LIBRARIES" ${ARGN})
  set(door ${CMAKE_BINARY_DIR}/rooms/${ROOM_NAME})
  file(MAKE_DIRECTORY ${door})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${door}/${ROOM_NAME} SYMBOLIC)

  set(target sluice_${ROOM_NAME})
  add_library(${target} STATIC ${ROOM_SOURCES})
  sluice_options(${target})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${door}>)
  list(TRANSFORM ROOM_SEES PREPEND sluice_)
  target_link_libraries(${target} PUBLIC ${ROOM_SEES} PRIVATE ${ROOM_LIBRARIES})
endfunction()

# Warnings and sanitizers that every target of the project is built with.
function(sluice_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wconversion)
  if(SLUICE_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(SLUICE_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=${SLUICE_SANITIZE})
  endif()
endfunction()
