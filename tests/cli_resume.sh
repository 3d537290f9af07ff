#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-asan no-tsan
# A training that is killed or interrupted goes on, and ends in the same bits as one that was not.
. tests/support/cli.sh

settings="$tiny --epochs 40 --save-every 4 --threads 1 --quiet"

# begin DIR SECONDS: a training in the background that has written a checkpoint and gone on a little; $pid.
begin() {
    rm -rf "$1"
    # shellcheck disable=SC2086
    "$attn" train translate $settings --out "$1" > /dev/null 2> stopped.txt &
    pid=$!
    while kill -0 $pid 2> /dev/null && [ ! -s "$1/checkpoint.safetensors" ]; do sleep 0.01; done
    sleep "$2"
}

# go_on WHAT DIR: resumes and compares with the unbroken training.
go_on() {
    expect 0 'translator is in' "$attn" train translate --out "$2" --resume --threads 1 --quiet
    for file in model.safetensors checkpoint.safetensors history.tsv source.vocab target.vocab config.json; do
        cmp -s "whole/$file" "$2/$file" || fail "$1: $file differs from that of an unbroken training"
    done
}

# shellcheck disable=SC2086
"$attn" train translate $settings --out whole > /dev/null || fail "the unbroken training failed"

for delay in 0 0.$(($$ % 4 + 1)) 0.2; do
    begin killed $delay
    kill -9 $pid 2> /dev/null || echo "it had ended before it was killed, after $delay s"
    wait $pid 2> /dev/null
    go_on "killed after $delay s" killed
done

# Ctrl-C and a polite kill: saved, exit code 130, and one line that says how to go on.
for signal in INT TERM; do
    begin stopped 0.1
    kill -s $signal $pid 2> /dev/null || fail "the training ended before SIG$signal was sent"
    wait $pid
    same "exit code after SIG$signal" 130 $?
    grep -q '^attn: stopped and saved; go on with: attn train translate --out stopped --resume' stopped.txt ||
        fail "SIG$signal: $(cat stopped.txt)"
    expect 0 . "$attn" translate stopped 'Is the door open?'
    go_on "stopped by SIG$signal" stopped
done

# A demo leaves a training that is at work in its folder alone.
begin busy 0.1
expect 1 'busy: another training is running' "$attn" demo -o busy --quiet
[ -s busy/config.json ] || fail "a demo removed the files of a training at work"
kill -9 $pid
wait $pid 2> /dev/null

# Resuming what is done changes nothing; so does giving the same settings again.  Another value is refused.
# shellcheck disable=SC2086
expect 0 'all 40 epochs are done' "$attn" train translate $tiny --epochs 40 --out whole --resume
go_on "done already" whole
cp -r whole other
expect 2 'keeps its settings' "$attn" train translate --out other --resume --rate 0.5
cp -r whole longer
expect 0 'translator is in' "$attn" train translate --out longer --resume --epochs 42 --threads 1 --quiet
same "epochs after training on" 43 "$(wc -l < longer/history.tsv)"

# One that its patience has ended prints why it does nothing, and goes on with more of it.
# shellcheck disable=SC2086
expect 0 'translator is in' "$attn" train translate $tiny --rate 1 --epochs 90 --patience 1 --out ended --threads 1 --quiet
lines=$(wc -l < ended/history.tsv)
[ "$lines" -lt 91 ] || fail "patience never ends"
expect 0 'no epoch is trained: --patience' "$attn" train translate --out ended --resume --epochs 95 --threads 1
same "epochs after its patience" "$lines" "$(wc -l < ended/history.tsv)"
expect 0 'translator is in' "$attn" train translate --out ended --resume --epochs $((lines + 1)) --patience 0 --threads 1 --quiet
same "epochs without patience" $((lines + 2)) "$(wc -l < ended/history.tsv)"

# A training that began when the setting was spelt otherwise goes on, under the spelling of today.
cp -r whole older
sed -i 's/"optimizer":/"optimiser":/' older/training.json
grep -q '"optimiser": "adam"' older/training.json || fail "training.json names no optimizer"
expect 0 'translator is in' "$attn" train translate --out older --resume --epochs 42 --threads 1 --quiet
cmp -s older/checkpoint.safetensors longer/checkpoint.safetensors || fail "the older training went on otherwise"
printf 'Go.\tVa !\n' > other.tsv
expect 2 'not the data' "$attn" train translate --out other --resume --data other.tsv
head -c 1000 whole/checkpoint.safetensors > other/checkpoint.safetensors
expect 2 'other/checkpoint.safetensors' "$attn" train translate --out other --resume
rm other/checkpoint.safetensors
expect 2 'other/checkpoint.safetensors' "$attn" train translate --out other --resume
expect 2 'nodir/training.json' "$attn" train translate --out nodir --resume
# A training in bf16 keeps its precision and goes on to the same bits; they are not those of f32.
for dir in half-whole half; do
    epochs=$([ $dir = half ] && echo 2 || echo 4)
    # shellcheck disable=SC2086
    expect 0 'translator is in' "$attn" train translate $tiny --epochs "$epochs" --precision bf16 --out $dir --quiet
done
expect 0 'translator is in' "$attn" train translate --out half --resume --epochs 4 --quiet
cmp -s half/model.safetensors half-whole/model.safetensors || fail "bf16: resumed, the model differs from that of an unbroken training"
grep -q '"precision": "bf16"' half/training.json || fail "bf16: training.json does not say so"
# So does one in fma, which does without AMX. Products of this width would take it.
wide="--data phrasebook --num-hiddens 64 --ffn-num-hiddens 128 --num-blks 1 --num-heads 2 --max-examples 600 --precision fma"
for dir in fma-whole fma; do
    epochs=$([ $dir = fma ] && echo 1 || echo 2)
    # shellcheck disable=SC2086
    expect 0 'translator is in' "$attn" train translate $wide --epochs "$epochs" --warmup 4 --schedule constant --out $dir --quiet
done
expect 0 'translator is in' "$attn" train translate --out fma --resume --epochs 2 --quiet
cmp -s fma/model.safetensors fma-whole/model.safetensors || fail "fma: resumed, the model differs from that of an unbroken training"
# shellcheck disable=SC2086
expect 0 'translator is in' "$attn" train translate $tiny --epochs 4 --out single --quiet
cmp -s single/model.safetensors half/model.safetensors && fail "bf16: the same bits as f32"
expect 2 'precision' "$attn" train translate --out half --resume --precision f32
for precision in f32 bf16 int8; do
    expect 0 . "$attn" translate half 'Is the door open?' --precision $precision
done
# shellcheck disable=SC2086
expect 2 'int8' "$attn" train translate $tiny --epochs 1 --precision int8 --out eight
exit $failed
