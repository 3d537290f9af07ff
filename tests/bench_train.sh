#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-asan no-tsan
# attn bench train: a step takes no memory after the first few, the loss falls, JSON has its keys.
set -eu
attn=${ATTN_BUILD:-build}/attn
out=$(mktemp)
trap 'rm -f "$out"' EXIT

"$attn" bench train d2l --quiet --json --seconds 0 --threads 2 >"$out"
for key in shape threads ms tokens_per_s gflops peak_gflops fraction context_peak_bytes process_peak_bytes; do
    grep -q "\"$key\": " "$out" || { echo "$key is missing: $(cat "$out")"; exit 1; }
done
value() {
    sed -n "s/.*\"$1\": \([0-9.e+-]*\).*/\1/p" "$out"
}
awk -v a="$(value allocations_per_step)" -v first="$(value first_loss)" -v last="$(value last_loss)" 'BEGIN {
    if (!(a == 0)) { print a " allocations in a step"; exit 1 }
    if (!(last < first)) { print "the loss went from " first " to " last; exit 1 }
}'
"$attn" bench train huge >"$out" 2>&1 && exit 1
grep -q 'no shape "huge"' "$out"
"$attn" bench train --threads 1,x d2l >"$out" 2>&1 && exit 1
grep -q -- '--threads' "$out"
"$attn" bench 2>"$out" && exit 1
grep -q 'attn bench attend' "$out"
