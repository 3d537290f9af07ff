#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# Training, using and measuring a classifier of images, on pictures made here: horizontal bars, vertical bars, and
# blobs, each at a place of its own under noise.  Killed trainings end in the same bits; bad data is named.
. tests/support/cli.sh

# pictures FOLDER COUNT SEED: COUNT pictures of 8 x 8 for each class.
pictures() {
    mkdir -p "$1/blob" "$1/lying" "$1/standing"
    awk -v folder="$1" -v count="$2" -v seed="$3" 'BEGIN {
        srand(seed)
        split("blob lying standing", names, " ")
        for (k = 1; k <= 3; k++) for (i = 0; i < count; i++) {
            file = sprintf("%s/%s/%03d.pgm", folder, names[k], i)
            at = int(rand() * 6) + 1; also = int(rand() * 6) + 1
            printf "P2 8 8 255\n" > file
            for (y = 0; y < 8; y++) for (x = 0; x < 8; x++) {
                on = k == 1 ? (y - at) * (y - at) + (x - also) * (x - also) <= 2 : k == 2 ? y == at : x == at
                printf "%d%s", int((on ? 190 : 20) + rand() * 40), x < 7 ? " " : "\n" > file
            }
            close(file)
        }
    }'
}
pictures data/train 60 1
pictures data/test 20 2

settings="--data data --patch 4 --width 16 --depth 2 --heads 2 --batch 16 --epochs 12 --warmup 10 --rate 0.004
          --shift 0 --flip=false --threads 1 --quiet"

# ---- it learns, classifies, and is measured
# shellcheck disable=SC2086
expect 0 'classifier is in whole' "$attn" train classify $settings --out whole
expect 0 'accuracy  *\(1\.0000\|0\.9[0-9]*\)' "$attn" eval whole
expect 0 '^standing .* 20 ' "$attn" eval whole
expect 0 '"images": 60' "$attn" eval whole --json
expect 0 '"images": [1-9]' "$attn" eval whole --part valid --json
expect 0 '"images": 240' "$attn" eval whole --part all --json
[ "$(sed -n 2p whole/history.tsv | awk -F '\t' '{ print NF }')" = 5 ] || fail "history.tsv has no accuracy"
for class in blob lying standing; do
    said=$("$attn" classify whole data/test/$class/00[0-9].pgm --top 1 | cut -f 2 | grep -c "^$class 0\.[5-9]\|^$class 1")
    [ "$said" -ge 8 ] || fail "only $said of 10 pictures of $class were told"
done
expect 0 '"class": "lying"' "$attn" classify whole data/test/lying/003.pgm --json
same "classes told" 3 "$("$attn" classify whole data/test/lying/003.pgm --json --top 9 | grep -c '"class"')"
expect 0 'vit: ' "$attn" info whole
# ten pictures that the model recognizes, four of them filed under another class
file_as() {
    mkdir -p "filed/test/$1"
    for i in $3; do cp "$(sed -n "${i}p" "told.$2")" "filed/test/$1/$2$i.pgm"; done
}
for class in blob lying standing; do
    "$attn" classify whole data/test/$class/*.pgm --top 1 | awk -F '\t' -v class=$class '$2 ~ "^" class { print $1 }' > told.$class
done
mkdir filed && ln -s ../data/train filed/train
file_as blob blob '1 2 3' && file_as blob lying '1 2' && file_as lying lying '3 4' && file_as lying blob 4
file_as standing standing 1 && file_as standing blob 5
expect 0 '^accuracy  *0.6000$' "$attn" eval whole --data filed
for line in 'blob 5 0.600 0.600' 'lying 3 0.667 0.500' 'standing 2 0.500 1.000' 'blob 3 2 0' 'lying 1 2 0' 'standing 1 0 1'; do
    tr -s ' ' < out.txt | grep -q "^$line\$" || fail "eval says otherwise than $line: $(cat out.txt)"
done
expect 0 '"right": 6' "$attn" eval whole --data filed --json

# ---- a bad file ends no batch: the others are answered, the end names it
echo nothing > bad.png
good=data/test/lying/003.pgm
for how in "" --json; do
    # shellcheck disable=SC2086
    "$attn" classify whole $good bad.png $good $how > out.txt 2> err.txt
    same "exit code with a bad file $how" 2 $?
    same "pictures answered $how" 2 "$(grep -c "lying/003.pgm" out.txt)"
    same "lines of error $how" 2 "$(wc -l < err.txt)"
    same "last words $how" "attn: 1 of 3 files failed: bad.png" "$(tail -1 err.txt)"
    # shellcheck disable=SC2086
    expect 2 'bad.png: not an image in PNG, JPEG, WebP, BMP or PNM format' "$attn" classify whole bad.png $good --strict $how
    [ -s out.txt ] && fail "--strict $how goes on"
done

# ---- pictures are read whatever their ending is called; what is no picture is counted
cp -r data/test endings
for class in blob lying standing; do mv endings/$class/000.pgm endings/$class/000.JFIF; done
mkdir endings/blob/inner
echo x > endings/lying/a.tif
expect 0 '"images": 60' "$attn" eval whole --data endings --part all --json
expect 0 '2 files or folders are skipped, neither a picture by name nor' "$attn" eval whole --data endings --part all
expect 0 '2 files or folders are skipped, .*: the first is endings/blob/inner' \
    "$attn" train classify --data endings --patch 4 --width 16 --depth 1 --heads 2 --epochs 0 --threads 1 --out nothing
expect 0 '2 files or folders are skipped' "$attn" train images --data endings --dim 8 --size 8 --epochs 0 --threads 1 --out drawn

# ---- a warm-up by default is a tenth of the run
expect 0 'the rate rises for [0-9]* steps*, a tenth of the run' "$attn" train classify --data data --width 16 --depth 1 --out short
warmup=$(sed -n 's/.*"warmup": *\([0-9]*\).*/\1/p' short/training.json)
[ "$warmup" -gt 0 ] && [ "$warmup" -lt 100 ] || fail "the warm-up is $warmup steps"

