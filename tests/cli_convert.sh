#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# attn convert: checkpoints of PyTorch, timm and Hugging Face into attn's own form, each to the same numbers; what it refuses.
. tests/support/cli.sh
data=$root/tests/data/pt

# ---- tensors with their numbers: twice through, the same file
"$attn" convert "$data/nested.pt" -o nested.safetensors 2>said >/dev/null || fail "nested.pt is not converted"
grep -q "tensors, with their numbers" said || fail "does not say how many tensors"
"$attn" convert nested.safetensors -o again.safetensors --quiet >/dev/null
cmp -s nested.safetensors again.safetensors || fail "safetensors to safetensors changes the file"
grep -q '"model.weight"' nested.safetensors || fail "a tensor's name changed"
grep -q 'args.embed_dim' nested.safetensors || fail "the arguments beside the tensors are lost"

# ---- tensors alone keep their numbers
expect 2 "the output must be a directory, such as -o small" "$attn" convert "$data/nested.pt" --precision bf16 -o small.safetensors
expect 2 "precision is f32; it must be bf16 or int8" "$attn" convert "$data/nested.pt" --precision f32 -o small
[ ! -e small ] || fail "a refused precision leaves a directory"
expect 0 kept "$attn" convert "$data/msa_tiny.pt" --precision bf16 -o kept
cp kept/model.safetensors before
expect 2 'cannot be stored as int8; use --precision bf16' "$attn" convert "$data/msa_tiny.pt" --precision int8 -o kept
cmp kept/model.safetensors before || fail "a conversion that was refused wrote"

# ---- a known architecture under its own names: the same output from both
"$attn" convert "$data/self_attention.pt" --arch self-attention --config '{"dim": 6, "heads": 2}' -o sa --quiet >/dev/null
printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 6), }" > x.npy
awk 'BEGIN { for (i = 0; i < 48; i++) printf "%c", i % 4 == 3 ? 63 : i + 1 }' >> x.npy
for from in "$data/self_attention.pt" sa/model.safetensors; do
    "$attn" run --arch self-attention --config sa/config.json --weights "$from" --input x=x.npy --output out="$(basename "$from").npy" >/dev/null ||
        fail "attn run does not take $from"
done
cmp -s self_attention.pt.npy model.safetensors.npy || fail "the converted weights give something else"
"$attn" run --weights sa --input x=x.npy --output out=own.npy >/dev/null || fail "attn run does not take the directory"
cmp -s own.npy model.safetensors.npy || fail "the directory gives something else"
expect 0 'self-attention: ' "$attn" info sa
grep -q '"architecture": "self-attention"' sa/config.json || fail "config.json does not name the architecture"

# ---- the weights that a run writes are drawn
"$attn" run --arch self-attention --config sa/config.json --weights sa/model.safetensors --input x=x.npy \
    --output weights=weights.npy >/dev/null
expect 0 'weights.svg' "$attn" show weights.npy -o weights.svg
expect 0 'weights.html' "$attn" show weights.npy -o weights.html
grep -q '2 queries, 2 keys' weights.html || fail "the page does not say how many queries and keys there are"
grep -q '"heads":2' weights.html || fail "the page has not two heads"
expect 2 'shown alone' "$attn" show weights.npy x
expect 2 'after the model' "$attn" show sa
expect 2 'nowhere.npy: cannot be opened' "$attn" show nowhere.npy
printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (12,), }" > line.npy
head -c 48 /dev/zero >> line.npy
expect 2 'line.npy: the array has 1 axes' "$attn" show line.npy
printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '<i4', 'fortran_order': False, 'shape': (3, 4), }" > ints.npy
head -c 48 /dev/zero >> ints.npy
expect 2 'ints.npy: expected weights that are real numbers' "$attn" show ints.npy
printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4), }" > none.npy
expect 2 'none.npy: the array is empty' "$attn" show none.npy

expect 2 "sa is in attn's own form already" "$attn" convert sa -o sb
[ ! -e sb ] || fail "what needs no converting leaves a directory"

# ---- MSA Transformer, its regression included
"$attn" convert "$data/msa_tiny.pt" -o msa --quiet >/dev/null
printf '>q\nACD\n>b\nACE\n' > f.a3m
"$attn" contacts f.a3m --model "$data/msa_tiny.pt" -o a --quiet >/dev/null
"$attn" contacts f.a3m --model msa -o b --quiet >/dev/null
cmp -s a/f.contacts.npy b/f.contacts.npy || fail "the converted MSA Transformer gives other contacts"
cp "$data/msa_tiny.pt" alone.pt
"$attn" convert alone.pt -o alone 2>said >/dev/null
grep -q "no contact regression in the folder of alone.pt" said || fail "a missing regression is not noted"
expect 2 "the model has no contact regression, which contacts need" "$attn" contacts f.a3m --model alone --quiet

