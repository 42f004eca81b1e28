# Everything outside the project: distribution packages, found and never downloaded.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(TBB REQUIRED)
find_package(fmt REQUIRED)
pkg_check_modules(liburing REQUIRED IMPORTED_TARGET liburing)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