# ---- a classifier that has learned nothing gives a warning
expect 0 'warning: .* validation pictures are recognized, guessing finds 33.3 %: .* learned next to nothing' \
    "$attn" train classify --data data --patch 4 --width 16 --depth 1 --heads 2 --epochs 1 --rate 1e-9 --threads 1 --out none
same_scores none 3 loss
same_scores none 5 accuracy
for command in show classify; do damaged none $command damaged data/test/lying/003.pgm; done
damaged none eval damaged
"$attn" train classify --out whole --resume --threads 1 2> err.txt > out.txt || fail "a finished training is not gone on with"
grep -q 'next to nothing' err.txt && fail "a good classifier is said to be none"

# ---- a picture unlike all of the training gets a warning; its negative may fit
awk 'NR == 1 { print; next } { for (i = 1; i <= NF; i++) printf "%s%d", (i > 1 ? " " : ""), 255 - $i; print "" }' \
    data/test/lying/003.pgm > negative.pgm
expect 0 'negative.pgm is unlike every picture of the training: its border is 0\.[0-9]*, theirs .*try --invert' \
    "$attn" classify whole negative.pgm
same "the negative's negative" "$("$attn" classify whole data/test/lying/003.pgm | cut -f 2-)" \
    "$("$attn" classify whole negative.pgm --invert 2> err.txt | cut -f 2-)"
[ ! -s err.txt ] || fail "the negative's negative is unlike the training: $(cat err.txt)"
{ echo 'P2 8 8 255'; for i in 1 2 3 4 5 6 7 8; do echo '120 120 120 120 120 120 120 120'; done; } > flat.pgm
expect 0 'flat.pgm is unlike every picture of the training' "$attn" classify whole flat.pgm
same "warnings of a picture that is like them" 0 "$("$attn" classify whole data/test/blob/001.pgm 2>&1 | grep -c unlike)"
expect 0 '"classes": 3' "$attn" info whole --json

# ---- what it attends to: a blob's own patch, in the end
expect 0 'blob' "$attn" show whole data/test/blob/003.pgm -o rollout.png
head -c 8 rollout.png | grep -q PNG || fail "rollout.png is no PNG"
expect 0 'lying' "$attn" show whole data/test/lying/003.pgm --layer 2 --query 1,2 -o heads.svg
expect 0 '"class": "lying"' "$attn" show whole data/test/lying/003.pgm --layer 2 --head 1 --json -o head.svg
[ "$(wc -c < heads.svg)" -gt "$(wc -c < head.svg)" ] || fail "two heads take no more than one"
expect 2 'layer 3 does not exist: there are 2, counted from 1' "$attn" show whole data/test/lying/003.pgm --layer 3
expect 2 "the query's row 5 does not exist: there are 2, counted from 1" "$attn" show whole data/test/lying/003.pgm --layer 1 --query 5,1
expect 2 'not a row and a column' "$attn" show whole data/test/lying/003.pgm --layer 1 --query 5
expect 2 'head 1 is given without a layer; give --layer' "$attn" show whole data/test/lying/003.pgm --head 1

