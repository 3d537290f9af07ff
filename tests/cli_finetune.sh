#!/bin/sh
# SPDX-License-Identifier: MIT
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

# ---- what cannot be is named, and no directory is begun
for wrong in '--freeze blks(' '--freeze nothing' '--freeze .*' '--rates head' '--rates head=x' '--rates nothing=1' '--from three' \
    '--from nowhere' '--size 16 --from base'; do
    # shellcheck disable=SC2086
    if "$attn" train classify --data three --out none --epochs 1 --quiet $wrong > out.txt 2> said; then fail "$wrong is taken"; fi
    same "lines for $wrong" 1 "$(wc -l < said | tr -d ' ')"
    [ ! -e none ] || fail "$wrong left a directory"
done