# ---- Vision Transformers: the same numbers under timm's names (queries, keys and values in one) and under those of Hugging
# Face become classifiers that say the same; 4 x 4 pixels, patches of 2, 64 channels, 1 block, 3 classes
vit() {
    LC_ALL=C awk -v family="$1" '
        function data(id, n,  i) {
            for (i = 0; i < n; i++)
                printf "%c%c%c%c", 1 + (i * 7 + id * 13) % 125, 1 + (i * 31 + id) % 125, 1 + (i * 17 + id * 5) % 125,
                    int((i + id) % 7 / 3) % 2 ? 188 : 61
        }
        function tensor(name, shape, ids,  i, m, d, n) { # n numbers for each of the ids
            m = split(shape, d, ","); n = 1
            for (i = 1; i <= m; i++) n *= d[i]
            header = header sprintf("%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%d,%d]}", tensors ? "," : "",
                                    name, shape, at, at + 4 * n)
            at += 4 * n; tensors++
            of[tensors] = ids; m = split(ids, d, " "); each[tensors] = n / m
        }
        function both(timm, hf, shape, id) { tensor(family == "timm" ? timm : hf, shape, id) }
        function linear(timm, hf, rows, columns, id) {
            both(timm ".weight", hf ".weight", columns ? rows "," columns : rows, id)
            both(timm ".bias", hf ".bias", rows, id + 1)
        }
        BEGIN {
            e = "vit.embeddings."; b = "vit.encoder.layer.0."
            both("cls_token", e "cls_token", "1,1,64", 1)
            both("pos_embed", e "position_embeddings", "1,5,64", 2)
            both("patch_embed.proj.weight", e "patch_embeddings.projection.weight", "64,3,2,2", 3)
            both("patch_embed.proj.bias", e "patch_embeddings.projection.bias", "64", 4)
            linear("blocks.0.norm1", b "layernorm_before", 64, 0, 5)
            if (family == "timm") {
                tensor("blocks.0.attn.qkv.weight", "192,64", "10 12 14")
                tensor("blocks.0.attn.qkv.bias", "192", "11 13 15")
            } else {
                linear("", b "attention.attention.query", 64, 64, 10)
                linear("", b "attention.attention.key", 64, 64, 12)
                linear("", b "attention.attention.value", 64, 64, 14)
            }
            linear("blocks.0.attn.proj", b "attention.output.dense", 64, 64, 16)
            linear("blocks.0.norm2", b "layernorm_after", 64, 0, 18)
            linear("blocks.0.mlp.fc1", b "intermediate.dense", 8, 64, 20)
            linear("blocks.0.mlp.fc2", b "output.dense", 64, 8, 22)
            linear("norm", "vit.layernorm", 64, 0, 24)
            linear("head", "classifier", 3, 64, 26)
            header = "{" header "}"
            printf "%c%c", length(header) % 256, int(length(header) / 256)
            for (i = 0; i < 6; i++) printf "%c", 0
            printf "%s", header
            for (t = 1; t <= tensors; t++) {
                n = split(of[t], id, " ")
                for (i = 1; i <= n; i++) data(id[i], each[t])
            }
        }'
}
mkdir hf
vit timm > timm.safetensors
vit hf > hf/model.safetensors
printf '{"num_attention_heads": 1, "layer_norm_eps": 1e-6, "id2label": {"0": "cat", "1": "dog", "2": "tench"}}' > hf/config.json
for name in dark light; do
    awk -v k=$name 'BEGIN { print "P3 4 4 255"; for (i = 0; i < 48; i++) print k == "dark" ? i % 5 * 9 : 255 - i * i % 50 }' > $name.ppm
