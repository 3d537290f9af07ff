#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# Help, the man page and completion of the command, all made from its tables.
. tests/support/cli.sh

expect 0 'attn demo' "$attn"
expect 0 'Exit status' "$attn" --help
expect 0 'instruction set' "$attn" --version
same "commands in the overview" "$("$attn" help --names | wc -l)" "$("$attn" | sed -n '/^Commands/,/^$/p' | grep -c '^  [a-z]')"
same "groups in the overview" 6 "$("$attn" | sed -n '/^Commands/,/^$/p' | grep -c '^ [a-z][a-z ]*:$')"

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
for command in "train images" "train msa"; do
    # shellcheck disable=SC2086
    "$attn" $command --help | tr -s ' \n' ' ' > out.txt
    grep -q -e '--label-smoothing X share of each label spread over all [a-z]* (0 to 0.9; default 0)' out.txt ||
        fail "$command --help: the default of --label-smoothing"
done
expect 2 'threads cannot be 1025' "$attn" version --threads 1025

# How the program was built: the compiler's own version, each library that the linker names, kernels for what the machine has.
expect 0 '^attn [0-9]' "$attn" version --build
cp out.txt build.txt
compiler=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$ATTN_BUILD/CMakeCache.txt")
"$compiler" --version | grep -qF -e "$(sed -n 's/^compiler .* //p' build.txt)" || fail "version --build: $(grep ^compiler build.txt)"
grep -q "^build [A-Za-z][A-Za-z]* (.*-ffp-contract=off" build.txt || fail "version --build: $(grep '^build' build.txt)"
for both in libz:zlib libjansson:jansson libpng16:libpng libjpeg:libjpeg libcairo:cairo libfontconfig:fontconfig \
    libwebp:libwebp libwebpmux:libwebpmux libyaml-0:libyaml libutf8proc:utf8proc libsentencepiece:sentencepiece; do
    ! readelf -d "$attn" 2> err.txt | grep -q "NEEDED.*\[${both%:*}\." || grep -qE "^libraries .*${both#*:} [0-9]" build.txt ||
        fail "version --build lacks ${both#*:}"
done
for isa in $(sed -n 's/.*machine has: \(.*\))/\1/p' build.txt | tr -d ,); do
    grep -qE "^kernels for .*\<$isa\>" build.txt || fail "version --build: no kernels for $isa"
done
"$attn" version --build --json > build.json || fail "version --build --json"
for name in compiler type flags settings libraries isas zlib; do
    grep -q "\"$name\": [\"{\[]" build.json || fail "version --build --json lacks $name"
done

# Names are separated from their descriptions, and a shell can read the examples.
"$attn" --help | sed -n '/^Environment/,$p' > out.txt
same "names that touch their meaning" 0 "$(grep -cE '^  [A-Z_]+[^A-Z_ ]' out.txt)"
"$attn" help --names | while read -r command; do
    # shellcheck disable=SC2086
    "$attn" $command --help | sed '1,/^Examples:/d; /^Exit status:/,$d' | sh -n 2> err.txt || echo "$command: $(cat err.txt)"
done > unread.txt
same "examples that a shell cannot read" "" "$(cat unread.txt)"

# One page of the manual for attn and one a command; groff and mandoc find nothing to complain of.
"$attn" help --names > names.txt
commands=$(wc -l < names.txt)
same "names" "$("$attn" | sed -n '/^Commands/,/^$/p' | grep -c '^  [a-z]')" "$commands"
"$attn" help --man > attn.1 || fail "no man page"
while read -r name; do
    # shellcheck disable=SC2086
    "$attn" help --man $name > "attn-$(echo "$name" | tr ' ' -).1" || fail "no man page of $name"
