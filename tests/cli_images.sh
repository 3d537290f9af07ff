#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# Training a model that draws images, drawing, completing and measuring, on pictures made here: horizontal and vertical
# bars, in a folder without classes.  Killed trainings end in the same bits; bad input is named.
. tests/support/cli.sh

# pictures FOLDER COUNT SEED: black pictures of 6 x 6 with one white row or column.
pictures() {
    mkdir -p "$1"
    awk -v folder="$1" -v count="$2" -v seed="$3" 'BEGIN {
        srand(seed)
        for (i = 0; i < count; i++) {
            file = sprintf("%s/%03d.pgm", folder, i); at = int(rand() * 6); lying = rand() < 0.5
            printf "P2 6 6 255\n" > file
            for (y = 0; y < 6; y++) for (x = 0; x < 6; x++)
                printf "%d%s", (lying ? y : x) == at ? 255 : 0, x < 5 ? " " : "\n" > file
            close(file)
        }
    }'
}
pictures data/train 240 1
pictures data/test 60 2
settings="--data data --levels 2 --dim 24 --heads 2 --exterior-blocks 0 --outer-blocks 2 --inner-blocks 2 --batch 16
          --epochs 6 --warmup 10 --rate 0.004 --ema 0.9 --threads 1 --quiet"

# ---- it learns: twelve pictures are log2(12) / 36 = 0.0996 bits a pixel; independent pixels, each white in a sixth of
# them, cost 0.650
# shellcheck disable=SC2086
expect 0 'The model is in whole' "$attn" train images $settings --out whole
expect 0 '"images": 60' "$attn" eval whole --json
sed -n 's/.*"\(baseline_\)*bits_per_dimension": \([0-9.]*\).*/\2/p' out.txt > bits.txt
awk 'NR == 1 && !($1 > 0.0996 && $1 < 0.3) { print "the model costs " $1 " bits"; bad = 1 }
     NR == 2 && !($1 > 0.62 && $1 < 0.69) { print "the baseline costs " $1 " bits"; bad = 1 }
     END { exit bad || NR != 2 }' bits.txt || fail "bits per dimension: $(cat bits.txt)"
expect 0 '^baseline  *0\.6[0-9]* bits per dimension' "$attn" eval whole --data data --part train
expect 0 'part  *valid' "$attn" eval whole --part valid
expect 0 '"images": 300' "$attn" eval whole --part all --json
expect 0 'axial-transformer: ' "$attn" info whole

# shellcheck disable=SC2086
"$attn" train images $settings --epochs 1 --out once > out.txt || fail "one epoch: $(cat err.txt)"
same_scores once 3 bits_per_dimension
damaged once show damaged data/test/007.pgm
damaged once complete damaged data/test/007.pgm -o x.pgm
damaged once eval damaged
damaged once generate damaged -o x.pgm

# ---- the seed determines what is drawn
expect 0 '9 images in .* are in a.pgm' "$attn" generate whole -n 9 -o a.pgm --gap 0 --zoom 1 --seed 5
expect 0 '"images": 9' "$attn" generate whole -n 9 -o b.pgm --gap 0 --zoom 1 --seed 5 --json
expect 0 'in s.pgm' "$attn" generate whole -n 9 -o s.pgm --gap 0 --zoom 1 --seed 5 --slow
expect 0 'in c.pgm' "$attn" generate whole -n 9 -o c.pgm --gap 0 --zoom 1 --seed 6
cmp -s a.pgm b.pgm || fail "the same seed drew other images"
cmp -s a.pgm s.pgm || fail "the slow sampler drew other images"
cmp -s a.pgm c.pgm && fail "two seeds drew the same images"
same "size of the sheet" "$((18 * 18))" "$(tail -c $((18 * 18)) a.pgm | wc -c)"
expect 0 'in sheet.png' "$attn" generate whole -o sheet.png --temperature 0.5
head -c 8 sheet.png | grep -q PNG || fail "sheet.png is no PNG"

