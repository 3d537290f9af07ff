#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# Training a translator as Marian does: batches by tokens, averaged epochs, filters, validation by BLEU and chrF; and
# fine-tuning one, with old data mixed in, to the same bits whether it was stopped or not.
. tests/support/cli.sh

# Pairs of a language of few words; every fifth is a question.
pairs() {
    awk -v seed="$1" -v n="$2" -v asks="$3" 'BEGIN {
        srand(seed); split("red blue green old new big", e, " "); split("rouge bleu vert vieux neuf grand", f, " ")
        split("car dog house tree", g, " "); split("char chien toit arbre", h, " ")
        for (i = 0; i < n; i++) {
            a = 1 + int(rand() * 6); b = 1 + int(rand() * 4); c = 1 + int(rand() * 6)
            if (asks) printf "Is the %s %s %s?\tLe %s %s est-il %s ?\n", e[c], g[b], e[a], h[b], f[c], f[a]
            else printf "The %s %s is %s.\tLe %s %s est %s.\n", e[c], g[b], e[a], h[b], f[c], f[a]
        }
        print "The car is red.\tNon."
    }'
}
pairs 1 400 0 > told.tsv
printf 'Yes.\tLe char et le chien et le toit et le grand arbre et encore un chien.\n' >> told.tsv
pairs 2 80 1 > asked.tsv
small="--num-hiddens 32 --ffn-num-hiddens 32 --num-heads 2 --num-blks 1 --threads 1 --quiet"

# ---- filters are counted; the average of epochs is neither of them; a warm-up that is too long is shortened, with a
# note
# shellcheck disable=SC2086
"$attn" train translate --data told.tsv --out base $small --batch-tokens 300 --epochs 3 --average 2 --max-ratio 5 --unique \
    --valid-sentences 10 --valid 0.2 --json > said.txt || fail "training fails"
grep -q '"left_out_unlike": 1' said.txt || fail "pairs unlike in length are not counted: $(cat said.txt)"
grep -q '"left_out_duplicates": [1-9]' said.txt || fail "duplicates are not counted"
grep -q '"valid_chrf": [0-9]' said.txt || fail "no chrF in validation"
head -1 base/history.tsv | grep -q 'valid_bleu	valid_chrf' || fail "history.tsv lacks BLEU and chrF"
warmup=$(sed -n 's/.*"warmup": *\([0-9]*\).*/\1/p' base/training.json)
[ "$warmup" -gt 0 ] && [ "$warmup" -lt 100 ] || fail "the warm-up is $warmup steps"
# shellcheck disable=SC2086
"$attn" train translate --data told.tsv --out plain $small --batch-tokens 300 --epochs 3 --max-ratio 5 --unique --valid 0.2 > out.txt
"$attn" diff base plain > differences && fail "an average of epochs is the last of them"
# before there are as many epochs as are averaged, the average is that of those that there are
for n in 1 5; do # shellcheck disable=SC2086
    "$attn" train translate --data told.tsv --out "of$n" $small --batch-tokens 300 --epochs 1 --average $n --valid 0.2 \
        --valid-sentences 1000 > out.txt
done
cmp -s of1/model.safetensors of5/model.safetensors || fail "the average of one epoch of five is not that epoch"
# the scores of validation are those of eval
same_scores of1 3,5,6 'loss\|bleu\|chrf'
expect 0 'nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no' "$attn" eval base
grep -q 'BLEU .*corpus' out.txt || fail "eval prints no BLEU"
# A sentence of several pairs is translated once, whatever is between them.
printf 'The car is red.\tA.\nThe dog is old.\tB.\nThe car is red.\tC.\nThe car is red.\tD.\n' > several.tsv
expect 0 '"sentences": 4' "$attn" eval base --data several.tsv --part all --json
expect 0 'all, 2 sentences with 4 references' "$attn" eval base --data several.tsv --part all --all-references --samples 1
grep -q 'nrefs:var|case:mixed|eff:no' out.txt || fail "the signature does not say that references vary"
grep -qi '^reference  a *\.$' out.txt || fail "samples are not those of the first pairs: $(cat out.txt)"

# ---- fine-tuning: the same bits whether stopped or not, without the checkpoint that it began with
tune="--from base --mix told.tsv=0.5 --rate 0.002 --warmup 4 --freeze encoder\..* --rates decoder\.dense\..*=0.5
      --batch-tokens 200 --accumulate 2 --average 2 --best-by chrf --valid 0.2 --threads 1 --quiet"