done
expect 2 'attn convert --heads sets it' "$attn" convert timm.safetensors -o none
expect 2 '[-]-regression applies only to an MSA' "$attn" convert hf -o none --regression none.pt
expect 2 '[-]-config applies only with --arch' "$attn" convert hf -o none --config '{"num_heads": 2}'
expect 2 '[-]-mean applies only to a Vision' "$attn" convert timm.safetensors -o none.safetensors --mean 0,0,0
[ ! -e none ] || fail "a refused checkpoint leaves a directory"
"$attn" convert timm.safetensors --heads 1 -o vit-timm 2>said >/dev/null || fail "timm: $(cat said)"
grep -q 'pixels are scaled by (x - 0.5) / 0.5' said || fail "does not say how pixels are scaled"
"$attn" convert hf -o vit-hf --quiet >/dev/null || fail "Hugging Face: not converted"
cmp -s vit-timm/model.safetensors vit-hf/model.safetensors || fail "the two families became different weights"
expect 0 'vit: ' "$attn" info vit-hf
expect 0 'classes  *cat, dog, tench' "$attn" info vit-hf
"$attn" classify vit-timm dark.ppm light.ppm --json > timm.json || fail "the converted classifier does not classify"
"$attn" classify vit-hf dark.ppm light.ppm --json | sed 's/"cat"/"0"/; s/"dog"/"1"/; s/"tench"/"2"/' > hf.json
same "probabilities" 6 "$(grep -c '"probability": 0.3' timm.json)"
cmp -s timm.json hf.json || fail "the two classifiers differ: $(diff timm.json hf.json)"
"$attn" convert hf -o scaled --mean 0.1,0.2,0.3 --std 1,1,0.25 --quiet >/dev/null
"$attn" classify scaled dark.ppm light.ppm --json | sed 's/"cat"/"0"/; s/"dog"/"1"/; s/"tench"/"2"/' > scaled.json
cmp -s scaled.json hf.json && fail "--mean and --std change nothing"
for three in 0.1,0.2 0.1,0.2,0.3x 0.1,0.2,0.3,0.4; do
    expect 2 "--mean: \"$three\" is not three numbers" "$attn" convert hf -o unscaled --mean "$three"
done
expect 2 '--mean: number 3 is 1.5; it must be 0 to 1' "$attn" convert hf -o unscaled --mean 0.1,0.2,1.5
# ---- classes without a name: how many, and they are named by their numbers
mkdir few
cp hf/model.safetensors few
sed 's/, "1": "dog", "2": "tench"//' hf/config.json > few/config.json
expect 0 'config.json names 1 of 3 classes; the other 2 are named by their numbers' "$attn" convert few -o vit-few
expect 0 'classes  *cat, 1, 2' "$attn" info vit-few
sed 's/"2": "tench"/"2": "tench", "3": "wolf"/' hf/config.json > few/config.json
expect 2 '"id2label" names class 3, but the tensors have only the classes 0 to 2' "$attn" convert few -o none
expect 0 . "$attn" show vit-hf light.ppm -o light.png
# ---- a directory of --arch is a classifier too: its classes are named by numbers, its pixels run from -1 to 1
"$attn" convert vit-timm/model.safetensors --arch vit --config '{"img_size": 4, "patch_size": 2, "num_hiddens": 64, "mlp_num_hiddens": 8,
    "num_heads": 1, "num_blks": 1, "use_bias": true, "num_classes": 3, "layer_norm_eps": 1e-6}' -o bare --quiet >/dev/null
grep -q class_names bare/config.json && fail "convert --arch names classes"
"$attn" classify bare dark.ppm light.ppm --json > bare.json || fail "a directory of --arch does not classify"
cmp -s bare.json timm.json || fail "a directory of --arch gives something else"
expect 0 'classes  *0, 1, 2' "$attn" info bare

mkdir hub
cp timm.safetensors hub/model.safetensors
cat > hub/config.json <<END
{"architecture": "vit_test", "model_args": {"num_heads": 1}, "label_names": ["cat", "dog", "tench"],
 "pretrained_cfg": {"mean": [0.1, 0.2, 0.3], "std": [1.0, 1.0, 0.25], "interpolation": "bilinear", "input_size": [3, 4, 4], "url": null}}
END
"$attn" convert hub -o vit-hub 2>said >/dev/null || fail "timm's folder: $(cat said)"
grep -q 'pixels are scaled by (x - (0.1, 0.2, 0.3)) / (1, 1, 0.25), and pictures resized by bilinear' said ||
    fail "does not say how pictures are prepared: $(cat said)"
