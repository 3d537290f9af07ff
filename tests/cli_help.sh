#!/bin/sh
# SPDX-License-Identifier: MIT
# Help, the man page and completion of the command, all made from its tables.
. tests/support/cli.sh

expect 0 'attn demo' "$attn"
expect 0 'Exit status' "$attn" --help
expect 0 'instruction set' "$attn" --version
same "commands in the overview" 24 "$("$attn" | sed -n '/^Commands/,/^$/p' | grep -c '^  [a-z]')"

for command in demo "train translate" translate eval show info list run version help; do
    # shellcheck disable=SC2086
    expect 0 "^attn $command - " "$attn" $command --help
    for part in Usage: 'Common options:' Examples: 'Exit status:'; do
        grep -q "^$part" out.txt || fail "$command --help lacks $part"
    done
    same "$command --help: lines over 100 columns" 0 "$(grep -cE '^.{101}' out.txt)"
    cp out.txt by-option.txt
    # shellcheck disable=SC2086
    expect 0 . "$attn" help $command
    cmp -s out.txt by-option.txt || fail "help $command is not what $command --help says"
done

# A setting of the library is an option with its range, default and meaning.
"$attn" train translate --help > out.txt
grep -q -e '--num-hiddens N .*width of the model' out.txt || fail "settings are missing from the help"
grep -q -e '--model transformer|bahdanau' out.txt || fail "choices are missing from the help"

"$attn" help --man > attn.1 || fail "no man page"
grep -q '^\.TH ATTN 1' attn.1 || fail "the man page lacks its title"
grep -q 'length\\-penalty' attn.1 || fail "the man page lacks an option"
if command -v groff > /dev/null; then
    same "groff's warnings" "" "$(groff -man -ww -Tutf8 attn.1 2>&1 > /dev/null)"
fi

"$attn" help --completion bash > attn.bash && "$attn" help --completion zsh > attn.zsh &&
    "$attn" help --completion fish > attn.fish || fail "no completion"
grep -q 'not __fish_seen_subcommand_from train.* -l beam ' attn.fish || fail "fish does not know --beam"
if command -v bash > /dev/null; then
    cat > complete.bash << 'END'
. ./attn.bash
complete_words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _attn; echo "${COMPREPLY[*]}"; }
complete_words attn tran
complete_words attn train tr
complete_words attn translate dir --len
complete_words attn train translate --model b
END
    same "bash completes" "translate|translate|--length-penalty|bahdanau|" "$(bash complete.bash | tr '\n' '|')"
fi
exit $failed
