# SPDX-License-Identifier: MIT
# The man pages and the shells' completions, asked of the command itself, under DIR as they are installed under share/:
# cmake -DATTN=build/attn -DDIR=build/share -P cmake/manuals.cmake
function(ask file) # the command's answer to the further words becomes FILE
  execute_process(COMMAND ${ATTN} help ${ARGN} OUTPUT_FILE ${DIR}/${file} RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "attn help ${ARGN} ended with ${code}")
  endif()
endfunction()

file(REMOVE_RECURSE ${DIR})
file(MAKE_DIRECTORY ${DIR}/man/man1 ${DIR}/bash-completion/completions ${DIR}/zsh/site-functions
     ${DIR}/fish/vendor_completions.d)
ask(bash-completion/completions/attn --completion bash)
ask(zsh/site-functions/_attn --completion zsh)
ask(fish/vendor_completions.d/attn.fish --completion fish)
ask(man/man1/attn.1 --man)
execute_process(COMMAND ${ATTN} help --names OUTPUT_VARIABLE names OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REPLACE "\n" ";" names "${names}")
foreach(name IN LISTS names)
  string(REPLACE " " ";" words "${name}")
  string(REPLACE " " "-" page "${name}")
  ask(man/man1/attn-${page}.1 --man ${words})
endforeach()
