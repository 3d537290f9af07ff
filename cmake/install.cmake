# SPDX-License-Identifier: MIT
# What `cmake --install` lays down, in components that become Debian packages: the command with its man
# pages and completions, the shared library, and what it takes to build programs on it (headers, the static library,
# and the files by which find_package(attn) and pkg-config find them), and what runs on several machines.
include(CMakePackageConfigHelpers)

install(DIRECTORY include/attn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        FILES_MATCHING PATTERN "*.h")
install(TARGETS attn_shared attn_static
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
if(TARGET attn_mpi) # loaded where a training runs under mpirun; apart, so that the library does not bring MPI along
  install(TARGETS attn_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/attn COMPONENT mpi)
endif()

# The prefix is told from where attn.pc lies, so that an unpacked archive works anywhere.
file(RELATIVE_PATH ATTN_PREFIX_FROM_PC /x/${CMAKE_INSTALL_LIBDIR}/pkgconfig /x)
configure_file(cmake/attn.pc.in attn.pc @ONLY)
configure_package_config_file(cmake/attn-config.cmake.in attn-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attn PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(attn-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/attn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT development)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/attn-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/attn-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attn COMPONENT development)

if(TARGET attn)
  install(TARGETS attn RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
  install(TARGETS attn-bench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT development)
  file(GLOB ATTN_GUIDES CONFIGURE_DEPENDS README.md CHANGELOG.md SECURITY.md LICENSE docs/*.md)
  install(FILES ${ATTN_GUIDES} DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT command)
  install(FILES data/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME LICENSE.phrasebook COMPONENT command)
  install(DIRECTORY docs/images DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT command)
endif()

# Man pages and completions are asked of the command, which therefore must run on the machine that builds.
if(TARGET attn AND (CMAKE_CROSSCOMPILING OR ATTN_SANITIZE))
  message(STATUS "attn: no man pages and completions: the command built here does not run here, or is a sanitizer's")
elseif(TARGET attn)
  set(ATTN_SHARE ${CMAKE_CURRENT_BINARY_DIR}/share)
  add_custom_command(OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/manuals.stamp
    COMMAND ${CMAKE_COMMAND} -DATTN=$<TARGET_FILE:attn> -DDIR=${ATTN_SHARE}
            -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/manuals.cmake
    COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_CURRENT_BINARY_DIR}/manuals.stamp
    DEPENDS attn cmake/manuals.cmake COMMENT "Man pages and completions")
  add_custom_target(attn_manuals ALL DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/manuals.stamp)
  install(DIRECTORY ${ATTN_SHARE}/ DESTINATION ${CMAKE_INSTALL_DATAROOTDIR} COMPONENT command)
endif()