# ---- the same seed gives the same bits; so does a training that was killed or stopped
# begin DIR SECONDS: a training in the background that has written a checkpoint and gone on a little; $pid.
begin() {
    rm -rf "$1"
    # shellcheck disable=SC2086
    "$attn" train classify $settings --save-every 5 --out "$1" > /dev/null 2> stopped.txt &
    pid=$!
    while kill -0 $pid 2> /dev/null && [ ! -s "$1/checkpoint.safetensors" ]; do sleep 0.01; done
    sleep "$2"
}
same_bits() {
    for file in model.safetensors checkpoint.safetensors history.tsv config.json; do
        cmp -s "whole/$file" "$2/$file" || fail "$1: $file differs from that of an unbroken training"
    done
}
begin killed 0
kill -9 $pid 2> /dev/null || echo "it had ended before it was killed"
wait $pid 2> /dev/null
expect 0 'classifier is in' "$attn" train classify --out killed --resume --threads 1 --quiet
same_bits killed killed
begin stopped 0
if kill -s INT $pid 2> /dev/null; then
    wait $pid
    code=$?
    [ $code = 130 ] || [ $code = 0 ] || fail "exit code after SIGINT: $code"
    [ $code = 0 ] || grep -q 'go on with: attn train classify --out stopped --resume' stopped.txt ||
        fail "SIGINT: $(cat stopped.txt)"
fi
wait $pid 2> /dev/null
expect 0 'classifier is in' "$attn" train classify --out stopped --resume --threads 1 --quiet
same_bits stopped stopped
expect 2 'exists already' "$attn" train classify --data data --out whole
cp -R data strange
for part in train test; do mv strange/$part/blob "strange/$part/bl$(printf '\344')b"; done
expect 2 'which is not UTF-8 and cannot be written to config.json' "$attn" train classify --data strange --out refused
[ ! -e refused/model.safetensors ] || fail "a class that config.json cannot name is trained on"
expect 2 'keeps its settings' "$attn" train classify --out whole --resume --width 32
pictures other/train 10 5
expect 2 'not the data' "$attn" train classify --out whole --resume --data other

# ---- the other models learn, each for a moment, and show what they have
for model in nonlocal axial axial-image; do
    patch="--patch 2"
    [ $model != nonlocal ] || patch=
    # shellcheck disable=SC2086
    expect 0 'classifier is in' "$attn" train classify --data data --model $model --out $model --width 16 --heads 2 \
        $patch --depth 1 --epochs 1 --shift 0 --threads 1 -q
    expect 0 '^accuracy' "$attn" eval $model
    expect 0 "$model.png" "$attn" show $model data/test/lying/003.pgm --query 2,1 -o $model.png
done
expect 0 'classifier is in' "$attn" train classify --data data --model sasa --out sasa --width 4 --heads 2 --window 3 \
    --epochs 1 --shift 0 --threads 1 -q

