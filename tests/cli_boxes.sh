#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# COCO's evaluation of a file of results, and the data set that is drawn.
. tests/support/cli.sh

expect 0 '^4 images in shapes/train, 2 in shapes/valid' "$attn" demo detect shapes -n 4 --valid 2 --seed 3
expect 0 '"train": 4' "$attn" demo detect again -n 4 --valid 2 --seed 3 --json
cmp shapes/train/000003.png again/train/000003.png || fail "the seed does not determine the images"
cmp shapes/valid/annotations.json again/valid/annotations.json || fail "the seed does not determine the boxes"
cmp -s shapes/train/000000.png shapes/valid/000000.png && fail "the parts have the same images"
expect 2 'shapes/train exists already' "$attn" demo detect shapes

# ---- every object found where it is, with scores that are all equal
sed 's/.*"annotations":\(.*\),"categories".*/\1/; s/"iscrowd":0/"score":0.5/g' shapes/train/annotations.json > results.json
sed 's/^\[{"id":1,"image_id":1,"category_id":[0-9]*/[{"image_id":1,"category_id":77/' results.json > more.json
sed 's/^\[{"id":1,"image_id":1/[{"image_id":77/' results.json > stranger.json
sed 's/{"id":1,\("image_id":1,"category_id":[0-9]*\),"bbox":[^]]*/{"id":0,\1,"bbox":[-5,0,9,0/' shapes/train/annotations.json > odd.json
expect 0 '^ Average Precision  (AP) @\[ IoU=0.50:0.95 | area=   all | maxDets=100 \] = 1.000$' \
    "$attn" eval --coco results.json --data shapes/train
same "lines of measures" 12 "$(grep -c '@\[ IoU=' out.txt)"
expect 0 '^ Average Recall     (AR) @\[ IoU=0.50:0.95 | area= large | maxDets=100 \] = -1.000$' \
    "$attn" eval --coco results.json --data shapes/train/annotations.json
expect 0 '"AP50": 1.0' "$attn" eval --coco results.json --data shapes/train --json
expect 0 '^attn: 1 detections are of categories that the annotations lack, such as 77' "$attn" eval --coco more.json --data shapes/train
expect 0 '^attn: 1 boxes of the annotations reach beyond' "$attn" eval --coco results.json --data odd.json
grep -q 'have no area' err.txt || fail "a box without area is not told"
grep -q 'the id 0' err.txt || fail "an annotation of the id 0 is not told"

# ---- what is refused
expect 2 'results\[0\]: image_id 77: the annotations have no such image' "$attn" eval --coco stranger.json --data shapes/train
expect 2 "shapes/train/annotations.json: found an object, as COCO's annotations are" \
    "$attn" eval --coco shapes/train/annotations.json --data shapes/train
expect 2 "results.json: found a list, as COCO's results are" "$attn" eval --coco results.json --data results.json
expect 2 'none.json: cannot be opened' "$attn" eval --coco none.json --data shapes/train
expect 2 '\-\-coco needs --data' "$attn" eval --coco results.json
expect 2 '\-\-coco needs no model' "$attn" eval model --coco results.json --data shapes/train
expect 2 'eval needs the directory of a training' "$attn" eval
expect 2 'has no images' "$attn" eval --coco results.json --data .
exit "$failed"
