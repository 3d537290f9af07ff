# SPDX-License-Identifier: MIT
# `make package`, `cpack`: one .tar.gz of everything, and Debian packages: attn, libattn1.0,
# libattn-engine1, libattn-dev, attn-mpi. packaging/debian has the source package.
set(CPACK_GENERATOR TGZ)
find_program(DPKG_DEB dpkg-deb)
find_program(DPKG_SHLIBDEPS dpkg-shlibdeps)
if(DPKG_DEB)
  list(APPEND CPACK_GENERATOR DEB)
endif()
set(CPACK_OUTPUT_FILE_PREFIX ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGE_CONTACT "The attn authors <attn@localhost>" CACHE STRING "Who made the packages: NAME <ADDRESS>")
set(CPACK_PACKAGE_VENDOR "The attn authors")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_CURRENT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_SOURCE_DIR}/cmake/stage.cmake)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "native library and command for attention networks")

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS OFF)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
if(DPKG_SHLIBDEPS)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
endif()

set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME attn)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION science)
set(CPACK_COMPONENT_COMMAND_DESCRIPTION "The command: translators, classifiers and generators of images,
models of protein families, trained, used and drawn without Python
and without a GPU.")

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libattn${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "The shared library: attention of every kind near the machine's
limit, forward and backward; tensors with gradients, layers, models
and training on it.")
set(CPACK_DEBIAN_ENGINE_PACKAGE_NAME libattn-engine${PROJECT_VERSION_MAJOR})
set(CPACK_DEBIAN_ENGINE_PACKAGE_SECTION libs)
set(CPACK_COMPONENT_ENGINE_DESCRIPTION "The shared library of the attention engine alone, which needs libc,
libm and threads.")
set(CPACK_DEBIAN_MPI_PACKAGE_NAME attn-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_SECTION science)
set(CPACK_DEBIAN_MPI_PACKAGE_GENERATE_SHLIBS OFF)
set(CPACK_COMPONENT_MPI_DESCRIPTION "What attn loads to train on several machines, under mpirun.")

# The trigger makes the loader's cache anew; CPack alone would write scripts that call ldconfig.
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/debian/triggers "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_BINARY_DIR}/debian/triggers)
set(CPACK_DEBIAN_ENGINE_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_BINARY_DIR}/debian/triggers)

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libattn-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
# pkg-config looks for what attn.pc names in Requires.private even where the shared library is linked.
set(needed zlib1g-dev libpng-dev libjpeg-dev libjansson-dev)
if(ATTN_WITH_PICTURES)
  list(APPEND needed libcairo2-dev libfontconfig-dev)
endif()
foreach(pair YAML:libyaml-dev UTF8PROC:libutf8proc-dev WEBP:libwebp-dev SENTENCEPIECE:libsentencepiece-dev SENTENCEPIECE:libprotobuf-dev)
  string(REGEX MATCH "(.*):(.*)" pair ${pair})
  if(${CMAKE_MATCH_1}_FOUND)
    list(APPEND needed ${CMAKE_MATCH_2})
  endif()
endforeach()
list(JOIN needed ", " needed)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${CPACK_DEBIAN_LIBRARY_PACKAGE_NAME} (= ${PROJECT_VERSION}), \
${CPACK_DEBIAN_ENGINE_PACKAGE_NAME} (= ${PROJECT_VERSION}), ${needed}")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SHLIBDEPS OFF)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "What it takes to build programs on the library: headers, the
static library, and the files for CMake and pkg-config.")
include(CPack)
