#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# Fine-tuning a classifier: from one of attn's own, with parts frozen or at rates of their own, and going on to the same bits.
. tests/support/cli.sh

# pictures FOLDER SEED CLASS...: black pictures of 8 x 8 with one white row, column or diagonal.
pictures() {
    folder=$1 seed=$2
    shift 2
    for class in "$@"; do
        mkdir -p "$folder/$class"
        awk -v folder="$folder/$class" -v class="$class" -v seed="$seed" 'BEGIN {
            srand(seed)
            for (i = 0; i < 60; i++) {
                file = sprintf("%s/%03d.pgm", folder, i); at = int(rand() * 8)
                printf "P2 8 8 255\n" > file
                for (y = 0; y < 8; y++) for (x = 0; x < 8; x++) {
                    lit = class == "lying" ? y == at : class == "standing" ? x == at : (x + y) % 8 == at
                    printf "%d%s", lit ? 255 : int(rand() * 40), x < 7 ? " " : "\n" > file
                }
                close(file)
            }
        }'
    done
}
pictures two 1 lying standing
pictures three 2 lying standing slanting
small="--batch 16 --warmup 4 --schedule constant --rate 0.003 --shift 0 --threads 1"
# shellcheck disable=SC2086
"$attn" train classify --data two --out base --width 16 --depth 2 --heads 2 --patch 2 --epochs 2 $small --quiet > /dev/null ||
    fail "no classifier to begin with"

# ---- other classes: all but the last layer is taken, and the table says so
# shellcheck disable=SC2086
"$attn" train classify --data three --out tuned --from base --epochs 2 $small --freeze 'blks\.0\..*|cls_token' 2> said > /dev/null ||
    fail "fine-tuning fails: $(cat said)"
grep -q "head.1.weight  *\[3,16\] *anew: for other classes than \[2,16\]" said || fail "what began anew is not said: $(cat said)"
grep -q "parameters are the checkpoint's" said || fail "what was taken is not counted"
grep -q "^blks.0.ln1.weight	\[16\]	taken" tuned/fine-tuning.tsv || fail "fine-tuning.tsv does not list blks.0.ln1.weight"
grep -q '"from": *"base"' tuned/training.json || fail "training.json does not say where it began"
"$attn" diff base tuned > differences || true
grep -q "^  blks.1.attention.W_q.weight" differences || fail "what is not frozen has not changed"
grep -q "^  blks.0\.\|^  cls_token" differences && fail "what is frozen has changed: $(cat differences)"
grep -q "m.blks.1.ln1.weight" tuned/checkpoint.safetensors || fail "no moments of what is trained"
grep -q "m.blks.0.ln1.weight" tuned/checkpoint.safetensors && fail "moments are kept for what is frozen"
expect 0 'slanting' "$attn" eval tuned

# ---- a checkpoint of foreign names, by a names file: what its own names give, bit for bit
LC_ALL=C sed 's/blks\./lays./g' base/model.safetensors > foreign.safetensors
cat > pictures.names << 'END'
attn names 1
arch vit
set img_size=8 num_heads=2
size  num_hiddens      patch_embedding.conv.weight 0
size  in_channels      patch_embedding.conv.weight 1
size  patch_size       patch_embedding.conv.weight 2
size  mlp_num_hiddens  blks.0.mlp.dense1.weight 0
count num_blks         blks.
lays\.(.*)             blks.\1
(cls_token|pos_embedding|(patch_embedding|head)\..*)  \1
END
grep -v num_heads pictures.names > headless.names
sed 's/^arch .*/arch transformer/' pictures.names > words.names
sed 's/^arch .*/arch transformer/; s/^count .*/set num_hiddens=16 src_vocab_size=4 tgt_vocab_size=4/' pictures.names > wordy.names
by="--data three --from foreign.safetensors --out named --epochs 2"
# shellcheck disable=SC2086
"$attn" train classify $by $small --names pictures.names --freeze 'blks\.0\..*|cls_token' --quiet > /dev/null || fail "train classify --names fails"
cmp -s tuned/model.safetensors named/model.safetensors || fail "a checkpoint of foreign names gives something else than its own"
grep -q '^blks.0.ln1.weight	\[16\]	taken, lays.0.ln1.weight$' named/fine-tuning.tsv || fail "fine-tuning.tsv does not say what was called how"
rm -rf named
# shellcheck disable=SC2086
expect 2 'add the line "set num_heads=N"' "$attn" train classify $by --names headless.names
# shellcheck disable=SC2086
expect 2 'is not a classifier of pictures' "$attn" train classify $by --names words.names
# shellcheck disable=SC2086
expect 2 'no rule' "$attn" train classify $by --names vit-timm
expect 2 'the setting "names" can be used only with "from"' "$attn" train classify --data three --out named --names pictures.names
[ ! -e named ] || fail "what was refused left a directory"

