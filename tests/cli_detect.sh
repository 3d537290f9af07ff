#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# Training a detector on pictures made here, bright squares and bars, and detecting with it: files that are written, resuming
# to the same bits, fine-tuning for other classes, bad input. The detector that attn carries.
. tests/support/cli.sh

# pictures FOLDER COUNT: grey pictures of 32 x 32 or 32 x 24, with annotations.
pictures() {
    mkdir -p "$1/images" "$1/labels"
    awk -v folder="$1" -v count="$2" 'BEGIN {
        srand(3)
        for (i = 1; i <= count; i++) {
            high = i % 3 ? 32 : 24; n = i % 4; pixels = ""
            file = sprintf("%s/images/%06d.pgm", folder, i); text = sprintf("%s/labels/%06d.txt", folder, i)
            printf "" > text
            for (k = 0; k < n; k++) {
                class[k] = int(rand() * 2); w[k] = class[k] ? 12 : 8; h[k] = class[k] ? 4 : 8
                x[k] = int(rand() * (32 - w[k])); y[k] = int(rand() * (high - h[k]))
                printf "%d %f %f %f %f\n", class[k], (x[k] + w[k] / 2) / 32, (y[k] + h[k] / 2) / high, w[k] / 32, h[k] / high > text
                all = all sprintf("%s{\"id\":%d,\"image_id\":%d,\"category_id\":%d,\"bbox\":[%d,%d,%d,%d],\"area\":%d,\"iscrowd\":0}",
                    all == "" ? "" : ",\n", ++id, i, class[k] ? 20 : 3, x[k], y[k], w[k], h[k], w[k] * h[k])
            }
            printf "P2 32 %d 255\n", high > file
            for (r = 0; r < high; r++) for (c = 0; c < 32; c++) {
                v = 40
                for (k = 0; k < n; k++) if (c >= x[k] && c < x[k] + w[k] && r >= y[k] && r < y[k] + h[k]) v = 200
                printf "%d ", v > file
            }
            close(file); close(text)
            names = names sprintf("%s{\"id\":%d,\"file_name\":\"images/%06d.pgm\",\"width\":32,\"height\":%d}", i > 1 ? ",\n" : "", i, i, high)
        }
        printf "{\"images\":[%s],\"annotations\":[%s],\"categories\":[{\"id\":3,\"name\":\"square\"},{\"id\":20,\"name\":\"bar\"}]}\n",
            names, all > (folder "/annotations.json")
    }'
}
pictures data 24
settings="--stem small --width 4 --norm group --hidden 16 --heads 2 --encoder-depth 1 --decoder-depth 2 --mlp 16
          --queries 6 --batch 4 --epochs 2 --threads 1"

# ---- training: measures of the validation part in history.tsv, the classes by their ids
# shellcheck disable=SC2086
expect 0 'pictures to train on, .* 2 classes' "$attn" train detect --data data $settings --out whole
expect 0 'valid_ap	valid_ap50' cat whole/history.tsv
# shellcheck disable=SC2086
expect 0 'warning: the average precision is 0.00' "$attn" train detect --data data $settings --epochs 1 --out poor
mkdir bert && printf '{"model_type": "bert"}' > bert/config.json
expect 2 'the model_type is "bert"; of Hugging Face.s models, attn classify reads vit' "$attn" detect data/images --model bert
expect 0 '"class_ids": \[3, 20\]' cat whole/config.json
expect 0 '"train_images": 22' "$attn" train detect --data data/annotations.json $settings --out again --json
same "two trainings" "$(cksum < whole/model.safetensors)" "$(cksum < again/model.safetensors)"
# shellcheck disable=SC2086
expect 0 'The detector is in yolo' "$attn" train detect --data data/images $settings --epochs 1 --out yolo --quiet

# ---- a training that goes on ends in the bits of one that was not stopped
steady="--schedule constant --warmup 0"
# shellcheck disable=SC2086
expect 0 'detector is in part' "$attn" train detect --data data $settings $steady --epochs 1 --out part
expect 0 'detector is in part' "$attn" train detect --out part --resume --epochs 2 --threads 2
# shellcheck disable=SC2086
expect 0 'detector is in straight' "$attn" train detect --data data $settings $steady --out straight
same "the resumed training" "$(cksum < straight/model.safetensors)" "$(cksum < part/model.safetensors)"
expect 2 'these are not the data that the training in part began with' "$attn" train detect --data data/images --out part --resume

