#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-asan no-tsan
# attn bench attend: every form and feature of the grammar agrees with the reference, errors say where, JSON has its
# keys.
set -eu
attn=${ATTN_BUILD:-build}/attn
out=$(mktemp)
trap 'rm -f "$out"' EXIT

"$attn" bench attend --quiet --verify --seconds 0 --threads 2 \
    b2h3q7k5d8 b1h4q9k9d16g2v5:causal,bhtd b2h2q6k11d8:causal-br,lens b1h2q13k13d4:band=-3..2 \
    b2h2q5k7d8:pad,fill=-1e6 \
    b2h2q5k7d8:mask,bias b1h2q5k7d8:biask,lensq b1h2q9k8d6:rel,dropout=0.25 b2h2q17k33d16:bf16 b1h1q3k4d5:f64,scale=0.5 \
    addb2h1q5k6d7:lens 'add b1h2q3k4d5' b1h2q5k6d4:concat,over-n b1h2q5k6d4:gaussian b1h2q5k6d4:boxcar,kernel-sum \
    b1h2q5k6d4:triangular,kernel-sum b1h1q5k6d4:constant b1h1q4k4d4:lse b1h1q4k0d4 \
    axis5x7c6h2 axis5x7c6h2:col,causal axis3x4x5c4h1:axis=1,first tied3x7h2d4b2:biask tied4x5h2d4:lens \
    b2h2q17k33d16:softcap=0.5,bias,causal,bf16 b1h2q21k9d8:softcap=2,bias \
    b2h2q17k33d16:sinks,dlse,causal-br b1h4q9k21d8g2:sinks,bf16 \
    b2h3q35k50d8:biasd b1h4q150d16g2:biasd,causal,bf16 axis6x7c6h2:biasd \
    b2h3q35k50d8:buckets=9 b1h4q150d16g2:buckets=32,causal,bf16 axis6x7c6h2:buckets=5 b1h2q9k12d8:buckets=3,f64 \
    window6x5w3h2d4:buckets=4 \
    b1h2q200k300d9:f64,causal b1h2q97k600d5v3:f64,lens b1h1q30k600d2:gaussian,causal b1h2q20k300d4:triangular,over-n,band=-30..5 \
    b2h2q40k70d8:blocks=16,bias b1h4q150k200d16g2:blocks=64,causal-br,bf16 axis40x3c6h2:col,blocks=7 \
    b4h2q9d8:packed=20 b3h4q9k12d8g2:packed=20,causal-br,bf16 \
    b130h1q3k3d4:bias b31h9q10k10d64:biasd b130h1q3k3d4:pad b1h1q1k8192d64:band=6000..7000 b2h1q9k20d4:lens,fill=-0.5 \
    window6x5w3h2d4 window7x6w3x5h1d4b2s2:zero,rel window8x9w3h2d4l2:shift,rel window6x6w3h1d2:causal >"$out"
grep -q WRONG "$out" && { cat "$out"; exit 1; }
[ "$(grep -cE 'forward|backward' "$out")" = 108 ] || { cat "$out"; echo "not every problem was measured"; exit 1; }

# what is wrong, and at which character
refused() {
    code=0
    "$attn" bench attend "$1" >"$out" 2>&1 || code=$?
    [ "$code" = 2 ] || { echo "$1: exit code $code, not 2"; exit 1; }
    grep -qF "$2" "$out" || { echo "$1: $(cat "$out")"; exit 1; }
}
refused b1h2 'character 5: q and its number are missing'
refused b1h2q3d4z5 'character 9: expected one of the letters bhqkdgv'
refused b1b2q3d4 'character 3: the letter b is given twice'
refused bq3d4 'character 2: expected a number'
refused b99999999999999999999q1d1 'character 2: the number is larger than 2^40'
refused b1q3d4:casual 'character 8: there is no feature "casual" for this form'
refused b1q3d4:row 'character 8: there is no feature "row" for this form'
refused b1q3d4:causal,causal 'character 15: causal is given twice'
refused b1q3d4:bias,biask 'character 13: biask and bias cannot be used together'
refused b1q3d4:bias,buckets=4 'character 13: buckets and bias cannot be used together'
refused b1q3d4:buckets 'and a value after buckets'
refused b1q3d4:buckets=0 'bias_index.rows is 0'
refused b1q3d4:dropout=1 'character 16: dropout is 1; it must be'
refused b1q3d4:dropout 'and a value after dropout'
refused b1q3d4:band=1-2 'character 14: expected a range such as -128..0'
refused b1q3d4:causal=1 'character 14: expected'
refused axis4c8h3 'heads 3 does not divide the 8 channels'
refused axis4x4c8h2:axis=2 'axis=2: there is no such axis; the axes are 0 to 1'
refused tied4h2d2 'and another length'
refused tied4x4x4h2d2 'character 8: this form has at most 2 lengths'
refused window4x4w3h1d3:rel 'even number of channels'
refused window4x4w9h1d2:shift 'need more than size = 4 positions'
refused b1h3q4k4d4g2 'kv_heads 2 does not divide heads 3'
refused b1h2q4d4:blocks=0 'blocks.queries is 0'
refused b1h2q4d4:blocks 'and a value after blocks'
refused b1q1099511627776k1099511627776d1:mask 'an array would have 1.20893e+24 elements; at most 2^60'
refused '' 'character 1: q and its number are missing'

"$attn" bench attend --quiet --json --seconds 0 --threads 1 --direction forward b1h2q8d8,bf16 >"$out"
for key in problem direction dtype threads ms gflops peak_gflops fraction workspace_bytes solver; do
    grep -q "\"$key\": " "$out" || { echo "$key is missing: $(cat "$out")"; exit 1; }
done
"$attn" bench attend --quiet --seconds 0 --threads 1 --solver reference b1h2q8d8 | grep -q reference
"$attn" bench attend --quiet --seconds 0 --threads 1 --explain b1h2q8d8 | grep -q reference
"$attn" bench attend --threads 0 b1h2q8d8 >"$out" 2>&1 && exit 1
grep -q -- '--threads' "$out"
"$attn" bench attend --solver none b1h2q8d8 >"$out" 2>&1 && exit 1
grep -q 'there is no solver "none"' "$out"

# what features cost: a column each, and the same in JSON
"$attn" bench attend --features --quiet --seconds 0 --threads 1 b2h2q8d8 >"$out"
grep -qE '^problem .* softcap .* packed .* bf16  solver$' "$out" && [ "$(grep -cE '^b2h2q8d8 +(forward|backward) ' "$out")" = 2 ] ||
    { cat "$out"; exit 1; }
"$attn" bench attend --features --quiet --json --seconds 0 --threads 1 --direction backward b2h2q8d8 >"$out"
for key in problem direction feature ms ratio limit solver; do
    grep -q "\"$key\": " "$out" || { echo "$key is missing: $(cat "$out")"; exit 1; }
done
grep -q '"feature": "dlse"' "$out" && ! grep -q '"feature": "lse"' "$out"
# A feature that the problem does not support has no figure. The milliseconds are those of the plain problem.
"$attn" bench attend --features --quiet --seconds 0 --threads 1 b2h2q8d8:softcap=30 >"$out"
awk '/^b2h2/ { n += $3 > 0 && $4 == "-" && $5 > 0 } END { exit n != 2 }' "$out" || { cat "$out"; exit 1; }