# ---- the commands that use a classifier: a bare file, with what it leaves out at its defaults, and a directory with config.json
{ cat pictures.names && echo 'size num_classes head.1.weight 0'; } > classes.names
expect 0 '000.pgm	. 0\.' "$attn" classify foreign.safetensors three/lying/000.pgm --names classes.names --top 2
expect 2 'head.1.weight expected \[10,16\], found \[2,16\]' "$attn" classify foreign.safetensors three/lying/000.pgm --names pictures.names
mkdir strange && cp base/config.json strange && cp foreign.safetensors strange/model.safetensors
"$attn" classify base three/*/000.pgm > own.txt && "$attn" classify strange three/*/000.pgm --names pictures.names > its.txt || fail "classify --names fails"
cmp -s own.txt its.txt || fail "classify by a names file says something else"
"$attn" eval base --data two --json | grep -v second > own.txt && "$attn" eval strange --data two --names pictures.names --json | grep -v second > its.txt ||
    fail "eval --names fails"
cmp -s own.txt its.txt || fail "eval by a names file says something else"
"$attn" show base three/lying/000.pgm -o own.svg > /dev/null && "$attn" show strange three/lying/000.pgm --names pictures.names -o its.svg > /dev/null ||
    fail "show --names fails"
cmp -s own.svg its.svg || fail "show by a names file draws something else"
expect 2 'missing: blks.0' "$attn" classify strange three/lying/000.pgm
expect 2 'says "vit"' "$attn" classify strange three/lying/000.pgm --names words.names
expect 2 'translates: attn translate' "$attn" classify foreign.safetensors three/lying/000.pgm --names wordy.names

# ---- stopped and gone on with: the same bits
# shellcheck disable=SC2086
"$attn" train classify --data three --out again --from base --epochs 1 $small --freeze 'blks\.0\..*|cls_token' --quiet > /dev/null
mv base elsewhere
"$attn" train classify --out again --resume --epochs 2 --threads 1 --quiet > /dev/null || fail "fine-tuning does not go on"
mv elsewhere base
for file in model.safetensors history.tsv config.json; do
    cmp -s "tuned/$file" "again/$file" || fail "a resumed fine-tuning ends in another $file"
done

# ---- rates: of 0 times the rate nothing comes, of 1 what comes without
# shellcheck disable=SC2086
"$attn" train classify --data three --out still --from base --epochs 1 $small --rates 'blks\.0\..*=0 head\..*=1' --quiet > /dev/null
"$attn" diff base still > differences || true
grep -q "^  blks.1.attention.W_q.weight" differences || fail "what has the whole rate has not changed"
grep -q "^  blks.0\." differences && fail "what has no rate has changed"