# ---- detecting
expect 0 'images/000001.pgm	' "$attn" detect data/images/000001.pgm --model whole --threshold 0
same "boxes" 6 "$(wc -l < out.txt)"
expect 0 '"label": "\(square\|bar\)"' "$attn" detect data/images --model whole --threshold 0 --json
same "pictures" 24 "$(grep -c '"file"' out.txt)"
expect 0 '"detections": \[\]' "$attn" detect data/images/000002.pgm --model whole --threshold 1 --json
"$attn" detect data/images --model whole --coco results.json || fail "results of COCO"
"$attn" detect data/images --model whole --coco named.json --data data/annotations.json || fail "results by names"
cmp -s results.json named.json || fail "ids by the pictures' names are others than those of the annotations"
expect 0 'Average Precision' "$attn" eval --coco results.json --data data/annotations.json
expect 0 '' "$attn" detect data/images/00000*.pgm --model whole --threshold 0.1 -o found --size 48
same "drawn pictures" 9 "$(find found -name '*.png' | wc -l)"
"$attn" detect data/images/000001.pgm --model whole -o found --format svg || fail "drawing as SVG"
grep -q '<svg' found/000001.svg || fail "no SVG"
printf 'a\nb\n' > names.txt
expect 0 '	[ab]	' "$attn" detect data/images/000001.pgm --model whole --threshold 0 --classes names.txt

# ---- a folder that cannot be read to its end is an error: no picture is left out without a word
shim="$ATTN_BUILD/tests/libfailing_disk.so"
if [ -f "$shim" ]; then
    mkdir few && cp data/images/00000[1-4].pgm few
    few() {
        env LD_PRELOAD="$shim" "$@" "$attn" detect few --model whole --threshold 0 --threads 1 -q 2> err.txt
    }
    few FAILING_DISK_REPORT=calls > all.txt
    call=0
    while [ "$call" -lt "$(cat calls)" ]; do
        call=$((call + 1))
        few FAILING_DISK_AT=$call > out.txt && ! cmp -s all.txt out.txt &&
            fail "call $call of the disk failed, and pictures were left out without a word"
    done
    # the folder's first entry is read after the folder was opened
    few FAILING_DISK_AT=2 > out.txt
    grep -q 'few: the directory cannot be read' err.txt || fail "readdir: $(cat err.txt)"
fi

# ---- an output that is an input or another output is refused, with both names, and no file is written

# kept PATTERN ARGUMENTS: the command is refused, and no file in the folders own and both is changed, made or removed.
kept() {
    pattern=$1
    shift
    before=$(find own both -type f -exec cksum {} + | sort)
    expect 2 "$pattern" "$attn" "$@"
    same "files after $*" "$before" "$(find own both -type f -exec cksum {} + | sort)"
    [ ! -e new ] || fail "$*: the output was begun"
    rm -rf new
}
mkdir -p own both both/cam1 both/cam2 hard
"$attn" demo detect drawn -n 3 --valid 1 > /dev/null
cp drawn/train/000000.png own/1.png
cp drawn/train/000001.png own/2.png
cp own/1.png both/cam1 && cp own/2.png both/cam2/1.png
cp data/annotations.json own/a.json
ln -s own soft && ln own/2.png hard/2.png && ln -s ../own/1.png hard/1.png
detect="--model whole --threshold 0.9 -q"
for out in own soft own/../own ./own "$work/own"; do # shellcheck disable=SC2086
    kept "$out/1.png would overwrite the input own/1.png" detect own/1.png $detect -o "$out"
    # shellcheck disable=SC2086
    kept "$out/1.png would overwrite the input own/1.png" detect own $detect -o "$out"
done
# shellcheck disable=SC2086
kept 'hard/2.png would overwrite the input own/2.png' detect own/2.png $detect -o hard
# shellcheck disable=SC2086
kept 'own/1.png would overwrite the input hard/1.png' detect hard/1.png $detect -o own
# shellcheck disable=SC2086
kept 'output own/a.json would overwrite the input own/a.json' detect own/1.png $detect --coco own/a.json --data own/a.json
# shellcheck disable=SC2086
kept 'output own/1.png would overwrite the input own/1.png' detect own $detect --coco own/1.png
# shellcheck disable=SC2086
kept 'the outputs new and ./new are the same file' detect own/1.png $detect -o new --coco ./new
cp own/1.png own/1.bmp
# shellcheck disable=SC2086
kept 'the results of own/1.bmp and own/1.png would both be written to new/1.png' detect own $detect -o new
rm own/1.bmp
# shellcheck disable=SC2086
kept 'the results of both/cam1/1.png and both/cam1/../cam1/1.png would both be written to' \
    detect both/cam1/1.png both/cam1/../cam1/1.png $detect -o new