"$attn" classify vit-hub dark.ppm light.ppm --json | sed 's/"cat"/"0"/; s/"dog"/"1"/; s/"tench"/"2"/' > hub.json
cmp -s scaled.json hub.json || fail "means and deviations of timm's folder: $(diff scaled.json hub.json)"
awk 'BEGIN { print "P3 9 7 255"; for (i = 0; i < 189; i++) print i * i % 256 }' > large.ppm
sed 's/"bilinear"/"bicubic"/' hub/config.json > config.tmp
mv config.tmp hub/config.json
"$attn" convert hub -o vit-cubic --quiet >/dev/null
"$attn" classify vit-hub large.ppm --json > linear.json
"$attn" classify vit-cubic large.ppm --json > cubic.json
cmp -s linear.json cubic.json && fail "interpolation changes nothing"
expect 2 '--std: number 2 is 0; it must be 1e-06 to 1' "$attn" convert hf -o none --std 1,0,1

# ---- weights in fewer bytes: the same answers in that precision, from a checkpoint and from attn's own form
for p in bf16 int8; do
    "$attn" convert hf --precision $p -o hf-$p --quiet >/dev/null || fail "hf is not stored as $p"
    "$attn" convert vit-hf --precision $p -o own-$p --quiet >/dev/null || fail "vit-hf is not stored as $p"
    cmp -s hf-$p/model.safetensors own-$p/model.safetensors || fail "$p: other weights from attn's own form"
    for from in vit-hf own-$p; do
        "$attn" classify $from dark.ppm light.ppm --json --precision $p > $from.json || fail "$from does not classify"
    done
    cmp -s vit-hf.json own-$p.json || fail "$p: the stored weights give something else"
done
size() { wc -c < "$1/model.safetensors"; }
[ "$(size own-bf16)" -lt "$(($(size vit-hf) * 7 / 10))" ] || fail "bf16 takes $(size own-bf16) of $(size vit-hf) bytes"
[ "$(size own-int8)" -lt "$(($(size own-bf16) * 8 / 10))" ] || fail "int8 takes $(size own-int8) of $(size own-bf16) bytes"
expect 0 'W_q.weight  *\[64,64\]  *i8  *4.4 kB\|W_q.weight  *\[64,64\]  *i8  *4.2 KiB' "$attn" info own-int8/model.safetensors
rm hf/config.json
expect 2 'the config.json of the model is missing' "$attn" convert hf -o none --quiet

# ---- what is refused, and why
expect 2 "neither an MSA Transformer" "$attn" convert "$data/linear.pt" -o none
expect 2 "architecture" "$attn" convert "$data/linear.pt" --arch selfattention -o none
expect 2 "to_q.weight" "$attn" convert "$data/linear.pt" --arch self-attention --config '{"dim": 6, "heads": 2}' -o none
expect 2 "with --arch the output must be a directory, such as -o x" "$attn" convert "$data/linear.pt" --arch linear -o x.safetensors
expect 2 "there is no\|No such file" "$attn" convert missing.pt -o none
head -c 700 "$data/linear.pt" > cut.pt
expect 2 "cut.pt" "$attn" convert cut.pt -o none
printf 'a letter to a friend\n' > letter.pt
expect 2 "letter.pt" "$attn" convert letter.pt -o none
# ---- what a download or a clone left in the file's place
printf 'version https://git-lfs.example/spec/v1\noid sha256:%064d\nsize 346293852\n' 7 > pointer.pt
printf '\n<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n' > page.pt
for ending in pt safetensors npz; do
    [ $ending = pt ] || cp pointer.pt pointer.$ending && [ $ending = pt ] || cp page.pt page.$ending
    expect 2 "pointer.$ending: this is a Git LFS pointer, not the file; git lfs pull" "$attn" convert pointer.$ending -o none
    expect 2 "page.$ending: this is an HTML page, not the file" "$attn" convert page.$ending -o none
    expect 2 "pointer.$ending: this is a Git LFS pointer" "$attn" info pointer.$ending
done
cp pointer.pt hf/config.json
expect 2 'hf/config.json: this is a Git LFS pointer' "$attn" convert hf -o none
cp page.pt page.png
cp page.pt page.a3m
cp pointer.pt pointer.pdb
expect 2 'page.a3m: this is an HTML page' "$attn" contacts page.a3m --model msa -o none
expect 2 'pointer.pdb: this is a Git LFS pointer' "$attn" contacts f.a3m --model msa --structure pointer.pdb -o none --quiet
expect 2 'page.png: this is an HTML page' "$attn" classify vit-hf page.png
[ ! -e none ] || fail "what was refused left a directory"
exit $failed
