# SPDX-License-Identifier: MIT
# Until an archive is published: ATTN_SOURCE in the environment is the folder of the sources
# (vcpkg passes it with --x-... or VCPKG_KEEP_ENV_VARS=ATTN_SOURCE).
if(NOT DEFINED ENV{ATTN_SOURCE})
  message(FATAL_ERROR "attn-engine: set ATTN_SOURCE to the folder of attn's sources, and VCPKG_KEEP_ENV_VARS=ATTN_SOURCE")
endif()
set(SOURCE_PATH "$ENV{ATTN_SOURCE}")
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}" OPTIONS -DATTN_ENGINE_ONLY=ON -DATTN_BUILD_TESTS=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME attn-engine CONFIG_PATH lib/cmake/attn-engine)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
