# SPDX-License-Identifier: MIT
# What a Python wheel has beside python/attn (pyproject.toml): the shared library without the links of versions, which a wheel
# cannot hold, the command, its man pages and completions, and the licences of what is linked in.
set(ATTN_NOTICES "" CACHE PATH "Folder of the licences of the libraries that are linked in statically")
set(notices ${PROJECT_BINARY_DIR}/notices ${ATTN_NOTICES})
if(ATTN_PREBUILT)
  set(notices ${ATTN_PREBUILT}/notices ${ATTN_NOTICES})
  foreach(target attn_shared attn attn_manuals) # pyproject.toml builds them
    add_custom_target(${target})
  endforeach()
  set(ATTN_SHARE ${ATTN_PREBUILT}/share)
  file(REAL_PATH ${ATTN_PREBUILT}/libattn${CMAKE_SHARED_LIBRARY_SUFFIX} library)
  install(FILES ${library} DESTINATION . RENAME libattn${CMAKE_SHARED_LIBRARY_SUFFIX} COMPONENT python)
  install(PROGRAMS ${ATTN_PREBUILT}/attn DESTINATION bin COMPONENT python)
else()
  set_target_properties(attn_shared PROPERTIES VERSION "" SOVERSION "" NO_SONAME TRUE)
  install(TARGETS attn_shared LIBRARY DESTINATION . COMPONENT python)
  install(TARGETS attn RUNTIME DESTINATION bin COMPONENT python)
endif()
if(TARGET attn_manuals AND (NOT ATTN_PREBUILT OR EXISTS ${ATTN_SHARE})) # not where the command was built for another machine
  install(DIRECTORY ${ATTN_SHARE}/ DESTINATION ${SKBUILD_DATA_DIR}/share COMPONENT python)
endif()
foreach(folder ${notices})
  if(EXISTS ${folder}) # a build that contains no code of others has none
    install(DIRECTORY ${folder}/ DESTINATION ${SKBUILD_METADATA_DIR}/licenses COMPONENT python)
  endif()
endforeach()
