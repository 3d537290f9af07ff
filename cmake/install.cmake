# SPDX-License-Identifier: MIT
# What `cmake --install` lays down: headers, both libraries, the command, its data, and the files by which
# find_package(attn) and pkg-config find them.
include(CMakePackageConfigHelpers)

install(DIRECTORY include/attn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS attn_shared attn_static
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET attn_mpi)
  install(TARGETS attn_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/attn)
endif()
if(TARGET attn)
  install(TARGETS attn RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_file(cmake/attn.pc.in attn.pc @ONLY)
configure_package_config_file(cmake/attn-config.cmake.in attn-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attn PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(attn-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/attn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/attn-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/attn-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attn)
