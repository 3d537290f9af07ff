#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# Word alignments that a translator's attention learns from: attn align --alignments, train translate --guided-alignment.
. tests/support/cli.sh

# Pairs of a language of few words in another order, a tab, and their alignment.
awk 'BEGIN {
    srand(1); split("red blue green old new big", e, " "); split("rouge bleu vert vieux neuf grand", f, " ")
    split("car dog house tree cat road", g, " "); split("char chien toit arbre chat chemin", h, " ")
    for (i = 0; i < 600; i++) {
        a = 1 + int(rand() * 6); b = 1 + int(rand() * 6); c = 1 + int(rand() * 6); d = 1 + int(rand() * 6)
        printf "The %s %s sees the %s %s\tLe %s %s voit le %s %s\t0-0 2-1 1-2 3-3 4-4 6-5 5-6\n",
               e[c], g[b], e[a], g[d], h[b], f[c], h[d], f[a]
    }
}' > told
cut -f 1,2 told > told.tsv
cut -f 3 told > told.align
tr ' ' '\n' < told.align > told.words
small="--data told.tsv --num-hiddens 32 --batch 16 --valid 0.1 --threads 1 --quiet"

heads="--ffn-num-hiddens 32 --num-heads 2 --num-blks 1"

# agreeing DIR: of all words of forced translations, the percentage that attends most to the word it comes from
agreeing() {
    head -100 told > first
    cut -f 1,2 first | "$attn" translate "$1" --prefix --alignments > translated || fail "$1 does not translate"
    cut -f 3 first | paste translated - | awk -F '\t' '{
        n = split($NF, wanted, " "); m = split($(NF - 1), got, " "); split("", seen)
        for (i = 1; i <= m; i++) seen[got[i]] = 1
        for (i = 1; i <= n; i++) { all++; right += wanted[i] in seen }
    } END { printf "%d\n", 100 * right / all }'
}

# ---- attention follows what is given, which it does not by itself
# shellcheck disable=SC2086
"$attn" train translate $small $heads --out plain --epochs 6 > out.txt || fail "training fails"
# shellcheck disable=SC2086
"$attn" train translate $small $heads --out guided --epochs 6 --guided-alignment told.align --guided-alignment-weight 1 > out.txt ||
    fail "training with word alignments fails"
# shellcheck disable=SC2086
"$attn" train translate $small --out recurrent --epochs 12 --model bahdanau --embed-size 16 --guided-alignment told.align \
    --guided-alignment-weight 1 > out.txt || fail "a recurrent model does not learn with word alignments"
for model in plain guided recurrent; do
    agreeing "$model" > "$model.percent"
    echo "$model: $(cat "$model.percent") % of the words attend to the word that was given"
done
[ "$(cat guided.percent)" -ge 90 ] || fail "guided attention does not follow the alignments"
[ "$(cat recurrent.percent)" -ge 90 ] || fail "guided attention of a recurrent model does not follow the alignments"
[ "$(cat plain.percent)" -lt 60 ] || fail "attention follows the alignments without being told"
grep -q '"guided_alignment_weight": *1' guided/training.json || fail "training.json does not say the weight"

# ---- attn align finds the alignments of the data, and what it writes is read
expect 0 'learned.align: word alignments of 600 sentence pairs' "$attn" align plain --part all --iterations 20 --alignments learned.align
same "lines of alignments" 600 "$(wc -l < learned.align)"
right=$(tr ' ' '\n' < learned.align | paste - told.words | awk '$1 == $2 { n++ } END { printf "%d\n", 100 * n / NR }')
[ "$right" -ge 95 ] || fail "$right % of the words are aligned rightly"
expect 0 '"aligned_pairs": 600' "$attn" align plain --alignments again.align --lexicon again.s2t --json
[ -s again.s2t ] || fail "no lexicon beside the alignments"
expect 2 'the outputs both and both are the same file' "$attn" align plain --alignments both --lexicon both
expect 2 "--lexicon: the output must be a file, not standard output (-)" "$attn" align plain --lexicon -

# ---- a training that read few pairs does not bound a request for all pairs of other data
# shellcheck disable=SC2086
"$attn" train translate $small --out few --epochs 1 --max-examples 100 > out.txt || fail "training on few pairs fails"
expect 0 '"sentences": 600' "$attn" eval few --data told.tsv --part all --json
expect 0 'few.align: word alignments of 600 sentence pairs' "$attn" align few --part all --alignments few.align
same "lines of alignments" 600 "$(wc -l < few.align)"

# ---- a run that was stopped goes on to the same bits, and only with the same alignments
guide="--guided-alignment learned.align --save-every 10 --warmup 10 --schedule constant"
# shellcheck disable=SC2086
"$attn" train translate $small --out whole --epochs 2 $guide > out.txt || fail "training fails"
# shellcheck disable=SC2086
"$attn" train translate $small --out parts --epochs 1 $guide > out.txt
"$attn" train translate --out parts --resume --epochs 2 --threads 1 --quiet > out.txt || fail "a guided training does not go on"
for file in model.safetensors checkpoint.safetensors history.tsv; do
    cmp -s "whole/$file" "parts/$file" || fail "a resumed training ends in another $file"
done
cp learned.align kept
sed '1s/.*/0-0/' kept > learned.align
expect 2 "these are not the data that the training in parts began with" "$attn" train translate --out parts --resume --epochs 3 --quiet
rm learned.align
expect 2 'learned.align' "$attn" train translate --out parts --resume --epochs 3 --quiet

# ---- what is wrong is told
head -3 told.align > short.align
# shellcheck disable=SC2086
expect 2 'short.align: found 3 lines of word alignments for 600 sentence pairs; expected one line for each pair' \
    "$attn" train translate $small --out wrong --guided-alignment short.align
sed '7s/$/ 9-9/' told.align > far.align
# shellcheck disable=SC2086
expect 2 'far.align:7: "9-9" names a word that the source sentence does not have; the 7 words' "$attn" train translate $small --out wrong --guided-alignment far.align
# shellcheck disable=SC2086
expect 2 'guided_alignment_weight is given without' "$attn" train translate $small --out wrong --guided-alignment-weight 1
# shellcheck disable=SC2086
expect 2 'nowhere.align' "$attn" train translate $small --out wrong --guided-alignment nowhere.align
[ ! -e wrong ] || fail "a refused training leaves a directory"
expect 2 'align has nothing to write' "$attn" align plain
expect 2 'a directory that is missing\|No such file' "$attn" align plain --alignments nowhere/x.align
exit $failed
