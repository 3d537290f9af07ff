#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-asan no-tsan
# The ways in which a file of sentence pairs can be written: those that mean the same train the same model,
# those that cannot be right are refused with the line, and nothing is left behind.
. tests/support/cli.sh

head -n 300 "$root/data/phrasebook.tsv" > plain.tsv
cr=$(printf '\r')
sed "s/\$/$cr/" plain.tsv > crlf.tsv
{ printf '\357\273\277'; cat plain.tsv; } > mark.tsv
sed 's/$/	CC-BY 2.0 (France)	more/' plain.tsv > columns.tsv
sed G plain.tsv > gaps.tsv
printf '%s' "$(cat plain.tsv)" > open.tsv
gzip -c plain.tsv > packed.tsv.gz

small="--num-hiddens 16 --ffn-num-hiddens 16 --num-blks 1 --num-heads 2 --epochs 1 --quiet"
for file in plain.tsv crlf.tsv mark.tsv columns.tsv gaps.tsv open.tsv packed.tsv.gz; do
    # shellcheck disable=SC2086
    "$attn" train translate --data "$file" --out "m-$file" $small > /dev/null 2> err.txt ||
        fail "$file: $(head -c 200 err.txt)"
    for part in source.vocab target.vocab model.safetensors; do
        cmp -s "m-plain.tsv/$part" "m-$file/$part" || fail "$file gives another $part than plain.tsv"
    done
done

pair='go .	va !'
refuse() { # refuse NAME PATTERN: what is in NAME.tsv, none of which is left out
    rm -rf new
    expect 2 "$1.tsv:$2" "$attn" train translate --strict --data "$1.tsv" --out new
    [ ! -e new ] || fail "$1: a directory was left behind"
}
printf '%s\nlong\300\200\tx\n' "$pair" > overlong.tsv
printf '%s\nx\tlone\355\240\200\n' "$pair" > surrogate.tsv
printf '%s\nx\tcut\303\n' "$pair" > cut.tsv
printf '%s\nx\ta\000b\n' "$pair" > zero.tsv
printf '\n\n\n' > blank.tsv
printf '%s\n\tva\n' "$pair" > nosource.tsv
printf '%s\ngo\t\n' "$pair" > notarget.tsv
printf '%s\nword word\n' "$pair" > notab.tsv
gzip -c plain.tsv | head -c 900 > short.tsv
refuse overlong '2: invalid UTF-8 at byte 4'
refuse surrogate '2: invalid UTF-8 at byte 6'
refuse cut '2: invalid UTF-8 at byte 5'
refuse zero '2: '
refuse blank ' there are no sentence pairs'
refuse nosource '2: the sentence before the tab is missing'
refuse notarget '2: the sentence after the tab is missing'
refuse notab '2: expected a tab'
refuse short '.*cut off'
: | gzip -c > nothing.tsv
refuse nothing ' there are no sentence pairs'

# The least that can be trained on: one pair; only unknown words.
printf 'Go.\tVa !\n' > one.tsv
for extra in "--min-frequency 1" "--min-frequency 1000"; do
    rm -rf least
    # shellcheck disable=SC2086
    expect 0 'translator is in' "$attn" train translate --data one.tsv --out least $small $extra
    expect 0 '' "$attn" translate least 'Go.' -q
    expect 0 '"sentences": 1' "$attn" eval least --part all --json
done
exit $failed
