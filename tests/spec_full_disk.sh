#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-asan no-tsan
# A disk that fills up: one line, exit code 2, what was there before is still there, and no half file is left.  A limit
# on the size of files simulates the disk; the signal that comes with it is ignored, so that writes fail instead.
. tests/support/cli.sh
trap '' XFSZ

# shellcheck disable=SC2086
"$attn" train translate $tiny --out model --epochs 1 --quiet > /dev/null 2>&1 || fail "the tiny training failed"
cp -r model before

for kind in png svg pdf; do
    echo old > "picture.$kind"
    expect 2 "picture.$kind: cannot be written: " sh -c "ulimit -f 4; '$attn' show model 'Is it here?' -o picture.$kind"
    same "the picture that was there ($kind)" old "$(cat picture.$kind)"
done

# The model itself does not fit; then the model does and the checkpoint, three times as large, does not.
for blocks in 2 300; do
    # shellcheck disable=SC2086
    expect 2 "new/.*: cannot be written: " sh -c "ulimit -f $blocks; '$attn' train translate $(echo $tiny) --out new --epochs 2 -q"
    rm -rf new
done

# A limit on the size of files: words, not a signal, and no temporary file is left.
if command -v python3 > /dev/null; then # a shell may hand the signal on as ignored; Python puts it back
    python3 - "$attn" > limit.txt 2>&1 << 'END' || fail "a limit on the size of files: $(cat limit.txt)"
import os, resource, signal, subprocess, sys
def limited():
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
os.makedirs("limited")
run = subprocess.run([sys.argv[1], "show", "model", "Is it here?", "-o", "limited/x.png"], preexec_fn=limited,
                     stderr=subprocess.PIPE, text=True)
assert run.returncode == 2, run
assert run.stderr.startswith("attn: limited/x.png: cannot be written: ") and run.stderr.count("\n") == 1, run.stderr
assert not os.listdir("limited"), os.listdir("limited")
END
fi

# A training that cannot save goes on from what it had saved, to the same bits, once there is room.
# shellcheck disable=SC2086
"$attn" train translate $tiny --out whole --epochs 12 --threads 1 --quiet > /dev/null 2>&1 || fail "a training failed"
# shellcheck disable=SC2086
"$attn" train translate $tiny --out part --epochs 12 --threads 1 --quiet --save-every 2 > /dev/null 2>&1 &
pid=$!
while kill -0 $pid 2> /dev/null && [ ! -s part/checkpoint.safetensors ]; do sleep 0.01; done
kill -9 $pid 2> /dev/null
wait $pid 2> /dev/null
rm -f part/.[!.]*
cp -r part saved
sh -c "ulimit -f 4; '$attn' train translate --out part --resume --threads 1 -q" > /dev/null 2> err.txt
code=$?
if [ $code = 2 ]; then
    same "lines of error" 1 "$(wc -l < err.txt)"
    for file in saved/*; do
        cmp -s "$file" "part/${file#saved/}" || fail "a full disk changed ${file#saved/}"
    done
    [ -z "$(find part -name '.[!.]*' ! -name .lock)" ] || fail "half a file is left: $(ls -A part)"
fi
expect 0 'translator is in' "$attn" train translate --out part --resume --threads 1 -q
cmp -s whole/model.safetensors part/model.safetensors || fail "after a full disk the training ends in other bits"

# A directory that cannot be written; root can write everything, so that only other users test it.
if [ "$(id -u)" != 0 ]; then
    mkdir closed && chmod 500 closed
    expect 2 'closed/' "$attn" show model 'Is it here?' -o closed/x.png
    expect 2 'closed' "$attn" train translate --data phrasebook --out closed/new
fi
expect 2 'picture.png/x.png: ' "$attn" show model 'Is it here?' -o picture.png/x.png
expect 2 'picture.png' "$attn" train translate --data phrasebook --out picture.png
diff -r model before > /dev/null || fail "the model was changed by commands that only read it"
exit $failed
