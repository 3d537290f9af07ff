#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# Bad usage and bad input: one line, exit code 2, nothing half written.
. tests/support/cli.sh

# ---- usage
expect 2 'did you mean "train"' "$attn" trian
expect 2 'there is no command "xyzzy"' "$attn" xyzzy
expect 2 'did you mean "translate"' "$attn" help tranlate
expect 2 'there is no solver "flsh"; did you mean "flash"' "$attn" bench attend --solver flsh b1h1q8k8d8
expect 2 'first word of a command; the commands are: attn train' "$attn" train
expect 2 'the command must come before its options' "$attn" --frob
expect 2 'usage: attn translate DIR' "$attn" translate
expect 2 'did you mean --beam' "$attn" translate dir --beem 3
expect 2 'translate has no option -z' "$attn" translate dir -z
expect 2 'beam needs a value' "$attn" translate dir --beam
expect 2 '"x" is not a whole number' "$attn" translate dir --beam=x
expect 2 'must be between 0 and 64' "$attn" translate dir --beam 65
expect 2 'it must be one of test|valid|train|all' "$attn" eval dir --part tset
expect 2 'unexpected argument' "$attn" info a b
expect 2 'needs --out' "$attn" train translate --data phrasebook
expect 2 'needs --data' "$attn" train translate --out new
expect 2 'did you mean --num-heads' "$attn" train translate --out new --num-head=2
expect 2 'there is no dir' "$attn" show dir hello --kinds rows
expect 2 'does not have the form NAME=FILE' "$attn" run --arch transformer --config '{"vocab_size": 9}' --input src
expect 2 'no architecture "tranformer"; did you mean "transformer"' "$attn" list tranformer
expect 2 'no architecture "tranformer"; did you mean "transformer"' "$attn" run --arch tranformer --config '{}' -o new
expect 2 'no key "dimm"; did you mean "dim"' "$attn" run --arch self-attention --config '{"dimm": 64}' -o new
expect 2 'dim must be an integer, not a number: 64.5' "$attn" run --arch self-attention --config '{"dim": 64.5}' -o new
expect 2 'ATTN_BATCH_INVARIANT=yes: expected 0 or 1' env ATTN_BATCH_INVARIANT=yes "$attn" version
printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 2, 6), }" > x.npy
head -c 96 /dev/zero >> x.npy
axes='{"dim": 8, "heads": 2, "num_dimensions": 2}'
expect 2 'axial-attention: expected 8 channels in axis 3 (counted from 0), found 6' "$attn" run --arch axial-attention \
    --config "$axes" --input x=x.npy -o out=y.npy
expect 2 'axial-attention: expected 3 axes, found 4' "$attn" run --arch axial-attention \
    --config '{"dim": 8, "heads": 2, "num_dimensions": 1}' --input x=x.npy -o out=y.npy
expect 2 'json is a switch: it takes no value, or =true or =false' "$attn" list --json=maybe
expect 2 'all cannot be used with a NAME' "$attn" list --all transformer
expect 2 'channels is 2; allowed: 0, 1, 3' "$attn" classify dir x.png --channels 2
expect 2 'ATTN_ISA=mmx' env ATTN_ISA=mmx "$attn" version

# ---- data
pair='Go.	Va !'
: > empty.tsv
printf '%s\nno tab here\n' "$pair" > notab.tsv
printf '%s\n%s\nbad \377\tx\n' "$pair" "$pair" > utf8.tsv
{ echo "$pair"; head -c 1000000 /dev/zero | tr '\0' a; printf '\tx\n'; } > long.tsv
expect 2 'nothere.tsv: cannot be opened' "$attn" train translate --data nothere.tsv --out new
expect 2 'empty.tsv: there are no sentence pairs' "$attn" train translate --data empty.tsv --out new
expect 2 'notab.tsv:2: expected a tab' "$attn" train translate --strict --data notab.tsv --out new
expect 2 'utf8.tsv:3: .*UTF-8 at byte 4' "$attn" train translate --strict --data utf8.tsv --out new
expect 2 'long.tsv:2: the line has 1000002 bytes' "$attn" train translate --strict --data long.tsv --out new
expect 2 'heads' "$attn" train translate --data phrasebook --out new --num-heads 3 --max-examples 300
[ ! -e new ] || fail "a directory was made although the training could not begin"

# ---- a model's directory
# shellcheck disable=SC2086
"$attn" train translate $tiny --out good --epochs 1 --quiet > /dev/null 2>&1 || fail "the tiny training failed"
expect 2 '"transformer" is not a classifier; it translates: attn translate' "$attn" classify good x.png
expect 2 'exists already: resume its training (--resume)' "$attn" train translate --data phrasebook --out good
expect 2 'keeps its settings' "$attn" train translate --out good --resume --num-hiddens 64
expect 2 'nodir/config.json' "$attn" translate nodir hello
for file in config.json model.safetensors source.vocab target.vocab; do
    cp -r good missing && rm "missing/$file"
    expect 2 "missing/$file: cannot be opened" "$attn" translate missing hello
    cp -r good cut && head -c 100 "good/$file" > "cut/$file"
    expect 2 'cut' "$attn" translate cut hello
    cp -r good noise && head -c 3000 /dev/urandom > "noise/$file"
    expect 2 'noise' "$attn" info noise
    rm -r missing cut noise