# ---- a published MSA Transformer: all of it is taken, its contact regression too
mkdir families
for i in 1 2 3; do printf '>q\nACDEF\n>b\nACEEF\n>c\nTCDEY\n' > families/$i.a3m; done
msa="--data families --batch 1 --steps 3 --schedule constant --warmup 0 --rate 0.01 --threads 1 --quiet"
cp "$root/tests/data/pt/msa_tiny.pt" "$root/tests/data/pt/msa_tiny-contact-regression.pt" .
# shellcheck disable=SC2086
"$attn" train msa $msa --from msa_tiny.pt --out family --epochs 2 --freeze 'embed_.*' > /dev/null || fail "train msa --from fails"
"$attn" convert msa_tiny.pt -o published --quiet > /dev/null
"$attn" diff published family > differences || true
grep -q "row_self_attention.layer.q_proj.weight" differences || fail "fine-tuning changed no attention of the MSA Transformer"
grep -q "^  embed_\|contact_head\|only in" differences && fail "fine-tuning changed what it should not: $(cat differences)"
grep -q "^embed_tokens.weight	.*	taken" family/fine-tuning.tsv || fail "train msa does not list what was taken"
expect 0 'contacts' "$attn" contacts families/1.a3m --model family -o out
# shellcheck disable=SC2086
"$attn" train msa $msa --from msa_tiny.pt --out family2 --epochs 1 --freeze 'embed_.*' > /dev/null
"$attn" train msa --out family2 --resume --epochs 2 --threads 1 --quiet > /dev/null || fail "train msa does not go on"
cmp -s family/model.safetensors family2/model.safetensors || fail "a resumed fine-tuning of an MSA Transformer ends elsewhere"

LC_ALL=C sed 's/layers\./blocks./g' published/model.safetensors > foreign.safetensors
cat > msa.names << 'END'
attn names 1
arch msa-transformer
set attention_heads=2 max_positions=6 embed_positions_msa=false
size  embed_dim      embed_tokens.weight 1
size  ffn_embed_dim  layers.0.feed_forward_layer.layer.fc1.weight 0
count layers         layers.
blocks\.(.*)         layers.\1
((embed_|emb_|lm_head|contact_head).*)  \1
END
"$attn" contacts families/1.a3m --model published -o own --quiet > /dev/null
expect 0 'contacts' "$attn" contacts families/1.a3m --model foreign.safetensors --names msa.names -o named
cmp -s own/1.contacts.npy named/1.contacts.npy || fail "contacts by a names file are others"
expect 0 'embed\|named' "$attn" embed families/1.a3m --model foreign.safetensors --names msa.names -o named
expect 0 'C2' "$attn" score families/1.a3m C2D --model foreign.safetensors --names msa.names
expect 0 'msa.png' "$attn" show foreign.safetensors families/1.a3m --names msa.names --kinds rows -o msa.png
expect 2 'add the line "set attention_heads=N"' "$attn" contacts families/1.a3m --model msa_tiny.pt --names msa-esm -o none
# shellcheck disable=SC2086
"$attn" train msa $msa --from foreign.safetensors --names msa.names --out family3 --epochs 2 --freeze 'embed_.*' > /dev/null ||
    fail "train msa --names fails"
cmp -s family/model.safetensors family3/model.safetensors || fail "train msa by a names file ends elsewhere"

# ---- a model that draws pictures
draw="--data three --levels 2 --batch 16 --warmup 0 --schedule constant --threads 1 --quiet"
# shellcheck disable=SC2086
"$attn" train images $draw --out drawn --dim 8 --heads 2 --exterior-blocks 0 --outer-blocks 2 --inner-blocks 2 --epochs 1 > /dev/null
# shellcheck disable=SC2086
"$attn" train images $draw --out redrawn --from drawn --epochs 1 --freeze '.*embed.*|.*norm.*' > /dev/null ||
    fail "train images --from fails"
"$attn" diff drawn redrawn > differences || true
grep -q "only in\|another shape" differences && fail "train images --from builds another model: $(cat differences)"
# shellcheck disable=SC2086
expect 2 "the model has 2 levels, but levels is 4" "$attn" train images --data three --out none --levels 4 --from drawn

LC_ALL=C sed 's/outer/OUTER/g' drawn/model.safetensors > foreign.safetensors
{
    printf 'attn names 1\narch axial-transformer\nset'
    sed -n 's/^ *"\([a-z_]*\)": "*\([^",]*\)"*,*$/ \1=\2/p' drawn/config.json | grep -v ' architecture=' | tr -d '\n'
    printf '\n(.*)OUTER(.*) \\1outer\\2\n([^O]*) \\1\n'
} > draw.names
# shellcheck disable=SC2086
"$attn" train images $draw --out renamed --from foreign.safetensors --names draw.names --epochs 1 --freeze '.*embed.*|.*norm.*' > /dev/null ||
    fail "train images --names fails: $(cat draw.names)"
