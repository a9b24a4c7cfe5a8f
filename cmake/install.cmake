# The files of `cmake --install`: headers, the library, a pkg-config file, a CMake package, and the
# programs that were built. They refer to each other by relative paths, so the installed folder may
# be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/millrace)
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(TARGETS millrace EXPORT millrace
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/millrace DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
install(EXPORT millrace NAMESPACE millrace:: FILE millrace-targets.cmake DESTINATION ${package_dir})

configure_package_config_file(cmake/millrace-config.cmake.in millrace-config.cmake
  INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may break its users.
write_basic_package_version_file(millrace-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/millrace-config.cmake ${PROJECT_BINARY_DIR}/millrace-config-version.cmake
  DESTINATION ${package_dir})

cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
  BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${pkgconfig_dir} OUTPUT_VARIABLE prefix_from_pkgconfig)
get_target_property(type millrace TYPE)
# A program in C that links the static library must name the C++ library, which only a C++ compiler adds by itself.
set(cxx_libraries "")
if(type STREQUAL "STATIC_LIBRARY")
  set(missing ${CMAKE_CXX_IMPLICIT_LINK_LIBRARIES})
  list(REMOVE_ITEM missing ${CMAKE_C_IMPLICIT_LINK_LIBRARIES})
  list(REMOVE_DUPLICATES missing)
  target_link_libraries(millrace INTERFACE "$<$<LINK_LANGUAGE:C>:${missing}>")
  list(TRANSFORM missing PREPEND -l)
  list(JOIN missing " " cxx_libraries)
endif()
configure_file(cmake/millrace.pc.in millrace.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/millrace.pc DESTINATION ${pkgconfig_dir})

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR})
foreach(program millrace_program millrace_bench_program)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()

# The programs in Go, whose sources CMake does not know: `cmake --build build/release --target millctl` builds them, and `cmake --install`
# installs those that have been built.
add_custom_target(millctl COMMAND bash ${PROJECT_SOURCE_DIR}/cmake/go_programs.sh VERBATIM)
foreach(program millctl millctl-cluster) # side by side: millctl runs the other one
  install(PROGRAMS ${PROJECT_SOURCE_DIR}/build/control/${program} DESTINATION ${CMAKE_INSTALL_BINDIR} OPTIONAL)
endforeach()