done

# Pipes and devices are refused by every reader, not waited for; they may be anything that a path leads to.
mkfifo pipe
for file in config.json model.safetensors source.vocab; do
    cp -r good piped && rm "piped/$file" && mkfifo "piped/$file"
    expect 2 "piped/$file: is a pipe; only regular files" timeout 20 "$attn" translate piped hello
    rm -r piped
done
ln -s pipe link.png
expect 2 'pipe: is a pipe' timeout 20 "$attn" train translate --data pipe --out new
expect 2 'link.png: is a pipe' timeout 20 "$attn" run --arch vit --input x=link.png -o new
expect 2 '/dev/zero: is a device' timeout 20 "$attn" train translate --data /dev/zero --out new
expect 2 'pipe: is a pipe' timeout 20 "$attn" train contacts pipe=pipe --model good -o new
expect 2 'good: is a directory' "$attn" train contacts good=good --model good -o new
rm pipe link.png

# A config.json that needs more memory than its weights have numbers for is refused before any is taken.
cp -r good greedy
sed 's/"max_len": *[0-9]*/"max_len": 20000000/' good/config.json > greedy/config.json
expect 2 'parameters of more than [0-9]* bytes, the most that the file of weights can hold; .*P alone needs' "$attn" info greedy
# The address sanitizer maps terabytes for itself.
grep -q -a __asan_init "$attn" ||
    expect 2 'more than [0-9]* bytes' sh -c "ulimit -v 2000000; '$attn' translate greedy hello"
rm -r greedy

# Settings that a config.json may have from anywhere are held to the table of settings.
# odd KEY VALUE MESSAGE
odd() {
    cp -r good odd
    sed "s|^\\( *\"$1\":\\) [^,]*|\\1 $2|" good/config.json > odd/config.json
    cmp -s good/config.json odd/config.json && fail "config.json has no $1 to change"
    expect 2 "odd/config.json: $1 $3" "$attn" translate odd hello
    rm -r odd
}
odd compat '"d3l"' 'is "d3l"; allowed: none, d2l'
odd compat 7 'must be a text, not an integer'
odd seed -1 'is -1; allowed: 0 to'
odd seed '"one"' 'must be an integer, not a text'
odd valid 1.5 'is 1.5; allowed: 0 to 0.9'
odd test true 'must be a number, not true or false'
odd space_before_marks 1 'must be true or false, not an integer'
odd max_tokens 1 'is 1; allowed: 2 to 1000'
cp -r good odd
sed 's|^\( *"batch":\) [^,]*|\1 0|' good/training.json > odd/training.json
expect 2 'odd/training.json: batch is 0; allowed: 1 to' "$attn" train translate --out odd --resume
rm -r odd

# ---- sentences
printf 'Hello!\na\0b\n' > zero.txt
expect 2 'standard input:2: the sentence has a zero byte' sh -c "'$attn' translate good --strict -q < zero.txt"
printf 'Hello!\nbad \377\nI am here.\n' > bad.txt
expect 2 'standard input:2: byte 4: invalid UTF-8' sh -c "'$attn' translate good --strict -q < bad.txt"
same "lines before a bad one" 1 "$(wc -l < out.txt)"
head -c 1000000 /dev/zero | tr '\0' a > long.txt
expect 2 'standard input:1: the sentence is longer than 65536 bytes' sh -c "'$attn' translate good < long.txt"
expect 2 'zero byte' sh -c "printf 'a\\0b\\n' | '$attn' translate good"
expect 2 'sentence:2: byte 1: invalid UTF-8' "$attn" translate good --strict hello "$(printf 'x\377')"
expect 2 'empty' "$attn" show good ''
expect 2 'must end in .png' "$attn" show good hello -o picture.gif
expect 2 '--kinds: "middle"' "$attn" show good hello --kinds encoder,middle
expect 2 '--layer does not apply to a translator' "$attn" show good hello --layer 1
expect 2 '--words does not apply to an array of weights' "$attn" show weights.npy --words
expect 2 'kv_heads 2 does not divide heads 3' "$attn" bench attend b1h3q4k4d8g2

# ---- nowhere to write
expect 2 'standard output: No space left' sh -c "'$attn' list transformer > /dev/full"
mkdir full
if mount -t tmpfs -o size=64k none full 2> /dev/null; then
    expect 2 'No space left' "$attn" train translate --data phrasebook --out full/model --max-examples 300 --epochs 1 -q
    expect 2 'No space left' "$attn" show good 'Is the door open?' -o full/picture.png
    left=$(find full -name '*safetensors*' -o -name '*.png*')
    umount full
    same "files left half written" "" "$left"
else
    echo "a full disk was not tried: only root may mount a small one"
fi

# ---- what is there and cannot be looked at is not passed over as if it were missing
mkdir -p looped && ln -s config.json looped/config.json
expect 2 'looped/config.json: cannot be opened: Too many levels of symbolic links' "$attn" translate looped hello
expect 2 'looped/config.json: cannot be opened: Too many levels of symbolic links' "$attn" contacts looped --model looped
for option in 'train classify --from' 'score --model' 'run --config'; do
    # shellcheck disable=SC2086
    expect 2 'must not be empty' "$attn" $option ''
done
exit $failed
