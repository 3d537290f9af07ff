#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# attn plot: curves from tables, arrays and trainings, and what it refuses.
. tests/support/cli.sh

# array FILE SHAPE NUMBERS: an array of f4 in which every number is 1.
array() {
    printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': ($2), }" > "$1"
    i=0
    while [ $i -lt "$3" ]; do printf '\000\000\200\077'; i=$((i + 1)); done >> "$1"
}
# Drawn lines of curves and of the legend, by their width, which cairo before and after 1.18 writes in two ways.
lines() { grep -c -e 'stroke-width:1.6;' -e 'stroke-width="1.6"' "$1"; }

printf 'x\ty\ttruth\n0\t1\t1\n1\tnan\t2\n2\t\t2.5\n3\t2\t3\n' > table.tsv
printf 'x\ty\n0\t0.5\n2.5\t1e1\n' > points.tsv
mkdir -p out/run
printf 'epoch\ttrain_loss\tvalid_loss\trate\taccuracy\n1\t2\t2.5\t0.1\t0.3\n2\t1\t1.5\t0.1\t0.6\n' > out/run/history.tsv

# ---- each format, each kind of file
for format in png svg pdf; do
    expect 0 "curves.$format" "$attn" plot table.tsv -o "curves.$format"
done
[ "$(head -c 4 curves.pdf)" = %PDF ] || fail "no PDF"
# Two curves, and a mark for each in the legend.
same "lines of a table" 4 "$(lines curves.svg)"
expect 0 'loss.svg' "$attn" plot out/run/ -o loss.svg
same "losses of a training" 4 "$(lines loss.svg)"
expect 0 'rate.svg' "$attn" plot out/run -x epoch -y rate,accuracy,train_loss --log-y --title t --y-label y -o rate.svg
same "chosen columns" 6 "$(lines rate.svg)"
array five.npy '1, 5, 4' 20
expect 0 'five.svg' "$attn" plot five.npy -y 1-3 --dashes 2 -o five.svg
same "columns of an array" 6 "$(lines five.svg)"
same "dashes, one curve and its mark" 2 "$(grep -c dasharray five.svg)"
array line.npy '5,' 5
printf '1\t2\r\n2\t3\r\n\r\n' > numbers.tsv
expect 0 'line.svg' "$attn" plot line.npy numbers.tsv -y 0,1 -o line.svg
# A panel for each file, whose curves of one name share the legend's entry.
cp table.tsv other.tsv
expect 0 'panels.svg' "$attn" plot table.tsv other.tsv points.tsv --panels --dots y --dashes truth --size 600x200 -o panels.svg
same "panels" 3 "$(lines panels.svg)"
# The scale of a heatmap has 128 steps.
expect 0 'scale.svg' "$attn" show five.npy -o scale.svg
[ "$(grep -oE 'rgb\([^)]*\)' scale.svg | sort -u | wc -l)" -gt 100 ] || fail "the scale of a heatmap has too few colours"
# The largest number has the darkest colour, unless --range sets another end of the scale.
darkest() { tr -d ' ' < "$1" | grep -c 'rgb(33%,2%,14%)'; }
expect 0 'range.svg' "$attn" show five.npy --range 0,4 -o range.svg
[ "$(darkest scale.svg)" -ge 1 ] && [ "$(darkest range.svg)" = 0 ] || fail "the scale does not follow the data, or not --range"
# Curves of one name from two files are called by the file too.
printf 'x\ty\n1\t2\n2\t3\n' > first.tsv
printf 'x\ty\n1\t4\n2\t1\n' > second.tsv
printf 'x\tz\n1\t4\n2\t1\n' > third.tsv
for names in 'second.tsv first y,second y' 'third.tsv y,z'; do
    "$attn" plot first.tsv "${names%% *}" -q -o default.svg > /dev/null
    "$attn" plot first.tsv "${names%% *}" --names "${names#* }" -q -o named.svg > /dev/null
    cmp -s default.svg named.svg || fail "the legend is not: ${names#* }"
done
# The only column of a file without names is called by the file.
"$attn" plot line.npy -q -o default.svg > /dev/null
"$attn" plot line.npy --names line -q -o named.svg > /dev/null
cmp -s default.svg named.svg || fail "the legend does not name the file of one column"
grep -q 'width="600' panels.svg || fail "not of the size asked for"
expect 0 '"picture": "one.svg"' "$attn" plot table.tsv points.tsv --names 'a,b,c' --json -o one.svg