# ---- given rows stay, whatever is below: rows 0 to 2 with a vertical bar in column 2
half=$(printf '0 0 255 0 0 0 %.0s' 1 2 3)
printf 'P2 6 6 255\n%s\n%s\n' "$half" "$(printf '9 %.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18)" > half.pgm
expect 0 '3 rows kept, 3 drawn' "$attn" complete whole half.pgm -o done.pgm --zoom 1
cp half.pgm kept.pgm
expect 2 'the output ./half.pgm would overwrite the input half.pgm' "$attn" complete whole half.pgm -o ./half.pgm --zoom 1
expect 2 'the output whole/config.json would overwrite' "$attn" generate whole -o whole/config.json
cmp -s half.pgm kept.pgm || fail "complete changed its input"
expect 0 '"rows_kept": 3' "$attn" complete whole half.pgm -o again.pgm --rows 3 --zoom 1 --json
cmp -s done.pgm again.pgm || fail "completing is not the same twice"
tail -c 36 done.pgm | od -An -v -tu1 -w6 | awk '{ $1 = $1; print }' > rows.txt
same "the given rows" "0 0 255 0 0 0 0 0 255 0 0 0 0 0 255 0 0 0" "$(sed -n 1,3p rows.txt | tr '\n' ' ' | sed 's/ $//')"
same "the bar goes on, at a low temperature" "3" "$("$attn" complete whole half.pgm -o cold.pgm --zoom 1 --temperature 0.1 -q \
    > /dev/null && tail -c 18 cold.pgm | od -An -v -tu1 -w6 | grep -c '0   0 255   0   0   0')"

# Small images are drawn larger, about 96 pixels, unless --zoom is given.
for words in "generate whole -n 1 --gap 0" "complete whole half.pgm"; do
    # shellcheck disable=SC2086
    "$attn" $words -o large.pgm --quiet > /dev/null 2>&1
    same "size of a picture of attn $words" "96 96" "$(sed -n 2p large.pgm)"
done

# ---- a training that was killed ends in the same bits
# shellcheck disable=SC2086
"$attn" train images $settings --save-every 5 --out killed > /dev/null 2>&1 &
pid=$!
while kill -0 $pid 2> /dev/null && [ ! -s killed/checkpoint.safetensors ]; do sleep 0.01; done
kill -9 $pid 2> /dev/null || echo "it had ended before it was killed"
wait $pid 2> /dev/null
expect 0 'The model is in killed' "$attn" train images --out killed --resume --threads 1 --quiet
for file in model.safetensors checkpoint.safetensors history.tsv config.json; do
    cmp -s whole/$file killed/$file || fail "$file differs from that of an unbroken training"
done
expect 2 'exists already' "$attn" train images --data data --out whole
expect 2 'keeps its settings' "$attn" train images --out whole --resume --dim 32
pictures other/train 10 5
expect 2 'not the data' "$attn" train images --out whole --resume --data other

# ---- colour, another size, class folders
mkdir -p colours/x
for i in 0 1 2 3 4 5 6 7 8 9; do printf 'P3 2 1 255\n%d 0 255 9 %d 0\n' $((i * 20)) $((i * 25)) > colours/x/$i.ppm; done
expect 0 'The model is in colour' "$attn" train images --data colours --out colour --size 4 --dim 8 --heads 2 \
    --outer-blocks 1 --inner-blocks 1 --epochs 1 --test 0.3 -q
expect 0 'of 48 numbers' "$attn" eval colour
expect 0 'in colour.png' "$attn" generate colour -n 2 -o colour.png

# ---- what a prediction attends to
printf 'P3 4 4 255\n%s\n' "$(printf '200 0 90 %.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)" > plain.ppm
expect 0 'level 1 has probability 0\.[0-9]*; the likeliest, ' "$attn" show whole half.pgm --query 2,3 -o shown.svg
expect 0 '"channel": 2,' "$attn" show colour plain.ppm --channel 2 --json -o shown.png
expect 0 'shown.html' "$attn" show colour plain.ppm -o shown.html
grep -q '"outer blocks, 4 x 4"' shown.html || fail "no map of the outer blocks"
expect 2 'layer 1: the outer decoder has no row above' "$attn" show whole half.pgm --query 1,3 --layer 1 -o shown.svg
expect 2 'layer 1: the exterior encoder has no earlier plane' "$attn" show colour plain.ppm --channel 1 --layer 1 -o x.svg
expect 2 "the query's column 7 does not exist: there are 6" "$attn" show whole half.pgm --query 1,7 -o shown.svg
expect 2 '\-\-words does not apply to a model that draws images' "$attn" show whole half.pgm --words -o shown.svg