cmp -s redrawn/model.safetensors renamed/model.safetensors || fail "train images by a names file ends elsewhere"
"$attn" generate drawn -n 2 -o own.png > /dev/null && "$attn" generate foreign.safetensors -n 2 -o its.png --names draw.names > /dev/null ||
    fail "generate --names fails"
cmp -s own.png its.png || fail "generate by a names file draws something else"
"$attn" complete drawn three/lying/000.pgm -o own.png > /dev/null &&
    "$attn" complete foreign.safetensors three/lying/000.pgm -o its.png --names draw.names > /dev/null || fail "complete --names fails"
cmp -s own.png its.png || fail "complete by a names file draws something else"
"$attn" eval drawn --data three --part all --json | grep -v second > own.txt
"$attn" eval foreign.safetensors --names draw.names --data three --part all --json | grep -v second > its.txt
cmp -s own.txt its.txt && [ -s own.txt ] || fail "eval by a names file says something else: $(diff own.txt its.txt)"
expect 2 'not axial-transformer' "$attn" generate foreign.safetensors -o its.png --names pictures.names

# ---- low-rank adapters: a small file of their own in addition to the base model; used by every command, merged by
# convert
lora="--data three --from base $small --quiet --lora 2 --lora-on blks\\..*\\.W_[qv]"
# shellcheck disable=SC2086
"$attn" train classify $lora --out lora --epochs 2 > /dev/null || fail "train classify --lora fails"
[ ! -e lora/model.safetensors ] || fail "a training of adapters writes the whole model"
"$attn" diff lora/base.safetensors lora > differences || true
[ "$(grep -c 'W_[qv].weight' differences)" = 4 ] || fail "adapters are not merged as weights are read: $(cat differences)"
[ "$(grep -c relative differences)" = 6 ] || fail "more than the adapters and the new layer changed: $(cat differences)"
grep -q "m.blks.0.attention.W_q.lora_A.weight" lora/checkpoint.safetensors || fail "no moments of an adapter"
grep -q "blks.0.attention.W_q.weight" lora/checkpoint.safetensors && fail "the checkpoint holds what is frozen"
grep -q "blks.0.attention.W_q.lora_B.weight	\[16,2\]	anew: low-rank" lora/fine-tuning.tsv || fail "fine-tuning.tsv lists no adapter"
grep -q "base_model.model.head.1.weight" lora/adapter_model.safetensors || fail "the adapter lacks the new layer"
"$attn" eval lora > /dev/null || fail "eval does not take an adapter"
"$attn" convert lora -o merged --quiet > /dev/null || fail "convert does not merge an adapter"
"$attn" diff lora merged > /dev/null || fail "what is merged is something else"
"$attn" eval merged --data three > evaluated || fail "eval does not take what was merged"
"$attn" eval lora --data three > adapted
for file in adapted evaluated; do grep -v '^speed' $file > kept && mv kept $file; done
same "what eval says of adapter and merged" "$(cat adapted)" "$(cat evaluated)"
picture=$(find three/lying -name '*.pgm' | head -n 1)
"$attn" classify lora "$picture" > one && "$attn" classify merged "$picture" > two.txt
same "classes of adapter and merged" "$(cat one)" "$(cat two.txt)"
expect 2 "lora/config.json would overwrite the input lora/config.json" "$attn" convert lora -o lora
# shellcheck disable=SC2086
"$attn" train classify $lora --out lora2 --epochs 1 > /dev/null
expect 2 "the directory holds a low-rank adapter; choose another directory" "$attn" convert lora2 -o lora
mv base elsewhere
"$attn" train classify --out lora2 --resume --epochs 2 --threads 1 --quiet > /dev/null || fail "a training of adapters does not go on"
mv elsewhere base
cmp -s lora/adapter_model.safetensors lora2/adapter_model.safetensors || fail "a resumed training of adapters ends elsewhere"
printf 'x' | dd of=lora2/base.safetensors bs=1 seek=$(($(wc -c < lora2/base.safetensors) * 2 / 3)) conv=notrunc 2> /dev/null
expect 2 "its checksum does not match" "$attn" train classify --out lora2 --resume --epochs 3
# shellcheck disable=SC2086
"$attn" train msa $msa --from msa_tiny.pt --out lora3 --epochs 1 --lora 2 --lora-on '.*(q|v)_proj' > /dev/null || fail "train msa --lora fails"
expect 0 'contacts' "$attn" contacts families/1.a3m --model lora3 -o out3
# shellcheck disable=SC2086
"$attn" train msa $msa --from msa_tiny.pt --out lora5 --epochs 2 --lora 2 --lora-on '.*(q|v)_proj' > /dev/null
"$attn" train msa --out lora3 --resume --epochs 2 --threads 1 --quiet > /dev/null || fail "adapters of an MSA Transformer do not go on"
cmp -s lora3/adapter_model.safetensors lora5/adapter_model.safetensors || fail "adapters of an MSA Transformer, resumed, end elsewhere"
expect 0 'rows.*png\|lora3' "$attn" show lora3 families/1.a3m --kinds rows -o rows.png
# shellcheck disable=SC2086
"$attn" train images $draw --out lora4 --from drawn --epochs 1 --lora 2 --lora-on '.*w_q|.*fc1|.*dense1' > /dev/null || fail "train images --lora fails"
"$attn" generate lora4 -n 1 -o drawn.pgm --quiet > /dev/null || fail "generate does not take an adapter"
# shellcheck disable=SC2086
"$attn" train images $draw --out lora6 --from drawn --epochs 2 --lora 2 --lora-on '.*w_q|.*fc1|.*dense1' > /dev/null
"$attn" train images --out lora4 --resume --epochs 2 --threads 1 --quiet > /dev/null || fail "adapters of a generator do not go on"
cmp -s lora4/adapter_model.safetensors lora6/adapter_model.safetensors || fail "adapters of a generator, resumed, end elsewhere"
expect 0 'lora.png' "$attn" show lora "$picture" -o lora.png
expect 0 'tuned.png' "$attn" show tuned "$picture" -o tuned.png