# show_all MODEL LAYERS HEADS: the picture, a head's, the page; and what is not there.
show_all() {
    expect 0 "$1.svg" "$attn" show "$1" data/test/lying/003.pgm --query 2,1 -o "$1.svg"
    expect 0 "$1-head.svg" "$attn" show "$1" data/test/lying/003.pgm --layer "$2" --head "$3" -o "$1-head.svg"
    expect 0 "$1.html" "$attn" show "$1" data/test/lying/003.pgm -o "$1.html"
    # The picture shows the classification, of the negative too.
    for how in --invert=false --invert; do
        same "$1, $how: drawn and classified" "$("$attn" classify "$1" data/test/lying/003.pgm $how -q 2> /dev/null | cut -f 2)" \
            "$("$attn" show "$1" data/test/lying/003.pgm $how -o drawn.svg | head -n 1)"
    done
    grep -q "\"image\":{\"width\":8,\"height\":8,\"rows\":[0-9]*,\"columns\":[0-9]*}" "$1.html" ||
        fail "$1.html has no picture"
    same "$1: layers in the page" "$2" "$(grep -o '"name":"[^"]*","kind":"attention","layers":[0-9]*' "$1.html" |
        sed '/Rollout/d; s/.*://' | awk '{ n += $1 } END { print n }')"
    expect 2 "layer $(($2 + 1)) does not exist: there are $2" "$attn" show "$1" data/test/lying/003.pgm \
        --layer $(($2 + 1)) -o none.html
    expect 2 "head $(($3 + 1)) does not exist: there are $3" "$attn" show "$1" data/test/lying/003.pgm --layer 1 \
        --head $(($3 + 1)) -o none.svg
}
show_all whole 2 2
show_all nonlocal 2 1
show_all axial 1 2
show_all axial-image 1 2
grep -q '"reversible": true' axial-image/config.json || fail "axial-image is not reversible"
expect 0 'classifier is in' "$attn" train classify --data data --model axial-image --reversible=false --out plain --width 16 \
    --heads 2 --patch 2 --depth 2 --epochs 1 --shift 0 --threads 1 -q
expect 0 '^accuracy' "$attn" eval plain

# ---- the book's settings: every one of them
expect 0 'classifier is in' "$attn" train classify --data data --compat d2l --epochs 0 --threads 1 -q --out book
for setting in '"size": 96' '"patch": 16' '"width": 512' '"mlp": 2048' '"heads": 8' '"depth": 2' '"dropout": 0.1' \
    '"optimizer": "sgd"' '"momentum": 0' '"rate": 0.1' '"schedule": "constant"' '"warmup": 0' '"weight_decay": 0' '"clip": 0' \
    '"label_smoothing": 0' '"batch": 128' '"keep": "last"' '"flip": false' '"shift": 0'; do
    grep -q "$setting[,.]" book/training.json || fail "--compat d2l: no $setting in $(cat book/training.json)"
done
for setting in '"init": "torch"' '"emb_dropout": 0.1' '"blk_dropout": 0.1' '"mean.0": 0' '"std.0": 1' '"interpolation": "bilinear"'; do
    grep -q "$setting[,.]" book/config.json || fail "--compat d2l: no $setting in $(cat book/config.json)"
done
held=$(ls data/test/*/* | wc -l) all=$(ls data/train/*/* | wc -l)
for setting in "\"train_images\": $all" "\"valid_images\": $held" "\"test_images\": $held"; do
    "$attn" train classify --data data --compat d2l --epochs 0 --threads 1 --json --out sizes > said && rm -r sizes
    grep -q "$setting[,}]" said || fail "--compat d2l: no $setting in $(cat said)"
done
expect 0 '"images": 60' "$attn" eval book --part valid --json
mkdir gpt2 && printf '{"model_type": "gpt2"}' > gpt2/config.json
expect 2 'the model_type is "gpt2"; of Hugging Face.s models, attn classify reads vit' "$attn" classify gpt2 data
expect 2 'compat=d2l supports the model vit only, not axial' "$attn" train classify --data data --compat d2l --model axial --out new
show_all sasa 8 2
grep -q '"grid":\[8,8,3,3\],"where":"window"' sasa.html || fail "no windows of 3 x 3 in sasa.html"
expect 2 "the query's row 9 does not exist: there are 8" "$attn" show sasa data/test/lying/003.pgm --query 9,1
expect 2 'sasa.gif' "$attn" show sasa data/test/lying/003.pgm -o sasa.gif
expect 2 'nothere.png: cannot be opened' "$attn" show sasa nothere.png
expect 2 'damaged.pgm: .*cut off' sh -c 'head -c 40 data/test/lying/003.pgm > damaged.pgm; "$0" show sasa damaged.pgm' "$attn"
rm -f damaged.pgm
# A config written when the depth was a text is the same model.
cp -r sasa older && sed 's/"depth": 26/"depth": "26"/' sasa/config.json > older/config.json
cmp -s sasa/config.json older/config.json && fail "config.json has no depth of 26"
same "guesses of an older config" "$("$attn" classify sasa data/test/blob/001.pgm)" \
    "$("$attn" classify older data/test/blob/001.pgm)"
expect 2 'depth is 27; allowed: 26, 38, 50' "$attn" train classify --data data --model sasa --depth 27 --out new