# ---- videos, a folder of frames for each, in the order of their numbers: a white pixel moves right or down, or not
clips() { # FOLDER COUNT FRAMES
    awk -v folder="$1" -v count="$2" -v frames="$3" 'BEGIN {
        for (i = 0; i < count; i++) {
            system("mkdir -p " folder "/" i)
            for (f = 0; f < frames; f++) {
                file = sprintf("%s/%d/frame%d.pgm", folder, i, f + 8); x = (i + (i % 3 == 0 ? f : 0)) % 4
                y = (int(i / 4) + (i % 3 == 1 ? f : 0)) % 4; printf "P2 4 4 255\n" > file
                for (p = 0; p < 16; p++) printf "%d\n", p == 4 * y + x ? 255 : 0 > file
                close(file)
            }
        }
    }'
}
clips clips/train 48 3
clips clips/test 12 3
video="--video --levels 2 --dim 16 --heads 2 --outer-blocks 2 --inner-blocks 1 --threads 1 --batch 8 --warmup 5"
# shellcheck disable=SC2086
expect 0 '3 frames of 4 x 4 pixels, grey, 2 levels' "$attn" train images --data clips $video --epochs 30 --rate 0.01 --ema 0.9 \
    --out moving
expect 0 '"dimensions": 48,' "$attn" eval moving --json
bits=$(sed -n 's/.*"bits_per_dimension": \([0-9.]*\).*/\1/p' out.txt | head -1)
# log2(48) / 48 = 0.116; independent pixels 0.35
awk -v bits="$bits" 'BEGIN { exit !(bits > 0.11 && bits < 0.3) }' || fail "a video costs $bits bits a number"
expect 0 '2 videos in .* are in sheet.pgm' "$attn" generate moving -n 2 -o sheet.pgm --gap 0 --zoom 1 --seed 3
same "size of a sheet of videos" "12 8" "$(sed -n 2p sheet.pgm)"
expect 0 '"frames": 3,' "$attn" generate moving -n 2 -o slow.pgm --gap 0 --zoom 1 --seed 3 --slow --json
cmp -s sheet.pgm slow.pgm || fail "the slow sampler drew another video"
expect 0 '1 frame kept, 2 drawn' "$attn" complete moving clips/test/0 -o done.pgm --zoom 1
tail -c +14 done.pgm > done.raw # rows of 28 = 3 x 4 pixels and gaps of 4 around each
same "the frame given" "255 255 255 255 255 0 0 0" "$(tail -c +$((4 * 28 + 1)) done.raw | od -An -tu1 -N 8 | xargs)"
expect 0 '"frames_kept": 2' "$attn" complete moving clips/test/5 --frames 2 -o done.pgm --json
expect 0 '1 frame kept' "$attn" complete moving clips/test/0/frame9.pgm -o done.pgm
expect 0 '"frame": 2,' "$attn" show moving clips/test/0 --frame 2 --query 2,2 --json -o shown.svg
if "$attn" version --build | grep -q libwebpmux; then
    expect 0 '3 videos' "$attn" generate moving -n 3 -o sheet.webp --fps 4
    same "an animation of three frames" 3 "$(grep -ao ANMF sheet.webp | wc -l)"
else
    expect 2 'sheet.webp: this build has no libwebpmux' "$attn" generate moving -n 3 -o sheet.webp
