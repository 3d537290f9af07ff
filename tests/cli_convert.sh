#!/bin/sh
# SPDX-License-Identifier: MIT
# attn convert: checkpoints of PyTorch into attn's own form and back, each to the same numbers; what it refuses.
. tests/support/cli.sh
data=$root/tests/data/pt

# ---- tensors as they are: twice through, the same file
"$attn" convert "$data/nested.pt" -o nested.safetensors 2>said >/dev/null || fail "nested.pt is not converted"
grep -q "tensors, as they were" said || fail "does not say how many tensors"
"$attn" convert nested.safetensors -o again.safetensors --quiet >/dev/null
cmp -s nested.safetensors again.safetensors || fail "safetensors to safetensors changes the file"
grep -q '"model.weight"' nested.safetensors || fail "a tensor's name changed"
grep -q 'args.embed_dim' nested.safetensors || fail "the arguments beside the tensors are lost"

# ---- a known architecture under its own names: the same output from both
"$attn" convert "$data/self_attention.pt" --arch self-attention --config '{"dim": 6, "heads": 2}' -o sa --quiet >/dev/null
printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 6), }" > x.npy
awk 'BEGIN { for (i = 0; i < 48; i++) printf "%c", i % 4 == 3 ? 63 : i + 1 }' >> x.npy
for from in "$data/self_attention.pt" sa/model.safetensors; do
    "$attn" run --arch self-attention --config sa/config.json --weights "$from" --input x=x.npy --output out="$(basename "$from").npy" >/dev/null ||
        fail "attn run does not take $from"
done
cmp -s self_attention.pt.npy model.safetensors.npy || fail "the converted weights give something else"
grep -q '"architecture": "self-attention"' sa/config.json || fail "config.json does not name the architecture"

# ---- MSA Transformer, its regression included
"$attn" convert "$data/msa_tiny.pt" -o msa --quiet >/dev/null
printf '>q\nACD\n>b\nACE\n' > f.a3m
"$attn" contacts f.a3m --model "$data/msa_tiny.pt" -o a --quiet >/dev/null
"$attn" contacts f.a3m --model msa -o b --quiet >/dev/null
cmp -s a/f.contacts.npy b/f.contacts.npy || fail "the converted MSA Transformer gives other contacts"
cp "$data/msa_tiny.pt" alone.pt
"$attn" convert alone.pt -o alone 2>said >/dev/null
grep -q "no contact regression beside alone.pt" said || fail "a missing regression is not noted"
expect 2 "contact-regression.pt; put it beside" "$attn" contacts f.a3m --model alone --quiet

# ---- what is refused, and why
expect 2 "neither an MSA Transformer" "$attn" convert "$data/linear.pt" -o none
expect 2 "architecture" "$attn" convert "$data/linear.pt" --arch selfattention -o none
expect 2 "to_q.weight" "$attn" convert "$data/linear.pt" --arch self-attention --config '{"dim": 6, "heads": 2}' -o none
expect 2 "goes with a directory: -o x" "$attn" convert "$data/linear.pt" --arch linear -o x.safetensors
expect 2 "there is no\|No such file" "$attn" convert missing.pt -o none
head -c 700 "$data/linear.pt" > cut.pt
expect 2 "cut.pt" "$attn" convert cut.pt -o none
printf 'a letter to a friend\n' > letter.pt
expect 2 "letter.pt" "$attn" convert letter.pt -o none
[ ! -e none ] || fail "what was refused left a directory"
exit $failed