# ---- data that cannot be right: the file is named, and nothing is left behind
# refused PATTERN FOLDER [OPTION...]
refused() {
    pattern=$1 folder=$2
    shift 2
    expect 2 "$pattern" "$attn" train classify --data "$folder" --out new --epochs 1 "$@"
    [ ! -e new ] || fail "a directory was made although the training could not begin"
}
mkdir empty
refused 'nowhere: the directory cannot be opened' nowhere
refused 'empty: there are no images' empty
cp -r data lacking && rm -r lacking/test/lying
refused 'lacking/test: the class folder "lying" of the training part is missing' lacking
cp -r data more && cp -r more/test/blob more/test/crumb
refused 'more/test/crumb: the training part has no class folder of this name' more
cp -r data damaged && head -c 40 data/train/blob/007.pgm > damaged/train/blob/007.pgm
refused 'damaged/train/blob/007.pgm: .*cut off' damaged
cp -r data noise && echo 'no picture' > noise/train/lying/x.png
refused 'noise/train/lying/x.png: not an image in PNG, JPEG, WebP, BMP or PNM format' noise
cp -r data sizes && printf 'P2 2 1 9\n1 2\n' > sizes/test/blob/x.pgm
refused 'sizes/test/blob/x.pgm has 2 x 1 pixels, .*--size' sizes
expect 0 'classifier is in' "$attn" train classify --data sizes --out sized --size 8 --epochs 1 --patch 4 --width 8 -q
# Height and width, of pictures and of patches.
oblong="--data sizes --size 8x6 --patch 4x2 --width 8 --heads 2 --depth 1 --threads 1 -q"
# shellcheck disable=SC2086
expect 0 'classifier is in' "$attn" train classify $oblong --out oblong --epochs 1
tr -d ' \n' < oblong/config.json | grep -q '"img_size":\[8,6\],"patch_size":\[4,2\].*"input.width":6,"input.height":8' ||
    fail "config.json of an oblong model: $(cat oblong/config.json)"
expect 0 '^accuracy' "$attn" eval oblong
expect 0 'oblong.html' "$attn" show oblong data/test/lying/003.pgm -o oblong.html
grep -q '"image":{"width":6,"height":8,"rows":2,"columns":3}' oblong.html || fail "oblong.html has no grid of 2 x 3"
expect 0 'classifier is in' "$attn" train classify --out oblong --resume --size 8x6 --epochs 2 --threads 1 -q
# shellcheck disable=SC2086
expect 0 'classifier is in' "$attn" train classify $oblong --from oblong --out again --epochs 1
expect 2 'the model is for a width of 6, but the pictures have 8' "$attn" train classify --data sizes --size 8 --from oblong --out new
expect 0 'model is in' "$attn" train images --data sizes --size 3x4 --dim 8 --heads 2 --epochs 0 --threads 1 -q --out drawn-oblong
for size in x 8x x8 8x6x4 8x-6 8by6 99999x8; do
    expect 2 "^attn: --size" "$attn" train classify --data sizes --size $size --out new
done
expect 2 'size is 0 x 8; both sides must be above 0' "$attn" train classify --data sizes --size 0x8 --out new
expect 2 '6 x 8 pixels are not square' "$attn" train classify --data sizes --size 8x6 --model nonlocal --out new
for model in axial axial-image; do
    # shellcheck disable=SC2086
    expect 0 'classifier is in' "$attn" train classify $oblong --model $model --out oblong-$model --epochs 0
    expect 0 "oblong-$model.svg" "$attn" show oblong-$model data/test/lying/003.pgm -o oblong-$model.svg