# shellcheck disable=SC2086
"$attn" train translate --data asked.tsv --out tuned --epochs 3 $tune --json > said.txt || fail "fine-tuning fails"
own=$(sed -n 's/.*"train_pairs": \([0-9]*\).*/\1/p' said.txt)
mixed=$(sed -n 's/.*"mixed_pairs": \([0-9]*\).*/\1/p' said.txt)
same "pairs that are mixed in" "$own" $((2 * mixed))
for key in num_hiddens ffn_num_hiddens num_heads num_blks; do
    same "$key of a fine-tuning" "$(grep "\"$key\"" base/training.json)" "$(grep "\"$key\"" tuned/training.json)"
done
grep -q '^decoder.dense.weight	.*	taken' tuned/fine-tuning.tsv || fail "fine-tuning.tsv does not say what was taken"
# shellcheck disable=SC2086
"$attn" train translate --data asked.tsv --out again --epochs 1 $tune > out.txt
mv base elsewhere
"$attn" train translate --out again --resume --epochs 3 --threads 1 --quiet > out.txt || fail "fine-tuning does not go on"
mv elsewhere base
for file in model.safetensors checkpoint.safetensors history.tsv config.json source.vocab; do
    cmp -s "tuned/$file" "again/$file" || fail "a resumed fine-tuning ends in another $file"
done
"$attn" diff base tuned > differences
grep -q '^  decoder.dense.weight' differences || fail "fine-tuning changed nothing: $(cat differences)"
grep -q '^  encoder' differences && fail "what is frozen has changed: $(cat differences)"

# ---- low-rank adapters of a translator: resumed to the same bits, used by translate, merged by convert
adapt="--from base --warmup 4 --rate 0.003 --threads 1 --quiet --lora 2 --lora-on .*\.W_[qv]"
# shellcheck disable=SC2086
"$attn" train translate --data asked.tsv --out lora --epochs 2 $adapt > out.txt || fail "train translate --lora fails"
[ ! -e lora/model.safetensors ] || fail "a translator's adapters come with the whole model"
"$attn" diff lora/base.safetensors lora > differences && fail "the translator's adapters change nothing"
grep relative differences | grep -q -v '\.W_[qv]\.weight' && fail "more than the adapters' layers changed: $(cat differences)"
# shellcheck disable=SC2086
"$attn" train translate --data asked.tsv --out lora2 --epochs 1 $adapt > out.txt
"$attn" train translate --out lora2 --resume --epochs 2 --threads 1 --quiet > out.txt || fail "adapters do not go on"
cmp -s lora/adapter_model.safetensors lora2/adapter_model.safetensors || fail "a translator's adapters, resumed, end elsewhere"
"$attn" convert lora -o merged --quiet > out.txt || fail "convert does not merge a translator's adapters"
same "translations of adapter and merged" "$("$attn" translate lora "Is it open?")" "$("$attn" translate merged "Is it open?")"
expect 0 'adapted.png' "$attn" show lora "Is it open?" -o adapted.png

# ---- what is refused, in words
expect 2 'mix: "told.tsv" is not FILE=SHARE' "$attn" train translate --data asked.tsv --out bad --mix told.tsv
expect 2 'comes with its vocabularies (word)' "$attn" train translate --data asked.tsv --out bad --from base --vocabulary bpe
expect 2 'the setting "model" is given, but base is a transformer' "$attn" train translate --data asked.tsv --out bad --from base --model bahdanau
expect 2 'the setting "vocabulary_size" is given, but base comes with its vocabularies' "$attn" train translate --data asked.tsv --out bad --from base \
    --vocabulary-size 333
expect 2 'the setting "space_before_marks" is given, but base has another value' "$attn" train translate --data asked.tsv --out bad --from base \
    --space-before-marks=false
expect 2 'nowhere/config.json' "$attn" train translate --data asked.tsv --out bad --from nowhere
expect 2 'filter: the ratio is 0.5' "$attn" train translate --data asked.tsv --out bad --max-ratio 0.5
expect 2 'no sentence is left to evaluate' "$attn" train translate --data asked.tsv --out bad --best-by bleu --valid-sentences 0
expect 2 'momentum has an effect only if optimizer is sgd' "$attn" train translate --data asked.tsv --out bad --momentum 0.5
expect 2 'rate_drop has an effect only if schedule is step' "$attn" train translate --data asked.tsv --out bad --rate-drop 3
expect 2 'num_layers has an effect only if model is bahdanau' "$attn" train translate --data asked.tsv --out bad --num-layers 3
expect 2 'character_coverage has an effect only if vocabulary is unigram or bpe, but vocabulary is word' \
    "$attn" train translate --data asked.tsv --out bad --character-coverage 0.99 # few pairs: a vocabulary of words
[ -e bad ] && fail "what was refused left a directory"
exit $failed