# ---- in bf16: resumed to the same bits, near what f32 gives, and not that
# shellcheck disable=SC2086
"$attn" train classify --data three --out half --from base --epochs 2 $small --quiet --precision bf16 --freeze 'blks\.0\..*|cls_token' > /dev/null ||
    fail "fine-tuning in bf16 fails"
"$attn" diff base half | grep -q '^  blks.0.\|^  cls_token' && fail "in bf16 what is frozen has changed"
"$attn" diff tuned half > differences && fail "fine-tuning in bf16 is that in f32"
# shellcheck disable=SC2086
"$attn" train classify --data three --out half2 --from base --epochs 1 $small --quiet --precision bf16 --freeze 'blks\.0\..*|cls_token' > /dev/null
"$attn" train classify --out half2 --resume --epochs 2 --threads 1 --quiet --precision bf16 > /dev/null || fail "fine-tuning in bf16 does not go on"
cmp -s half/model.safetensors half2/model.safetensors || fail "fine-tuning in bf16, resumed, ends elsewhere"
paste tuned/history.tsv half/history.tsv | awk -F '\t' 'NR > 1 { n = NF / 2; d = $3 - $(3 + n); if (d > 0.05 || d < -0.05) exit 1 }' ||
    fail "fine-tuning in bf16 goes another way: $(cat tuned/history.tsv half/history.tsv)"

# ---- adapters that do not fit are named
for change in 's/"LORA"/"IA3"/' 's/base.safetensors/none.safetensors/' 's/"r": 2/"s": 2/' 's/"bias"/"use_dora": true, "bias"/' 's/"bias"/"init_lora_weights": "pissa", "bias"/'; do
    rm -rf wrong && cp -r lora wrong
    sed "$change" lora/adapter_config.json > wrong/adapter_config.json
    if "$attn" eval wrong > out.txt 2> said; then fail "an adapter after $change is taken"; fi
    same "lines for $change" 1 "$(wc -l < said | tr -d ' ')"