kept 'output own/1.png would overwrite the input own/1.png' show whole own/1.png -o own/1.png
kept 'output soft/1.png would overwrite the input own/1.png' show whole own/1.png -o soft/1.png
kept 'output own/1.png would overwrite the input on standard input' show whole both/cam1/1.png -o own/1.png < own/1.png
cp -r whole model
expect 2 'results, and needs --coco FILE' "$attn" detect both/cam1/1.png --model model --data data
expect 2 'pictures in --out DIR, and needs --out' "$attn" detect both/cam1/1.png --model model --format svg
expect 2 'output model/config.json would overwrite the input model/config.json' \
    "$attn" detect both/cam1/1.png --model model --coco model/config.json
expect 2 'output model/config.json would overwrite the input model/config.json' \
    "$attn" convert model -o model --precision bf16
diff -r whole model || fail "a model was overwritten that was an input"

# ---- pictures keep the folders in which they differ
# shellcheck disable=SC2086
"$attn" detect both/cam1 both/cam2 $detect -o kept1 > out.txt || fail "pictures of two folders"
# shellcheck disable=SC2086
"$attn" detect both/cam1/1.png own/../both/cam2/1.png $detect -o kept2 > out.txt || fail "pictures of two folders"
# shellcheck disable=SC2086
"$attn" detect both/cam1/1.png $detect -o kept3 > out.txt || fail "pictures of two folders"
# shellcheck disable=SC2086
"$attn" detect both/cam1/1.png both/cam1/1.png $detect -o kept3 > out.txt || fail "pictures of two folders"
same "drawn pictures" 'kept1/cam1/1.png kept1/cam2/1.png kept2/cam1/1.png kept2/cam2/1.png kept3/1.png ' \
    "$(find kept1 kept2 kept3 -type f | sort | tr '\n' ' ')"

# ---- the id of a picture: by most parts of its path, and of one picture alone
printf '{"images":[{"id":5,"file_name":"cam1/1.png"},{"id":6,"file_name":"cam2/1.png"}],"annotations":[],"categories":[]}' > cams.json
"$attn" detect both/cam2/1.png --model whole --coco cams.out --data cams.json || fail "ids of pictures in folders"
expect 0 '"image_id": *6' cat cams.out
cp both/cam1/1.png alone.png && mkdir -p other && cp alone.png other/1.png
expect 2 'other/1.png: the annotations cams.json list two pictures that match this path' "$attn" detect other/1.png --model whole --coco cams.out --data cams.json
expect 2 'both/cam2/1.png: another picture has the same id, 1' "$attn" detect both/cam1/1.png both/cam2/1.png --model whole \
    --coco cams.out --strict

# ---- attention: a panel for each box, the encoder's of a place, the page
expect 0 'boxes.svg' "$attn" show whole data/images/000001.pgm --threshold 0 --layer 1 --head 2 -o boxes.svg
grep -q '<svg' boxes.svg || fail "no SVG of the boxes"
expect 0 '"picture": "place.png"' "$attn" show whole data/images/000001.pgm --query 1,2 -o place.png --json
expect 0 'page.html' "$attn" show whole data/images/000001.pgm -o page.html
expect 2 'no box has a score of 1 or more; the best box' "$attn" show whole data/images/000001.pgm --threshold 1
# The picture shows the boxes that were found, at the size of the model and at another.
for size in 0 48; do
    best=$("$attn" detect data/images/000001.pgm --model whole --threshold 0 --size $size | sort -t '	' -k 3 -g | tail -n 1 | cut -f 3)
    said=$("$attn" show whole data/images/000001.pgm --threshold 1 --size $size 2>&1 | sed 's/.*, has \([0-9.]*\);.*/\1/')
    awk "BEGIN { d = $best - $said; exit !(d * d < 1e-6) }" || fail "size $size: show finds $said, detect $best"