done < names.txt
expect 2 'first word of a command; the commands are: attn train translate' "$attn" help --man train
grep -q '^\.TH ATTN 1' attn.1 || fail "the man page lacks its title"
for part in '.SH DESCRIPTION' '.SH OPTIONS' '.SH COMMON OPTIONS' '.SH EXAMPLES' '.SH EXIT STATUS'; do
    grep -q "^$part" attn-translate.1 || fail "attn-translate.1 lacks $part"
done
grep -q 'length\\-penalty' attn-translate.1 || fail "the man page lacks an option"
same "pages that the overview refers to" "$commands" "$(grep -c '^\.BR attn.* (1)' attn.1)"
if command -v groff > /dev/null; then
    same "groff's warnings" "" "$(groff -man -ww -Tutf8 attn*.1 2>&1 > /dev/null)"
fi
if command -v mandoc > /dev/null; then # an empty date is meant: two builds give the same bytes
    same "mandoc's warnings" "" "$(mandoc -T lint -W warning attn*.1 | grep -v 'missing date')"
fi
for page in attn.1 attn-translate.1; do # man formats by groff, too
    if man --version > /dev/null 2>&1; then
        LC_ALL=C.UTF-8 man --warnings -E UTF-8 -l "$page" > "$page.txt" 2> err.txt || fail "man -l $page: $(cat err.txt)"
        grep -q '^NAME' "$page.txt" || fail "man -l $page shows no page"
        same "man's warnings of $page" "" "$(cat err.txt)"
    fi
done

# Each shell completes commands, options, the values of those that have a list, architectures.
for shell in bash zsh fish; do
    "$attn" help --completion $shell > attn.$shell || fail "no completion for $shell"
done
cat > lines.txt << 'END'
attn transl
attn train tr
attn translate dir --len
attn train translate --model b
attn train translate --model=b
attn run --arch self
attn list self
attn help conv
attn contacts x.a3m --sel
attn demo d
END
expected='translate|translate|--length-penalty|bahdanau|bahdanau|self-attention|self-attention|convert|--select|detect|'
if command -v bash > /dev/null; then
    cat > complete.bash << 'END'
set -u
. ./attn.bash
complete -p attn > /dev/null || exit 1 # the shell took it
while read -r line; do # readline parts words at = too
    read -ra COMP_WORDS <<< "${line//=/ = }"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _attn
    echo "${COMPREPLY[*]}"
done < lines.txt
END
    same "bash completes" "$expected" "$(bash complete.bash | tr '\n' '|')"
fi
if command -v fish > /dev/null; then
    fish --no-execute attn.fish || fail "fish does not read its completion"
    while read -r line; do # what it offers for --model=b is the whole word
        HOME=$work fish --no-config -c "source attn.fish; complete -C '$line'" | cut -f1 | sed 's/.*=//' | head -1
    done < lines.txt > fish.txt
    same "fish completes" "$expected" "$(tr '\n' '|' < fish.txt)"
fi
if command -v zsh > /dev/null; then
    zsh -n attn.zsh || fail "zsh does not read its completion"
    # Without a terminal: what _attn hands to zsh's own completers, which do the rest.
    cat > complete.zsh << 'END'
_describe() { print -r -- "${(P@)4}" }
_arguments() { print -r -- "$words[CURRENT] of $words[1]: $*" }
while read -r line; do
    words=(${=line}) CURRENT=${#words}
    source ./attn.zsh
done < lines.txt
END
    zsh complete.zsh > zsh.txt 2>&1
    same "what zsh describes" 10 "$(wc -l < zsh.txt)"
    sed -n 1p zsh.txt | grep -q 'translate:translate sentences' || fail "zsh does not know the commands: $(head -c 300 zsh.txt)"
    sed -n 2p zsh.txt | grep -q '^translate:train a translator' || fail "zsh does not know what can be trained"
    sed -n 4p zsh.txt | grep -q -e '--model=\[.*\]:model:(transformer bahdanau)' || fail "zsh does not know --model"
    sed -n 7p zsh.txt | grep -q ':word:(.*self-attention' || fail "zsh does not know the architectures"
fi
exit $failed
