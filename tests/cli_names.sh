#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# Names files on the commands that read weights, the dry run, attn info of any checkpoint, and attn diff.
. tests/support/cli.sh
data=$root/tests/data/pt
config='{"dim": 6, "heads": 2}'
printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 6), }" > x.npy
awk 'BEGIN { for (i = 0; i < 48; i++) printf "%c", i % 4 == 3 ? 63 : i + 1 }' >> x.npy

# ---- the same numbers by rules that take the tensors apart and put them together again
cat > same.names <<'END'
attn names 1
arch self-attention
set dim=6 heads=2
to_q\.(weight)   to_q.\1     transpose transpose
to_kv\.weight    to_kv.weight   part 0/2 join 0/2
to_kv\.weight    to_kv.weight   part 1/2 join 1/2
(to_out\..*)     \1
END
"$attn" run --arch self-attention --config "$config" --weights "$data/self_attention.pt" --input x=x.npy --output out=a.npy >/dev/null
expect 2 'the output ./x.npy would overwrite the input x.npy' "$attn" run --arch self-attention --config "$config" \
    --weights "$data/self_attention.pt" --input x=x.npy --output out=./x.npy
expect 2 'the outputs twice.npy and ./twice.npy are the same file' "$attn" run --arch self-attention --config "$config" \
    --weights "$data/self_attention.pt" --input x=x.npy --output out=twice.npy --output out=./twice.npy
"$attn" run --names same.names --weights "$data/self_attention.pt" --input x=x.npy --output out=b.npy >/dev/null ||
    fail "attn run does not take a names file"
cmp -s a.npy b.npy || fail "rules that change nothing change the output"
"$attn" convert "$data/self_attention.pt" --names same.names -o sa --quiet >/dev/null || fail "attn convert does not take a names file"
"$attn" run --arch self-attention --config sa/config.json --weights sa --input x=x.npy --output out=c.npy >/dev/null
cmp -s a.npy c.npy || fail "what was converted by a names file gives something else"

# ---- errors are named, and nothing is written
sed '/to_out/d' same.names > short.names
expect 2 'no rule of short.names matches "to_out' "$attn" convert "$data/self_attention.pt" --names short.names -o none
sed 's/(to_out.*/(to_out\\..*) to_q.weight/' same.names > twice.names
expect 2 'is filled twice' "$attn" convert "$data/self_attention.pt" --names twice.names -o none
sed 's/part 1/part 0/; s/join 1/join 0/' same.names > slice.names
expect 2 'slice [0-9]* of "[^"]*" is given twice' "$attn" convert "$data/self_attention.pt" --names slice.names -o none
sed 's/transpose transpose/part 0\/2/' same.names > shape.names
expect 2 'expected \[6,6\], found \[3,6\] (of to_q.weight)' "$attn" convert "$data/self_attention.pt" --names shape.names -o none
expect 2 'none.names' "$attn" convert "$data/self_attention.pt" --names none.names -o none
sed '/^arch/d' same.names > noarch.names
expect 2 'no line "arch NAME"' "$attn" convert "$data/self_attention.pt" --names noarch.names -o none
[ ! -e none ] || fail "a conversion that failed left a directory"

# ---- the dry run: all that fits, what is missing with the closest, what is left over; and a file to begin with
"$attn" convert "$data/self_attention.pt" --names same.names --dry-run > said || fail "the dry run fails"
grep -q "4 fit, 0 have another shape, 0 parameters are missing, 0 tensors are left over" said || fail "the dry run: $(tail -n 1 said)"
cat > foreign.names <<'END'
attn names 1
(to_q)\.weight     attention.query.w  transpose
to_kv\.weight      attention.both.w
to_out\.(.*)       attention.out.\1
END
"$attn" convert "$data/self_attention.pt" --names foreign.names --arch self-attention --config "$config" --dry-run > said
grep -q "0 fit, 0 have another shape, 4 parameters are missing, 4 tensors are left over" said || fail "the dry run: $(tail -n 1 said)"
grep -q "to_kv.weight .*missing; closest: attention.both.w" said || fail "the closest of to_kv.weight is not named"
grep -q "^arch self-attention" said || fail "no names file is proposed"
head -c 300 "$data/msa_tiny.pt" > short.pt
expect 2 'short.pt' "$attn" convert short.pt --dry-run
"$attn" convert "$data/msa_tiny.pt" --dry-run > said
grep -q -- "--names msa-esm" said || fail "the carried names file is not suggested"

# ---- checkpoints of a dozen origins, and of none that is any good
if command -v python3 > /dev/null; then
    python3 "$root/tests/dry_run.py" "$attn" > said 2>&1 || fail "$(cat said)"
fi

