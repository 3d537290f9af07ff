#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# scripts/figures makes the tables of docs/performance.md from what the benches print.
. tests/support/cli.sh
command -v python3 > /dev/null || { echo "skipped: needs python3"; exit 77; }
figures="$root/scripts/figures" samples="$root/tests/data/figures"

# Objects that each bench printed become rows; columns of this machine are replaced, other columns and other text stay.
cp "$samples/before.md" page.md
"$figures" write "$samples" page.md || fail "figures write"
cmp page.md "$samples/expected.md" || fail "the tables: $(diff page.md "$samples/expected.md")"
"$figures" write "$samples" page.md && cmp page.md "$samples/expected.md" || fail "writing the tables again changes them"

# Without figures nothing changes, in the document either, which has every table.
mkdir empty
cp "$root/docs/performance.md" page.md
"$figures" write empty page.md && cmp page.md "$root/docs/performance.md" || fail "docs/performance.md changes without figures"
"$figures" write "$samples" page.md || fail "docs/performance.md lacks a table"
grep -q '1\.0\.0, 2026-11-27' page.md || fail "no column of docs/performance.md was written"

# A bench's output becomes a file that `write` reads.
ATTN_ISA=scalar "$figures" measure taken --only peak --quick --seconds 0 --threads 1 --machine "A machine" 2> err.txt ||
    fail "figures measure: $(cat err.txt)"
printf '<!-- figures: peak -->\n<!-- end of figures -->\n' > page.md
"$figures" write taken page.md || fail "figures write of what was measured"
grep -q '^| problem | A machine, plain C, one thread |$' page.md || fail "the column that was measured: $(cat page.md)"
grep -qE '^\| `b[^|]*` \| [0-9.,]+, [0-9.,]+; [0-9.]+, [0-9.]+ \|$' page.md || fail "the rows that were measured: $(cat page.md)"
printf '<!-- figures: peak on A machine -->\n<!-- end of figures -->\n' > page.md
"$figures" write taken page.md || fail "figures write into a table of one machine"
grep -q '^| problem | plain C, one thread |$' page.md || fail "the column of a table of one machine: $(cat page.md)"

# An error names what is wrong.
refuses() {
    pattern=$1
    shift
    "$figures" "$@" > out.txt 2>&1 && fail "figures $*: no error"
    grep -q -e "$pattern" out.txt || fail "figures $*: nothing matches '$pattern': $(tail -3 out.txt)"
}
mkdir broken other
printf '<!-- figures: peak on Another machine -->\n<!-- end of figures -->\n' > other.md
echo '{"table": "attention"' > broken/attention.json
refuses 'broken/attention.json is not what' write broken page.md
sed 's/"table": "bf16"/"table": "bf61"/' "$samples/bf16-avx512bf16-attend.json" > other/bf16.json
refuses "there is no table 'bf61'" write other page.md
sed 's/b1h2q64k64d64/h2q64k64d64/' "$samples/bf16-avx512bf16-attend.json" > other/bf16.json
refuses 'has no table bf16 on' write other page.md
refuses 'has no table peak on A machine' write taken other.md
printf '<!-- figures: bf16 -->\n<!-- end of figures -->\n' > page.md
refuses "'h2q64k64d64,bf16' is not of the form" write other page.md
printf '<!-- figures: flops -->\n<!-- end of figures -->\n' > page.md
refuses "has a table 'flops'" write empty page.md
exit $failed