fi
# shellcheck disable=SC2086
refuse() { # WORDS DATA [OPTION...]
    words=$1 from=$2; shift 2
    expect 2 "$words" "$attn" train images --data "$from" $video "$@" --out refused
}
cp -r clips longer && cp longer/train/7/frame8.pgm longer/train/7/frame11.pgm
refuse 'longer/train/7 has 4 frames, but longer/train/0 has 3; all videos must have the same number' longer
cp -r clips unlike && cp half.pgm unlike/train/1/frame9.pgm
refuse 'unlike/train/1/frame9.pgm has 6 x 6 pixels, but the first frame has 4 x 4; --size resizes all' unlike
expect 0 'The model is in sized' "$attn" train images --data unlike --video --size 4 --dim 8 --heads 2 --epochs 1 -q --out sized
rm -r unlike/train/1 && mkdir unlike/train/1 && for f in 1 2 3; do cp half.pgm unlike/train/1/$f.pgm; done
refuse 'unlike/train/1 has 6 x 6 pixels, but unlike/train/0 has 4 x 4; --size' unlike
clips single 3 1
refuse 'single/0: found 1 frame; a video needs 2 or more' single
refuse 'data/train: the folder has no folders of frames' data
refuse 'clips/train/0: there are no videos; expected folders of pictures' clips/train/0
npy() { # FILE SHAPE BYTES
    head="{'descr': '|u1', 'fortran_order': False, 'shape': ($2), }"
    { printf '\223NUMPY\001\000\166\000%-117s\n' "$head"; head -c "$3" /dev/zero; } > "$1"
}
npy flat.npy '8, 3, 4, 4' 384
refuse 'flat.npy: the array has 4 axes; expected 5 (videos, frames, channels, height, width)' flat.npy
npy one.npy '8, 1, 1, 4, 4' 128
refuse 'one.npy: found 1 frame; a video needs 2 or more' one.npy
npy odd.npy '4, 3, 2, 4, 4' 384
refuse 'odd.npy: the array has 2 channels on axis 2; expected 1 or 3' odd.npy
npy four.npy '2, 4, 1, 4, 4' 128
expect 2 'four.npy has 4 frames, but the model draws videos of 3' "$attn" eval moving --data four.npy
expect 2 'four.npy has 4 frames; expected 1, because the model draws pictures' "$attn" eval whole --data four.npy
expect 2 'video 3 is requested, but the array has 2' "$attn" complete moving four.npy --clip 3 -o done.pgm
expect 2 '\-\-frames 4: clips/test/0 has only 3' "$attn" complete moving clips/test/0 --frames 4 -o done.pgm
expect 2 '\-\-frames applies to models of videos' "$attn" complete whole half.pgm --frames 1 -o done.pgm
expect 2 'frame 3 is requested, but the number of given frames is 1' "$attn" show moving clips/test/0/frame8.pgm --frame 3 -o shown.svg
expect 2 'the model has 3 frames, but the data have 1' "$attn" train images --data data --levels 2 --from moving --out refused
[ ! -e refused ] || fail "a directory was made although the training could not begin"

# ---- bad input
expect 2 'train images needs --data' "$attn" train images --out new
expect 2 'label_smoothing is 0.1; ' "$attn" train images --data data --out new --label-smoothing 0.1
expect 2 'levels cannot be 1; it must be between 2 and 256' "$attn" train images --data data --out new --levels 1
expect 2 'heads' "$attn" train images --data data --out new --dim 9 --heads 2
mkdir empty && expect 2 'empty: there are no images' "$attn" train images --data empty --out new
cp -r data damaged && head -c 40 data/train/007.pgm > damaged/train/007.pgm
expect 2 'damaged/train/\.*/*007.pgm: .*cut off' "$attn" train images --data damaged --out new
[ ! -e new ] || fail "a directory was made although the training could not begin"
expect 2 'nothing/config.json' "$attn" generate nothing -o x.png
expect 2 '"out"\|--out\|-o' "$attn" generate whole
expect 2 'x.gif' "$attn" generate whole -o x.gif
expect 2 'it draws images: attn generate and attn complete use it' "$attn" classify whole half.pgm
expect 2 'rows is 7; it must be between 0 and 6' "$attn" complete whole half.pgm -o x.png --rows 7
expect 2 'nothere.png' "$attn" complete whole nothere.png -o x.png
sed 's|"architecture": "[^"]*"|"architecture": "vit"|' whole/config.json > config.tmp
mkdir odd && cp whole/model.safetensors odd && mv config.tmp odd/config.json
expect 2 'odd/config.json: the architecture "vit" is not a model that draws images' "$attn" generate odd -o x.png
sed 's|"levels": 2|"levels": 700|' whole/config.json > odd/config.json
expect 2 'odd/config.json: levels is 700' "$attn" generate odd -o x.png
exit $failed