done
# Every variant of peft's has a key: null, false, 0 and empty values mean that it is not used; all else is refused by
# its name.
"$attn" diff lora/base.safetensors lora > own.txt
with_key() {
    sed "s/\"bias\"/\"$1\": $2, \"bias\"/" lora/adapter_config.json > wrong/adapter_config.json
}
for value in null false 0 '""' '[]' '{}'; do
    with_key use_dora "$value"
    "$attn" diff lora/base.safetensors wrong > its.txt 2> said
    cmp -s own.txt its.txt || fail "an adapter with use_dora: $value is not taken: $(cat said)"
done
for value in true 1 0.5 '"yes"' '[3]' '["a"]' '{"rank": 4}'; do
    with_key use_dora "$value"
    expect 2 '"use_dora.*is not supported' "$attn" diff lora/base.safetensors wrong
done
for key in alora_invocation_tokens arrow_config ensure_weight_tying fan_in_fan_out kasa_config layer_replication lora_bias monteclora_config \
    target_parameters trainable_token_indices use_bdlora use_qalora velora_config of_next_year; do
    with_key $key '[1]'
    expect 2 "\"$key\" is not supported" "$attn" diff lora/base.safetensors wrong
done
sed 's/"bias"/"use_rslora": 1, "bias"/' lora/adapter_config.json > wrong/adapter_config.json
"$attn" diff lora/base.safetensors wrong > its.txt 2> said
[ -s its.txt ] && ! cmp -s own.txt its.txt || fail "\"use_rslora\": 1 is passed over"
rm -rf wrong && cp -r lora wrong && cp lora/base.safetensors wrong/adapter_model.safetensors
expect 2 "is not a name that peft writes" "$attn" eval wrong
rm wrong/adapter_model.safetensors
expect 2 "adapter_model.safetensors" "$attn" eval wrong

# ---- two batches of 6 in a step are a batch of 12, which divides the pictures, but for rounding: the order of pictures is the same
order="--data three --epochs 1 --warmup 0 --schedule constant --rate 0.003 --shift 0 --flip=false --threads 1 --valid 0 --test 0 --keep last
       --clip 0 --optimizer sgd --momentum 0 --quiet --from base"
# shellcheck disable=SC2086
"$attn" train classify $order --out twelve --batch 12 > /dev/null
# shellcheck disable=SC2086
"$attn" train classify $order --out sixes --batch 6 --accumulate 2 > /dev/null || fail "--accumulate fails"
"$attn" diff twelve sixes > differences || true
sed -n 's/.*relative \([0-9.e+-]*\)$/\1/p' differences | awk '$1 > 2e-5 { exit 1 }' || fail "accumulated gradients: $(cat differences)"
"$attn" diff base sixes > differences || true
grep -q "blks.0.attention.W_q.weight" differences || fail "accumulated gradients change nothing"

# ---- what cannot be is named, and no directory is begun
for wrong in '--freeze blks(' '--freeze nothing' '--freeze .*' '--rates head' '--rates head=x' '--rates nothing=1' '--from three' \
    '--from nowhere' '--size 16 --from base' '--width 999 --from base' '--lora 2' '--from base --lora 2' '--from base --lora-on .*' '--from base --lora 2 --lora-on head' \
    '--from base --lora 2 --lora-on head\.1' '--from base --lora 2 --lora-on blks.0.ln1' '--from base --lora 0 --lora-on .*'; do
    # shellcheck disable=SC2086
    if "$attn" train classify --data three --out none --epochs 1 --quiet $wrong > out.txt 2> said; then fail "$wrong is taken"; fi
    same "lines for $wrong" 1 "$(wc -l < said | tr -d ' ')"
    [ ! -e none ] || fail "$wrong left a directory"
done
exit $failed
