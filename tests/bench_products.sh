#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-asan no-tsan
# attn bench products, attn bench --sets: every instruction set and kind of numbers is measured and right, alarms and
# wrong words are told, JSON has its keys.  Speeds are only checked to exceed a tolerance of 0.
set -eu
attn=${ATTN_BUILD:-build}/attn
out=$(mktemp)
trap 'rm -f "$out"' EXIT
fail() { echo "$1:"; cat "$out"; exit 1; }
sets=$(env -u ATTN_ISA "$attn" version | sed -n 's/.*machine has: \(.*\))/\1/p' | tr -d , | sed 's/ scalar$//')
count=$(echo "$sets" | wc -w)

# Two types of a product, three of one by weights of a linear layer, with any strides and sizes.
run() { env -u ATTN_ISA "$attn" bench "$@" --quiet --seconds 0; }
run products --threads 1,2 --tolerance 1000 7,9,33 16,40,24t 16,40,24p 24,8,130a 1,1,1 1,1,1p >"$out" || fail "small products"
[ "$(grep -cE ' (f32|bf16|int8) +[12] ' "$out")" = 30 ] || fail "30 rows were expected"
for set in $sets; do
    head -1 "$out" | grep -q " $set  part below" || fail "$set is missing from the table"
done
grep -q scalar "$out" && [ "$sets" != scalar ] && fail "plain C is not compared"
ATTN_ISA=scalar "$attn" bench products --quiet --seconds 0 --threads 1 --tolerance 1000 3,4,5t >"$out" || fail "plain C alone"
head -1 "$out" | grep -q 'thr      scalar  part below  numbers$' || fail "ATTN_ISA is the first set"
run products --threads 1 --tolerance 1000 --precision fma 3,4,5t >"$out" || fail "one precision"
[ "$(tail -n +2 "$out" | grep -c ' fma ')" = 1 ] || fail "one row in fma was expected"

run products --threads 1 --tolerance 1000 --json 16,40,24t >"$out" || fail "JSON"
for key in part name type threads numbers isa ms gflops peak_gflops fraction error; do
    [ "$(grep -c "\"$key\": " "$out")" = $((3 * 5 * count)) ] || fail "$key of 3 types and 5 kinds of numbers on $count sets"
done
for numbers in normal "ReLU'd" 'masked and dropped' lognormal one-hot; do
    grep -q "\"numbers\": \"$numbers\"" "$out" || fail "$numbers is missing"
done
awk '/"error": / { if ($2 + 0 > 1) exit 1; if ($2 + 0 > most) most = $2 + 0 } END { exit !(most > 0) }' "$out" || fail "errors"

# An alarm: the table is whole, and each is told.
code=0
run products --threads 1 --tolerance 0.01 16,40,24t >"$out" 2>&1 || code=$?
[ "$code" = 1 ] || fail "exit code $code of alarms, not 1"
[ "$(grep -c ' SLOW$' "$out")" = 3 ] || fail "three slow rows were expected"
[ "$(grep -c 'where numbers are "' "$out")" = $((3 * count)) ] || fail "alarms of numbers"
[ "$(grep -cE 'takes [0-9.e-]+ times as long as ' "$out")" = $((3 * (count - 1))) ] || fail "alarms of sets"
grep -q "^attn: $((3 * count + 3 * (count - 1))) alarms in 3 rows" "$out" || fail "the sum"

refused() {
    said=$1 code=0
    shift
    "$attn" bench "$@" >"$out" 2>&1 || code=$?
    [ "$code" = 2 ] || fail "$*: exit code $code, not 2"
    grep -qF -e "$said" "$out" || fail "$*"
    [ "$(grep -c "^attn: " "$out")" = 1 ] || fail "$*: not one line of error"
}
for shape in 3,4 3,4, 3,4,5,6 3,4,5x 3,4,5tt 0,4,5 3,-4,5 3,4,1048577 3,4,99999999999999999999 ,3,4 '' ' 3,4,5'; do
    refused "\"$shape\" is not a product" products 3,4,5 "$shape"
done
refused 'nothing was measured: none of the chosen problems supports int8' products --precision int8 --seconds 0 3,4,5
refused '--threads' products --threads 0 3,4,5
refused '--tolerance cannot be -1' products --tolerance -1 3,4,5
refused 'no option --measure' products --measure 3,4,5
refused '"speed" is not one of products' --sets vit speed
refused 'attn bench products' vit

# Every part of the comparison of sets, in both passes and types; on one set, as that is the quickest.
ATTN_ISA=${sets##* } "$attn" bench --sets --quick --quiet --seconds 0 --threads 1 --tolerance 1e6 attention subnormal training vit >"$out" ||
    fail "the sets"
for row in 'b1h8q256k256d64 forward +f32' 'b1h4q128k128d64:bf16 backward +bf16' 'b64h3q49k49d32:bias backward +f32' \
    'b1h8q512k512d64 forward +f32' "d2l's Transformer, a step +f32" 'Transformer of 512, a step +f32' "d2l's ViT, a step +f32" \
    'ViT-B/16, .* +f32' 'ViT-B/16, .* +bf16'; do
    [ "$(grep -cE "^$row +1 " "$out")" = 1 ] || fail "one row of $row was expected"
done
