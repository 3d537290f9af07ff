#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-asan no-tsan
# attn translate in a pipe: a line is answered before the next is written, an empty one by an empty one; the locale
# changes nothing; what cannot be written is an error.
. tests/support/cli.sh

# shellcheck disable=SC2086
"$attn" train translate $tiny --out model --epochs 1 --quiet > /dev/null 2>&1 || fail "the tiny training failed"

mkfifo to from
"$attn" translate model --quiet < to > from 2> talk.txt &
pid=$!
exec 3> to 4< from
# A translator that waited for the end of its input would make these reads wait for ever. The sleep outlives this script if
# all is well, so it must not hold the output that ctest reads to its end.
( exec 3>&- 4<&- > /dev/null 2>&1; sleep 10; kill $pid 2> /dev/null ) &
watch=$!
for line in 'Is the door open?' '' 'The station is here.'; do
    echo "$line" >&3
    if IFS= read -r answer <&4; then
        same "the translation of '$line'" "$("$attn" translate model -q "$line")" "$answer"
    else
        fail "no answer to '$line' before the end of the input: $(cat talk.txt)"
    fi
done
exec 3>&-
wait $pid || fail "the translator in the pipe ended with $?"
exec 4<&-
kill $watch 2> /dev/null
wait $watch 2> /dev/null

# One by one, as lines, as arguments: the same translations, whichever are looked at side by side.
head -n 60 "$root/data/phrasebook.tsv" | cut -f 1 > english.txt
for beam in 1 3; do
    "$attn" translate model -q --beam $beam < english.txt > lines.txt
    same "lines out of 60" 60 "$(wc -l < lines.txt)"
    sed -n 7p english.txt > alone.txt
    same "line 7 alone, beam $beam" "$(sed -n 7p lines.txt)" "$("$attn" translate model -q --beam $beam < alone.txt)"
    set --
    while IFS= read -r line; do set -- "$@" "$line"; done < english.txt
    "$attn" translate model -q --beam $beam -- "$@" | cmp -s - lines.txt || fail "arguments and lines differ, beam $beam"
done

# Carriage returns, blanks, no newline at the end.
printf 'Is the door open?\r\n\r\n \t \nThe station is here.' | "$attn" translate model -q > odd.txt
same "lines out of 4" 4 "$(wc -l < odd.txt)"
same "an empty line with a carriage return" '' "$(sed -n 2p odd.txt)"
same "a line of blanks" '' "$(sed -n 3p odd.txt)"
same "a line that ends with a carriage return" "$("$attn" translate model -q 'Is the door open?')" "$(sed -n 1p odd.txt)"
: | "$attn" translate model > none.txt || fail "no input: $?"
[ ! -s none.txt ] || fail "no input, yet an answer"

for locale in C C.UTF-8 xx_XX; do
    LC_ALL=$locale LANG=$locale "$attn" translate model -q < english.txt > local.txt || fail "LC_ALL=$locale: $?"
    "$attn" translate model -q < english.txt | cmp -s - local.txt || fail "LC_ALL=$locale changes the translations"
done

if [ -c /dev/full ]; then
    for command in "translate model hello" "info model --json" "eval model --part valid" "list" "--help" "version"; do
        # shellcheck disable=SC2086
        "$attn" $command > /dev/full 2> err.txt
        same "attn $command on a full disk" 2 $?
        grep -q '^attn: standard output: ' err.txt || fail "attn $command on a full disk: $(head -c 200 err.txt)"
    done
fi

# A reader that leaves ends the writer, without a word.
yes 'Is the door open?' | head -n 2000 | { "$attn" translate model 2> gone.txt; echo $? > code.txt; } | head -n 1 > first.txt
same "lines read" 1 "$(wc -l < first.txt)"
same "exit code when the reader has left (128 + SIGPIPE)" 141 "$(cat code.txt)"
[ ! -s gone.txt ] || fail "when the reader has left: $(head -c 200 gone.txt)"
exit $failed
