# SPDX-License-Identifier: MIT
# The tests: which of them this build has, and where they run.
enable_testing()
# labels_of(OUT FILE): the labels of the test in FILE, from a line "labels: ..." in its first comment. A test without a
# label runs everywhere. no-isa: not with further instruction sets; no-asan, no-tsan: not under these sanitizers; amx: with
# AMX in memory although not with further sets.
function(labels_of out file)
  file(STRINGS ${file} line LIMIT_COUNT 1 REGEX "^(#| \\*) labels: ")
  string(REGEX REPLACE "^.*labels: +| *\\*/" "" labels "${line}")
  separate_arguments(labels)
  foreach(label ${labels})
    if(NOT label MATCHES "^(no-isa|no-asan|no-tsan|amx)$")
      message(FATAL_ERROR "${file} has the unknown label ${label}")
    endif()
  endforeach()
  set(${out} "${labels}" PARENT_SCOPE)
endfunction()
# wanted(OUT NAME LABEL...): whether the test NAME with these labels is one of those that are built.
function(wanted out name)
  set(${out} TRUE PARENT_SCOPE)
  if((ATTN_TESTS AND NOT name MATCHES "${ATTN_TESTS}") OR (ATTN_SANITIZE MATCHES address AND "no-asan" IN_LIST ARGN) OR
     (ATTN_SANITIZE MATCHES thread AND "no-tsan" IN_LIST ARGN))
    set(${out} FALSE PARENT_SCOPE)
  endif()
endfunction()
# gcc 12 for arm64 ends with an internal error where it vectorizes a maximum over a loop (vect_transform_reduction).
if(CMAKE_C_COMPILER_ID STREQUAL GNU AND CMAKE_C_COMPILER_VERSION VERSION_LESS 13 AND CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  add_compile_options(-fno-tree-loop-vectorize)
endif()
add_subdirectory(tests)
add_subdirectory(examples)
