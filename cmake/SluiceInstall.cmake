# The shared library `sluice` made of all rooms, and what a consumer needs of the project: the library, its public
# headers, a CMake package, the sluice command.
include(CMakePackageConfigHelpers)

add_library(sluice_shared SHARED)
foreach(room public io kernels plan memory device comm store engine)
  target_sources(sluice_shared PRIVATE $<TARGET_OBJECTS:sluice_${room}>)
  # For what the rooms need from outside: their objects are all there already.
  target_link_libraries(sluice_shared PRIVATE sluice_${room})
endforeach()
sluice_options(sluice_shared)
target_compile_features(sluice_shared INTERFACE cxx_std_20)
set_target_properties(sluice_shared PROPERTIES
  OUTPUT_NAME sluice
  EXPORT_NAME sluice
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})

install(TARGETS sluice_shared EXPORT SluiceTargets INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/sluice DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.hpp)
if(SLUICE_BUILD_TOOLS)
  install(TARGETS sluice_command)
endif()

# Nothing has to be found on the consumer's side, so the exported targets are the whole package.
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Sluice)
install(EXPORT SluiceTargets FILE SluiceConfig.cmake NAMESPACE Sluice:: DESTINATION ${package_folder})
write_basic_package_version_file(SluiceConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/SluiceConfigVersion.cmake DESTINATION ${package_folder})