done
cp -r data colour && printf 'P3 1 1 9\n1 2 3\n' > colour/train/blob/x.ppm
refused 'colour/train/blob/x.ppm is in colour, .*/000.pgm is grey; --channels' colour
cp -r data bare && rm bare/train/blob/*
refused 'bare/train/blob: this class folder has no .png.*with test/, val/, valid/ or validation/ beside train/' bare
mkdir untaught && cp -r data/test untaught/test
for held in valid validation VAL Test; do
    mkdir named && cp -r data/train named/Train && cp -r data/test named/$held && cp -r data/test named/rest
    mkdir -p named/__MACOSX/train named/Train/__MACOSX
    "$attn" train classify --data named --out named-out --epochs 1 --patch 4 --width 8 >said 2>&1 || fail "$held: $(cat said)"
    grep -q 'named/rest' said || fail "$held: a folder that is not read is not named: $(cat said)"
    expect 0 '"images": 60' "$attn" eval named-out --json
    rm -r named named-out
done
mkdir vehicles && cp -r data/train/blob vehicles/Train && cp -r data/train/lying vehicles/bus
expect 0 'classifier is in' "$attn" train classify --data vehicles --out vehicles-out --epochs 1 --patch 4 --width 8 -q
refused 'untaught: the folder has test/ with class folders, but no train/' untaught
refused 'patch_size' data --patch 9
refused 'heads' data --heads 5

# ---- IDX files: three pictures of 2 x 2
mkdir idx
printf '\000\000\010\003\000\000\000\003\000\000\000\002\000\000\000\002\001\002\003\004\005\006\007\010\011\012\013\014' \
    > idx/train-images-idx3-ubyte
printf '\000\000\010\001\000\000\000\003\000\001\002' > idx/train-labels-idx1-ubyte
cp idx/train-images-idx3-ubyte idx/t10k-images-idx3-ubyte
cp idx/train-labels-idx1-ubyte idx/t10k-labels-idx1-ubyte
tiny_idx="--patch 1 --width 4 --depth 1 --heads 1 --valid 0 --shift 0 -q"
# shellcheck disable=SC2086
expect 0 'classifier is in' "$attn" train classify --data idx --out idx-model --epochs 1 $tiny_idx
expect 0 '3 images' "$attn" eval idx-model
# shellcheck disable=SC2086
"$attn" train classify --data idx --out idx-colours --epochs 0 $tiny_idx --channels 3 > out.txt
grep -q '"in_channels": 3' idx-colours/config.json || fail "grey pictures do not become coloured ones: $(cat idx-colours/config.json)"
# shellcheck disable=SC2086
expect 2 'channels is 2; allowed: 0, 1, 3' "$attn" train classify --data idx --out idx-two $tiny_idx --channels 2
expect 2 'idx: class 0 is "0", but the classifier calls it "blob"' "$attn" eval whole --data idx
cp -r idx wrong && printf '\000\000\010\001\000\000\000\003\000\001\003' > wrong/t10k-labels-idx1-ubyte
refused 'wrong/t10k-labels-idx1-ubyte: byte 10: the label is 3; it must be less than 3, the number of classes' wrong
printf '\000\000\010\001\000\000\000\002\000\001' > wrong/t10k-labels-idx1-ubyte
refused 'has 3 images, .*has 2 labels' wrong
printf '\000\000\015\001\000\000\000\002\000\001' > wrong/t10k-labels-idx1-ubyte
refused 'byte 2: elements of type 13 (32-bit floats) are not supported; expected type 8' wrong
head -c 20 idx/train-images-idx3-ubyte > wrong/train-images-idx3-ubyte
refused 'wrong/train-images-idx3-ubyte: byte 16: the header gives 12 elements of one byte, but 4 bytes follow' wrong
rm wrong/train-images-idx3-ubyte
refused 'wrong: the folder has train-labels-idx1-ubyte, but no file whose name begins with train-images' wrong
mkdir cifar && head -c 3072 /dev/zero > cifar/data_batch_1.bin
refused 'cifar/data_batch_1.bin: the file has 3072 bytes; expected a positive multiple of 3073' cifar

# ---- pictures and directories that cannot be used
expect 2 'nothere.png: cannot be opened' "$attn" classify whole nothere.png
expect 2 'noise/train/lying/x.png: not an image' "$attn" classify whole noise/train/lying/x.png
expect 2 'nodir/config.json' "$attn" classify nodir data/test/blob/000.pgm
# odd KEY VALUE MESSAGE
odd() {
    cp -r whole odd
    sed "s|^\( *\"$1\":\) [^,]*|\1 $2|" whole/config.json > odd/config.json
    cmp -s whole/config.json odd/config.json && fail "config.json has no $1 to change"
    expect 2 "odd/config.json: $3" "$attn" classify odd data/test/blob/000.pgm
    rm -r odd
}
odd input.channels 7 'input.channels is 7; allowed: 1 to 3'
odd std.0 0 'std.0 is 0'
odd seed '"x"' 'seed must be an integer'
odd architecture '"none"' 'there is no architecture "none"'
exit $failed