# ---- looking into any file
"$attn" info "$data/old.pth" > said || fail "attn info does not take a .pth"
grep -q "model.bias .*\[2\] .*f16" said || fail "attn info does not list model.bias"
grep -q "^5 tensors, 20 numbers, 76 bytes$" said || fail "attn info does not count"
grep -q "epoch .*3" said || fail "attn info does not print what stands beside the weights"
"$attn" info "$data/old.pth" --values > said
grep -q "model.bias .* -2 .* 1.5 " said || fail "attn info --values does not print the range"
"$attn" info "$data/self_attention.pt" > said
grep -q "self-attention" said || fail "attn info does not say which architecture would fit"
"$attn" info "$data/old.pth" --json | grep -q '"name": *"model.bias"' || fail "attn info --json lists no tensors"
expect 2 "nothing.pt" "$attn" info nothing.pt
if command -v python3 > /dev/null; then
    python3 "$root/tests/info_values.py" "$attn" > said 2>&1 || fail "attn info --values: $(cat said)"
    python3 "$root/tests/skipped_notes.py" "$attn" > said 2>&1 || fail "notes about skipped contents: $(cat said)"
fi

"$attn" info "$data/self_attention.pt" --names foreign.names > said || fail "attn info does not take a names file"
grep -q "attention.both.w" said || fail "attn info --names shows other names"
"$attn" diff "$data/self_attention.pt" "$data/self_attention.pt" --names foreign.names > said
grep -q "only in" said || fail "attn diff --names compares under other names: $(cat said)"
"$attn" diff "$data/self_attention.pt" "$data/self_attention.pt" --names same.names > /dev/null || fail "attn diff does not take a names file"
expect 2 "nothing.names" "$attn" diff sa sa --names nothing.names

# ---- differences
"$attn" diff "$data/self_attention.pt" sa > said || fail "attn diff of the same weights is no success"
grep -q "4 tensors are the same" said || fail "attn diff: $(cat said)"
sed 's/transpose transpose/scale 2/' same.names > scaled.names
"$attn" convert "$data/self_attention.pt" --names scaled.names -o scaled --quiet >/dev/null
if "$attn" diff sa scaled > said; then fail "attn diff finds no difference"; fi
grep -q "to_q.weight .*1.000e+00" said || fail "attn diff does not say by how much: $(cat said)"
grep -q "3 tensors are the same" said || fail "attn diff does not count: $(cat said)"
if "$attn" diff "$data/old.pth" sa > said; then fail "attn diff finds no difference"; fi
grep -q "only in .*old.pth" said || fail "attn diff does not name what one side alone has"

# By hand: [3,4,0,12] and 12.5 in place of 12 are 0.5 apart, which is 1/26 of sqrt(9 + 16 + 144).
floats() {
    header="{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},\"s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[16,20]}}"
    printf "\\$(printf %o ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header"
    printf "\\0\\0\\100\\100\\0\\0\\200\\100\\0\\0\\0\\0$1\\0\\0\\200\\100"
}
floats '\0\0\100\101' > twelve.safetensors
floats '\0\0\110\101' > more.safetensors
floats '\0\0\300\177' > nan.safetensors
if "$attn" diff twelve.safetensors more.safetensors > said; then fail "attn diff finds no difference"; fi
grep -q 'w  *largest 5.000e-01, relative 3.846e-02$' said || fail "attn diff says otherwise by how much: $(cat said)"
same "what attn diff counts" "1 tensors are the same, 1 differ, 0 are in one checkpoint only" "$(tail -n 1 said)"
"$attn" diff more.safetensors twelve.safetensors --json | tr -d ' \n' > said
grep -q '"name":"w","differs":"numbers","largest":0.5,"relative":0.037' said && grep -q '"same":1' said || fail "attn diff --json: $(cat said)"
"$attn" diff twelve.safetensors nan.safetensors | grep -q 'w  *NaN on one side$' || fail "attn diff does not see a NaN"

# ---- an index of a TiB, all zeros, is refused without being read
mkdir hole && dd if=/dev/null of=hole/model.safetensors.index.json bs=1 seek=1099511627776 2> /dev/null &&
    expect 2 'index.json: the JSON has 1099511627776 bytes' timeout 5 "$attn" info hole

# ---- control characters of a stranger's names do not reach the terminal
header='{"t\u001b[31m\u009b2J\u0007":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"__metadata__":{"a\u001b[1m":"\u009b3J"}}'
printf "\\$(printf %o ${#header})\\0\\0\\0\\0\\0\\0\\0%s\\0\\0\\0\\0" "$header" > evil.safetensors
for words in info 'info --values' 'info --json' 'convert --dry-run' "diff $data/self_attention.pt"; do
    # shellcheck disable=SC2086
    "$attn" $words evil.safetensors > said 2>&1 || true
    grep -q 't.*31m.*2J' said || fail "attn $words: the name is missing: $(cat -v said)"
    if LC_ALL=C tr -d '\n\t' < said | LC_ALL=C grep -q "$(printf '[\001-\037\177]\|\302[\200-\237]')"; then
        fail "attn $words sends codes to the terminal: $(cat -v said)"
    fi
done
exit $failed