done
expect 2 'block 3 of the decoder does not exist: there are 2' "$attn" show whole data/images/000001.pgm --threshold 0 --layer 3
expect 2 'query: "1;2" is not a row and a column' "$attn" show whole data/images/000001.pgm --query '1;2'
expect 2 'does not apply to a detector' "$attn" show whole data/images/000001.pgm --words
damaged whole show damaged data/images/000001.pgm
damaged whole detect data/images/000001.pgm --model damaged
expect 2 'attn detect --coco writes' "$attn" eval whole
expect 2 'not a classifier; it detects objects' "$attn" classify whole data/images/000001.pgm
expect 0 'detects objects' "$attn" info whole

# ---- fine-tuning: the head begins anew for other classes, and is kept where the classes are the same
sed 's/"square"/"box"/' data/annotations.json > data/boxes.json
expect 0 'is in tuned' "$attn" train detect --data data/boxes.json --from whole --out tuned --epochs 1 --batch 4 \
    --freeze 'backbone\..*' --accumulate 2
expect 0 'class_embed.weight.*anew: for other classes' cat tuned/fine-tuning.tsv
expect 0 'backbone.conv1.weight.*taken' cat tuned/fine-tuning.tsv
expect 0 'is in kept' "$attn" train detect --data data --from whole --out kept --epochs 0
expect 0 'class_embed.weight.*taken' cat kept/fine-tuning.tsv

# ---- bad input
expect 2 'the setting "queries" is given, but whole has another value' "$attn" train detect --data data --from whole --out none \
    --queries 7 --quiet
expect 2 'the setting "stages" is given, but whole has another value' "$attn" train detect --data data --from whole --out none \
    --stages 3 --quiet
# shellcheck disable=SC2086
expect 0 'is in three' "$attn" train detect --data data $settings --stages 3 --epochs 1 --out three --quiet
expect 0 '"stage_blocks": \[2, 2, 2\]' cat three/config.json
expect 0 'is in four' "$attn" train detect --data data --from three --out four --stages 3 --epochs 0 --quiet
# shellcheck disable=SC2086
expect 2 '3 objects, but the model has 2 queries' "$attn" train detect --data data $settings --queries 2 --out few --quiet
expect 2 'needs --data, COCO' "$attn" train detect --out none
sed 's/000005.pgm/000099.pgm/' data/annotations.json > data/lost.json
expect 2 '000099.pgm' "$attn" train detect --data data/lost.json --out lost --quiet
sed 's/"height":24/"height":25/' data/annotations.json > data/high.json
# shellcheck disable=SC2086
expect 2 'but its annotations say 32 x 25' "$attn" train detect --data data/high.json $settings --out high --quiet
printf 'a\n' > one.txt
expect 2 "one.txt: the file has 1 names, but the model has 2 classes" "$attn" detect data/images/000001.pgm --model whole --classes one.txt
cp data/images/000001.pgm street.pgm
expect 2 'name is not a number' "$attn" detect street.pgm --model whole --coco results.json
cp street.pgm 12.5.pgm && cp street.pgm +7.pgm
expect 2 'name is not a number' "$attn" detect 12.5.pgm --model whole --coco r.json
expect 2 'name is not a number' "$attn" detect ./+7.pgm --model whole --coco r.json
mkdir -p cam1 cam2 && cp street.pgm cam1/1.pgm && cp street.pgm cam2/1.pgm && cp street.pgm 1.pgm
printf '{"images": [{"id": 11, "file_name": "cam1/1.pgm"}, {"id": 12, "file_name": "cam2/1.pgm"}], "annotations": [], "categories": []}' > cams.json
"$attn" detect cam2/1.pgm --model whole --coco r.json --data cams.json || fail "an id by the path"
grep -q '"image_id":12,' r.json && ! grep -q '"image_id":11,' r.json || fail "cam2/1.pgm does not have its own id"
expect 2 'match this path: cam1/1.pgm and cam2/1.pgm' "$attn" detect 1.pgm --model whole --coco r.json --data cams.json
"$attn" detect street.pgm --model whole --threshold 1 -o none > out.txt 2> err.txt || fail "no box: $(cat err.txt)"
grep -q 'no box has a score of 1; the best is 0\.' err.txt || fail "no box is not told: $(cat err.txt)"
grep -q 'the boxes are drawn in none/street.png' err.txt || fail "-o does not say what it wrote: $(cat err.txt)"
expect 2 'list no picture of this name' "$attn" detect street.pgm --model whole --coco r.json --data data/annotations.json
expect 2 'the folder has no pictures' "$attn" detect data/labels --model whole
expect 2 'cannot be opened' "$attn" detect nothing.png --model whole
expect 2 'needs --model' "$attn" detect street.pgm
expect 2 'the directory has no weights' "$attn" detect street.pgm --model data
head -c 100 data/images/000001.pgm > broken.pgm
expect 2 'broken.pgm' "$attn" detect broken.pgm --model whole
printf 'P2 1 1 255 7\n' > one.pgm
awk 'BEGIN { printf "P2 20000 10 255\n"; for (i = 0; i < 200000; i++) printf "7 " }' > long.pgm
"$attn" detect one.pgm long.pgm --model whole --threshold 0 --size 16 > out.txt 2> err.txt || fail "1 x 1 and 20,000 x 10: $(cat err.txt)"
same "boxes of 1 x 1 and 20,000 x 10" 12 "$(wc -l < out.txt)"