# ---- refusals
printf 'a\tb\n1\t2\n3\n' > ragged.tsv
printf 'a\tb\n1\tx\n' > letters.tsv
printf 'a\tb\n1\tnan\n2\t\n' > nothing.tsv
printf 'a\tb\n' > rows.tsv
: > empty.tsv
array cube.npy '2, 2, 2' 8
array none.npy '0, 2' 0
printf '\000\001\002' > binary.tsv
expect 2 'ragged.tsv: line 3 has 1 fields, but the first line has 2' "$attn" plot ragged.tsv
expect 2 'column "b" of letters.tsv has "x" in line 2, which is not a number' "$attn" plot letters.tsv -y b
expect 2 'letters.tsv: there is no column of numbers' "$attn" plot letters.tsv
expect 2 'no curve has a point with finite x and y' "$attn" plot nothing.tsv
expect 2 'rows.tsv: the table has no rows' "$attn" plot rows.tsv
expect 2 'empty.tsv: the table is empty' "$attn" plot empty.tsv
expect 2 'binary.tsv: the file is not a table in text' "$attn" plot binary.tsv
expect 2 'cube.npy: the array has 3 axes' "$attn" plot cube.npy
expect 2 'none.npy: the array is empty' "$attn" plot none.npy
expect 2 'there is no nothere.tsv' "$attn" plot nothere.tsv
expect 2 'out is not the directory of a training' "$attn" plot out
expect 2 'y: there is no column "z" in table.tsv; the columns are x, y, truth' "$attn" plot table.tsv -y y,z
expect 2 'x: there is no column "z" in points.tsv; the columns are x, y' "$attn" plot points.tsv -x z
expect 2 'dots: there is no column "z"' "$attn" plot table.tsv --dots z
expect 2 'there is no column "9" in five.npy; the columns are 0 to 3' "$attn" plot five.npy -y 0,9
expect 2 'there is no column "2-4"' "$attn" plot five.npy -y 2-4
expect 2 'x of point 1 of "y" is 0; a logarithmic axis needs numbers above 0' "$attn" plot points.tsv --log-x
expect 2 'names: "d" names no curve' "$attn" plot table.tsv --names a,b,d
expect 2 'size: "5" is not WIDTHxHEIGHT' "$attn" plot table.tsv --size 5
expect 2 'the picture has 5 x 7 points; each side must be 120 to 4096' "$attn" plot table.tsv --size 5x7
expect 2 'cannot be written as a page' "$attn" plot table.tsv -o a.html
expect 2 'must end in .png' "$attn" plot table.tsv -o a.gif
expect 2 'colours cannot be "green"; it must be one of heat|blues|reds|diverging' "$attn" show five.npy --colours green
expect 2 'range: "1" is not LOW,HIGH' "$attn" show five.npy --range 1
expect 2 'range: "1,1" is not LOW,HIGH' "$attn" show five.npy --range 1,1
expect 2 'range: "0,1x" is not LOW,HIGH' "$attn" show five.npy --range 0,1x
expect 2 'range applies to .png, .svg and .pdf' "$attn" show five.npy --range 0,1 -o a.html
[ ! -e curves.png ] || rm curves.png

# ---- an output is not the input, also through a link, and a path is not cut
cp table.tsv table.png && cp five.npy five.png && ln -s five.png link.png
expect 2 'the output table.png would overwrite the input table.png' "$attn" plot points.tsv table.png -o table.png
expect 2 'the output link.png would overwrite the input five.png' "$attn" show five.png -o link.png
cmp -s table.tsv table.png && cmp -s five.npy five.png || fail "an input was overwritten"
rm table.png five.png link.png
long=$(awk 'BEGIN { while (n++ < 2043) printf "./" }')
[ -e "${long}table.tsv" ] || fail "the path to cut is too long"
expect 2 '^attn: \./\./' "$attn" plot "${long}table.tsvx"
for file in attention.png curves.png a.html a.gif; do
    [ ! -e $file ] || fail "$file was written"
done
exit $failed
