# SPDX-License-Identifier: MIT
# The last touch to what CPack is about to pack, in its staging directory: Debian wants man pages and changelogs
# compressed, a copyright file for each package, a changelog in its own format, and zsh's completions in a directory of vendors.  With
# SOURCE_DATE_EPOCH set every file has that time, so that two builds give the same bytes.
string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC) # of SOURCE_DATE_EPOCH where that is set
get_filename_component(source ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)
if(CPACK_GENERATOR STREQUAL "DEB")
  set(packages command attn library ${CPACK_DEBIAN_LIBRARY_PACKAGE_NAME} engine ${CPACK_DEBIAN_ENGINE_PACKAGE_NAME} development libattn-dev mpi attn-mpi)
  while(packages)
    list(POP_FRONT packages component package)
    set(share ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component}/usr/share)
    if(NOT EXISTS ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component})
      continue()
    endif()
    file(MAKE_DIRECTORY ${share}/doc/${package})
    configure_file(${source}/cmake/copyright ${share}/doc/${package}/copyright COPYONLY)
    file(WRITE ${share}/doc/${package}/changelog
         "attn (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium\n\n  * Version ${CPACK_PACKAGE_VERSION}; "
         "CHANGELOG.md in the package attn says what changed.\n\n -- ${CPACK_PACKAGE_CONTACT}  ${now}\n")
    if(EXISTS ${share}/zsh/site-functions)
      file(RENAME ${share}/zsh/site-functions ${share}/zsh/vendor-completions)
    endif()
    file(REMOVE ${share}/doc/${package}/LICENSE ${share}/doc/${package}/LICENSE.data) # in copyright
    file(GLOB pages ${share}/man/man1/*.1)
    file(CHMOD ${share}/doc/${package}/copyright ${share}/doc/${package}/changelog
         PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
    execute_process(COMMAND gzip -9nf ${share}/doc/${package}/changelog ${pages} COMMAND_ERROR_IS_FATAL ANY)
  endwhile()
endif()
if(DEFINED ENV{SOURCE_DATE_EPOCH})
  execute_process(COMMAND find ${CPACK_TEMPORARY_INSTALL_DIRECTORY} -exec touch -h -d @$ENV{SOURCE_DATE_EPOCH} {} +)
endif()