# ---- annotations that are no data: training and evaluation name what is wrong
# hostile SED TRAINED JUDGED: of the annotations changed by SED a training says TRAINED, the evaluation of results JUDGED.
hostile() {
    sed "$1" data/annotations.json > data/hostile.json
    # shellcheck disable=SC2086
    "$attn" train detect --data data/hostile.json $settings --epochs 1 --out hostile > out.txt 2> err.txt
    grep -q "$2" err.txt || fail "training on $1: $(cat err.txt)"
    rm -rf hostile
    "$attn" eval --coco results.json --data data/hostile.json > out.txt 2> err.txt
    cat err.txt >> out.txt
    grep -q "$3" out.txt || fail "evaluating $1: $(cat err.txt)"
}
box='1,/"bbox":\[/s/"bbox":\[/"bbox":'
hostile "${box}[-99,-99,9,9],\"z\":[/" '1 object is left out' '1 boxes of the annotations reach beyond'
hostile "${box}[-99,-99,900,900],\"z\":[/" '2 classes' '1 boxes of the annotations reach beyond'
hostile "${box}[3,3,0,-4],\"z\":[/" '1 object is left out' '1 boxes of the annotations have no area'
hostile '1,/category_id/s/"category_id":[0-9]*/"category_id":99/' 'no category with the id 99' 'no category with the id 99'
hostile '1,/image_id/s/"image_id":[0-9]*/"image_id":99/' '1 object is left out' '1 annotation is left out'
hostile '1,/"id"/s/"id":1,/"id":"1",/' 'images\[0\]: id must be an integer' 'images\[0\]: id must be an integer'
hostile 's/{"id":2,"file/{"id":1,"file/' 'two images have the id 1' 'two images have the id 1'
hostile 's/"bbox"/"segmentation":{"counts":[1,[2]],"size":[4,"a"]},"bbox"/' '2 classes' 'Average Precision'
hostile 's/"bbox"/"segmentation":[[1,2,3],[4,5.5]],"bbox"/' '2 classes' 'Average Precision'

# ---- the detector that attn carries finds drawn shapes, and the commands that attn demo detect prints run as printed
rm -rf found
expect 0 'The trained detector is in shapes/model' "$attn" demo detect shapes -n 8 --valid 24 --seed 5
sed -n '/^Try next:/,$s/^  //p' out.txt > next.sh
same "commands that attn demo detect prints" 4 "$(wc -l < next.sh)"
expect 0 '	\(circle\|square\|triangle\|star\|ring\|cross\)	' sh -e next.sh
same "drawn pictures of shapes" 24 "$(find found -name '*.png' | wc -l)"
"$attn" detect shapes/valid --model shapes/model --coco results.json --data shapes/valid || fail "detecting shapes"
expect 0 '"AP50": 0\.[5-9]' "$attn" eval --coco results.json --data shapes/valid --json
"$attn" demo detect others -n 1 --valid 1 --json > out.txt && cmp shapes/model/model.safetensors others/model/model.safetensors ||
    fail "another seed changes the trained detector"
rm -r others/train others/valid && mv others/model/config.json others
expect 2 'others/model exists already' "$attn" demo detect others
same "files after a refused demo" 'config.json model' "$(cd others && echo *)"
exit $failed
