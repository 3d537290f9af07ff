# SPDX-License-Identifier: MIT
# What `cmake --install` lays down, in components that become Debian packages: the command with its man
# pages and completions, the shared library and the engine's, what it takes to build programs on them (headers, static
# libraries, and the files by which find_package and pkg-config find them), and what runs on several machines.
include(CMakePackageConfigHelpers)

# attn_package(NAME COMPATIBILITY): NAME.pc and the package that find_package(NAME) finds
function(attn_package name compatibility)
  set(cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/${name})
  configure_file(cmake/${name}.pc.in ${name}.pc @ONLY)
  configure_package_config_file(cmake/${name}-config.cmake.in ${name}-config.cmake INSTALL_DESTINATION ${cmake_dir})
  write_basic_package_version_file(${name}-config-version.cmake COMPATIBILITY ${compatibility})
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/${name}-config-version.cmake
          DESTINATION ${cmake_dir} COMPONENT development)
endfunction()
# attn_install(PREFIX NAME COMPONENT): the libraries of attn_libraries, with their targets for CMake, shared and static in a file
# each, since only a program that links the static library needs what that one links.
function(attn_install prefix name component)
  if(ATTN_SHARED)
    install(TARGETS ${prefix}_shared EXPORT ${name}-shared
            LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${component} NAMELINK_COMPONENT development
            RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${component}
            ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
    list(APPEND exports ${name}-shared)
  endif()
  if(ATTN_STATIC)
    install(TARGETS ${prefix}_static EXPORT ${name}-static ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
    list(APPEND exports ${name}-static)
  endif()
  foreach(export ${exports})
    install(EXPORT ${export} NAMESPACE attn:: FILE ${export}-targets.cmake
            DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/${name} COMPONENT development)
  endforeach()
endfunction()

# The prefix is told from where the .pc lies, so that an unpacked archive works anywhere.
file(RELATIVE_PATH ATTN_PREFIX_FROM_PC /x/${CMAKE_INSTALL_LIBDIR}/pkgconfig /x)
set_target_properties(attn_engine_static PROPERTIES EXPORT_NAME engine_static)
if(ATTN_SHARED)
  set_target_properties(attn_engine_shared PROPERTIES EXPORT_NAME engine)
endif()
attn_install(attn_engine attn-engine engine)
attn_package(attn-engine SameMajorVersion) # as its soname
install(FILES include/attn/attn.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/attn COMPONENT development)

if(PROJECT_IS_TOP_LEVEL) # removes what the last installation from this build has put in its place
  add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -DMANIFESTS=${CMAKE_BINARY_DIR} -P ${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake)
endif()
if(ATTN_ENGINE_ONLY)
  return()
endif()

set_target_properties(attn_static PROPERTIES EXPORT_NAME attn_static)
if(ATTN_SHARED)
  set_target_properties(attn_shared PROPERTIES EXPORT_NAME attn)
endif()
install(DIRECTORY include/attn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        FILES_MATCHING PATTERN "*.h")
attn_install(attn attn library)
# What the static library links, for those who link it: by names, so that no path of this machine is installed.
set(ATTN_PC_MODULES zlib libpng libjpeg)
set(ATTN_PC_LIBRARIES)
set(ATTN_PC_FINDS)
macro(attn_links prefix module) # PkgConfig::PREFIX, which the static library links, is pkg-config's MODULE
  list(APPEND ATTN_PC_MODULES ${module})
  string(APPEND ATTN_PC_FINDS "    pkg_check_modules(${prefix} \${attn_how} IMPORTED_TARGET ${module})\n"
         "    if(NOT ${prefix}_FOUND)\n      set(attn_static_FOUND FALSE)\n    endif()\n")
endmacro()
attn_links(JANSSON jansson)
if(ATTN_WITH_PICTURES)
  attn_links(CAIRO cairo)
  attn_links(FONTCONFIG fontconfig)
endif()
if(YAML_FOUND)
  attn_links(YAML yaml-0.1)
endif()
if(UTF8PROC_FOUND)
  attn_links(UTF8PROC libutf8proc)
endif()
if(WEBP_FOUND)
  attn_links(WEBP libwebp)
endif()
if(WEBP_FOUND AND WEBPMUX_FOUND)
  attn_links(WEBPMUX libwebpmux)
endif()
get_target_property(definitions attn_objects COMPILE_DEFINITIONS)
if("ATTN_HAVE_SENTENCEPIECE" IN_LIST definitions)
  attn_links(SENTENCEPIECE sentencepiece)
  list(APPEND ATTN_PC_LIBRARIES -lsentencepiece_train)
endif()
if("ATTN_HAVE_GEMMI" IN_LIST definitions AND GEMMI_LIBRARY)
  list(APPEND ATTN_PC_LIBRARIES -lgemmi_cpp)
endif()
if("stdc++" IN_LIST ATTN_PRIVATE_LIBS)
  list(APPEND ATTN_PC_LIBRARIES -lstdc++)
endif()
foreach(library ${CMAKE_DL_LIBS})
  list(APPEND ATTN_PC_LIBRARIES -l${library})
endforeach()
list(JOIN ATTN_PC_MODULES " " ATTN_PC_MODULES)
list(JOIN ATTN_PC_LIBRARIES " " ATTN_PC_LIBRARIES)
attn_package(attn SameMinorVersion) # as its soname
if(TARGET attn_mpi) # loaded where a training runs under mpirun; apart, so that the library does not bring MPI along
  install(TARGETS attn_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/attn COMPONENT mpi)
endif()

# The documents lie to each other as in the sources, so that their links hold. The headers are among them, because the
# package of the command has no others.
if(TARGET attn)
  install(TARGETS attn RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
  install(TARGETS attn-bench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT development)
  set(doc DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT command)
  install(FILES README.md CHANGELOG.md SECURITY.md CONTRIBUTING.md LICENSE ${doc})
  install(FILES data/LICENSE ${doc} RENAME LICENSE.data)
  install(DIRECTORY docs ${doc} FILES_MATCHING PATTERN "*.md" PATTERN "*.png" PATTERN "*.webp" PATTERN "*.svg" PATTERN api EXCLUDE)
  install(DIRECTORY data/names DESTINATION ${CMAKE_INSTALL_DOCDIR}/data COMPONENT command)
  install(DIRECTORY examples ${doc} FILES_MATCHING PATTERN "*.[ch]" PATTERN "*.py")
  install(DIRECTORY python/examples DESTINATION ${CMAKE_INSTALL_DOCDIR}/python COMPONENT command FILES_MATCHING PATTERN "*.py")
  install(DIRECTORY include/attn DESTINATION ${CMAKE_INSTALL_DOCDIR}/include COMPONENT command FILES_MATCHING PATTERN "*.h")
endif()

# Man pages and completions are asked of the command, which therefore must run on the machine that builds.
if(TARGET attn AND ((CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR) OR ATTN_SANITIZE))
  message(STATUS "attn: no man pages and completions: the command built here does not run here, or is a sanitizer's")
elseif(TARGET attn)
  set(ATTN_SHARE ${CMAKE_CURRENT_BINARY_DIR}/share)
  add_custom_command(OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/manuals.stamp
    COMMAND ${CMAKE_COMMAND} "-DATTN=${CMAKE_CROSSCOMPILING_EMULATOR};$<TARGET_FILE:attn>" -DDIR=${ATTN_SHARE}
            -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/manuals.cmake
    COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_CURRENT_BINARY_DIR}/manuals.stamp
    DEPENDS attn cmake/manuals.cmake COMMENT "Man pages and completions" VERBATIM)
  add_custom_target(attn_manuals ALL DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/manuals.stamp)
  install(DIRECTORY ${ATTN_SHARE}/ DESTINATION ${CMAKE_INSTALL_DATAROOTDIR} COMPONENT command)
endif()
