#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-tsan
# Trainings that mpirun starts: as one process would do them, whatever their number; killed, stopped, resumed on another
# number; errors of one rank.
if ! command -v mpirun > /dev/null; then
    echo "skipped: there is no mpirun"
    exit 77
fi
if [ ! -e "$ATTN_BUILD/attn-mpi.so" ]; then
    echo "skipped: attn was built without MPI"
    exit 77
fi
if ! command -v python3 > /dev/null; then
    echo "skipped: there is no python3 to compare numbers with"
    exit 77
fi
. tests/support/cli.sh
# Open MPI refuses root and more processes than cores unless told; MPICH has none of these.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_mpi_yield_when_idle=1

# near A B BOUND: the f32 tensors of two safetensors files differ by at most BOUND anywhere.
cat > near.py << 'END'
import array, json, struct, sys
def load(path):
    data = open(path, "rb").read()
    n, = struct.unpack("<Q", data[:8])
    out = {}
    for name, about in json.loads(data[8:8 + n]).items():
        if name != "__metadata__" and about["dtype"] == "F32":
            begin, end = about["data_offsets"]
            out[name] = array.array("f", data[8 + n + begin:8 + n + end])
    return out
a, b = load(sys.argv[1]), load(sys.argv[2])
worst, name = max((max((abs(x - y) for x, y in zip(a[k], b[k])), default=0), k) for k in a)
if a.keys() != b.keys() or not worst <= float(sys.argv[3]):
    sys.exit(f"{name} differs by {worst}")
END
near() {
    said=$(python3 near.py "$1/$4" "$2/$4" "$3" 2>&1) || fail "$1/$4 and $2/$4: $said"
}
# same_losses A B: every number of every epoch, within rounding (and there must be two lines at least).
same_losses() {
    paste "$1/history.tsv" "$2/history.tsv" | awk -F '\t' '
        NR > 1 { for (i = 1; i <= NF / 2; i++) { d = $i - $(i + NF / 2); if (d > 3e-5 || d < -3e-5) bad = $0 } }
        END { if (bad || NR < 2) { print bad; exit 1 } }' > differs.txt || fail "$1 and $2: $(cat differs.txt)"
}
ranks() {
    n=$1
    shift
    timeout 300 mpirun -n "$n" "$attn" "$@"
}

# ---- one process, two and three take the same steps: dropout, padding to the whole batch's width, label smoothing,
# clipping; 19 sentences a batch, which neither two nor three divide, and a last one of less
settings="--data phrasebook --num-hiddens 32 --ffn-num-hiddens 32 --num-blks 1 --num-heads 2 --max-examples 150
          --warmup 5 --rate 0.003 --batch 19 --epochs 2 --dropout 0.2 --threads 1 --quiet"
# shellcheck disable=SC2086
"$attn" train translate $settings --out one > /dev/null || fail "one process failed"
for n in 2 3; do
    # shellcheck disable=SC2086
    ranks $n train translate $settings --out "of$n" --json > said.txt 2> err.txt || fail "$n ranks: $(cat err.txt)"
    same "processes of $n" $n "$(sed -n 's/.*"processes": \([0-9]*\).*/\1/p' said.txt)"
    [ ! -s err.txt ] || fail "$n ranks said: $(head -3 err.txt)"
    same_losses one "of$n"
    near one "of$n" 5e-5 checkpoint.safetensors
done
# The same without shared memory.
# shellcheck disable=SC2086
ATTN_RANKS_APART=1 ranks 2 train translate $settings --out apart > /dev/null 2> err.txt || fail "ranks apart: $(cat err.txt)"
same_losses one apart
near one apart 5e-5 checkpoint.safetensors
# shellcheck disable=SC2086
mpirun -n 1 "$attn" train translate $settings --out mixed : \
    -n 1 env ATTN_RANKS_APART=1 "$attn" train translate $settings --out mixed > /dev/null 2> err.txt || fail "one apart: $(cat err.txt)"
cmp -s apart/checkpoint.safetensors mixed/checkpoint.safetensors || fail "one rank that is apart: other bits than two"
# Its teeth: another seed must be found to differ.
# shellcheck disable=SC2086
"$attn" train translate $settings --seed 2 --out other > /dev/null
python3 near.py one/model.safetensors other/model.safetensors 5e-5 > /dev/null 2>&1 && fail "nothing would be found"

# ---- weights so large that ranks pack them for each other, from the second step of a start on: as one process does, and with
# the bits of a run that was begun twice
wide="--data phrasebook --num-hiddens 512 --ffn-num-hiddens 2048 --num-blks 1 --num-heads 4 --max-examples 100 --warmup 5
      --rate 0.0005 --batch 48 --dropout 0.1 --threads 1 --quiet"
# shellcheck disable=SC2086
"$attn" train translate $wide --epochs 2 --out wide1 > /dev/null || fail "one process failed"
# shellcheck disable=SC2086
ranks 2 train translate $wide --epochs 2 --out wide2 > /dev/null 2> err.txt || fail "wide: $(cat err.txt)"
same_losses wide1 wide2
# shellcheck disable=SC2086
ranks 2 train translate $wide --epochs 1 --out widecut > /dev/null 2> err.txt || fail "wide, begun: $(cat err.txt)"
ranks 2 train translate --out widecut --resume --epochs 2 --threads 1 --quiet > /dev/null 2> err.txt ||
    fail "wide, resumed: $(cat err.txt)"
cmp -s wide2/checkpoint.safetensors widecut/checkpoint.safetensors || fail "wide: other bits if it is begun twice"

# ---- as Marian trains: batches by tokens, averaged epochs, judged by what is translated; and from a translator
tokens="--data phrasebook --max-examples 150 --warmup 5 --rate 0.003 --batch-tokens 160 --epochs 2 --average 2 --best-by chrf
        --valid-sentences 5 --dropout 0.2 --threads 1 --quiet"
# shellcheck disable=SC2086
"$attn" train translate $tokens --from one --out tokens1 > /dev/null || fail "one process failed"
# shellcheck disable=SC2086
ranks 2 train translate $tokens --from one --out tokens2 > /dev/null 2> err.txt || fail "tokens: $(cat err.txt)"
near tokens1 tokens2 5e-5 checkpoint.safetensors

# ---- more ranks than examples; layers that do not have the examples first; batch statistics
small="--data phrasebook --num-hiddens 16 --max-examples 40 --warmup 5 --batch 2 --epochs 1 --threads 1 --quiet"
# shellcheck disable=SC2086
for n in 1 3; do ranks $n train translate $small --model bahdanau --dropout 0.3 --out "few$n" > /dev/null 2>&1; done
same_losses few1 few3
near few1 few3 5e-5 model.safetensors
mkdir families data
awk 'BEGIN { srand(3); letters = "ACDEFGHIKLMNPQRSTVWY"
    for (f = 1; f <= 4; f++) for (r = 0; r < 6 + f; r++) {
        file = "families/f" f ".a3m"; printf ">s%d\n", r > file
        for (i = 0; i < 10 + 3 * f; i++) printf "%s", rand() < 0.1 ? "-" : substr(letters, int(rand() * 20) + 1, 1) > file
        printf "\n" > file
    }
    for (k = 0; k < 2; k++) for (i = 0; i < 30; i++) {
        folder = k ? "data/lying" : "data/standing"; at = int(rand() * 6)
        if (i == 0) system("mkdir " folder)
        file = sprintf("%s/%02d.pgm", folder, i); printf "P2 8 8 255\n" > file
        for (y = 0; y < 8; y++) for (x = 0; x < 8; x++) printf "%d\n", int(rand() * 60) + ((k ? y : x) == at ? 190 : 0) > file
        close(file)
    } }'
proteins="--data families --layers 2 --embed-dim 16 --ffn-embed-dim 32 --attention-heads 2 --steps 4 --epochs 1
          --max-tokens 120 --batch 5 --rate 0.003 --warmup 3 --threads 1 --quiet"
pictures="--data data --patch 4 --width 16 --depth 1 --heads 2 --batch 13 --epochs 2 --dropout 0.1 --threads 1 --quiet"
drawn="--data data/lying --levels 2 --dim 24 --heads 2 --exterior-blocks 0 --outer-blocks 2 --inner-blocks 2 --batch 7
       --epochs 2 --warmup 5 --rate 0.004 --ema 0.9 --threads 1 --quiet"
boxes="--data shapes/train --valid-data shapes/valid --stem small --width 4 --norm group --hidden 16 --heads 2 --encoder-depth 1
       --decoder-depth 2 --mlp 16 --queries 8 --batch 4 --epochs 2 --dropout 0.1 --schedule step --rate-drop 1 --threads 1 --quiet"
"$attn" demo detect shapes -n 10 --valid 5 > /dev/null || fail "drawing shapes"
for n in 1 3; do
    # shellcheck disable=SC2086
    ranks $n train msa $proteins --out "msa$n" > /dev/null 2> err.txt || fail "msa: $(cat err.txt)"
    # shellcheck disable=SC2086
    ranks $n train classify $pictures --out "vit$n" > /dev/null 2> err.txt || fail "classify: $(cat err.txt)"
    # shellcheck disable=SC2086
    ranks $n train classify $pictures --accumulate 3 --rates 'blks\..*=0.3 head\..*=2' --freeze 'cls_token' --out "parts$n" > /dev/null 2> err.txt ||
        fail "accumulated gradients and rates: $(cat err.txt)"
    # shellcheck disable=SC2086
    ranks $n train classify --from vit1 --data data --batch 13 --epochs 2 --threads 1 --quiet --lora 2 --lora-on '.*\.W_[qv]' \
        --accumulate 2 --out "lora$n" > /dev/null 2> err.txt || fail "adapters: $(cat err.txt)"
    # shellcheck disable=SC2086
    ranks $n train images $drawn --out "drawn$n" > /dev/null 2> err.txt || fail "images: $(cat err.txt)"
    # shellcheck disable=SC2086
    ranks $n train detect $boxes --out "boxes$n" > /dev/null 2> err.txt || fail "detect: $(cat err.txt)"
done
same_losses boxes1 boxes3
same_losses msa1 msa3
same_losses vit1 vit3
near vit1 vit3 5e-5 model.safetensors
same_losses parts1 parts3
near parts1 parts3 5e-5 model.safetensors
# shellcheck disable=SC2086
ranks 2 train classify --from vit1 --data data --batch 13 --epochs 2 --threads 1 --quiet --lora 2 --lora-on '.*\.W_[qv]' \
    --accumulate 2 --out lora2 > /dev/null 2> err.txt || fail "adapters on two ranks: $(cat err.txt)"
same_losses lora1 lora2
near lora1 lora2 5e-5 adapter_model.safetensors
near lora1 lora2 5e-5 checkpoint.safetensors
same_losses lora1 lora3
near lora1 lora3 5e-5 adapter_model.safetensors
same_losses drawn1 drawn3
near drawn1 drawn3 5e-5 checkpoint.safetensors # averages of weights in it

# ---- many files: each by one rank, told in their order; those that fail are named at the end, once
spread() {
    "$attn" "$@" > alone.txt 2> alone.err
    code=$?
    ranks 3 "$@" > spread.txt 2> spread.err
    same "exit code of $1" $code $?
    cmp -s alone.txt spread.txt || fail "$*: $(diff alone.txt spread.txt | head -5)"
    # How far it is (... left, ... so far) is printed by the clock, not by the work.
    same "errors of $1" "$(grep '^attn: ' alone.err | grep -v ' left$\| so far$')" \
        "$(grep '^attn: ' spread.err | grep -v ' left$\| so far$')"
}
spread contacts families/*.a3m --model msa1 -o maps --threads 1 # refused: its regression was not fitted
awk 'NR == 2 { n = split("ALA A CYS C ASP D GLU E PHE F GLY G HIS H ILE I LYS K LEU L MET M ASN N PRO P GLN Q ARG R SER S THR T VAL V TRP W TYR Y", t, " ")
    for (i = 1; i <= n; i += 2) name[t[i + 1]] = t[i]
    gsub("-", "A")
    for (i = 1; i <= length($0); i++) { half = length($0) / 2; x = 3.8 * (i < half ? i : length($0) - i)
        printf "ATOM  %5d  CA  %s A%4d    %8.3f%8.3f%8.3f  1.00  0.00\n", i, name[substr($0, i, 1)], i, x, i < half ? 0 : 5, 0 } }' \
    families/f1.a3m > f1.pdb
sed '2s/-/A/g' families/f1.a3m > f1.a3m
"$attn" train contacts f1.a3m=f1.pdb --model msa1 --out fitted --strength 100 --quiet > /dev/null || fail "no regression was fitted"
spread contacts families/*.a3m --model fitted -o maps --least 0 --threads 1
same "files told of" 12 "$(grep -c 'f[1-4]' spread.txt)"
"$attn" contacts families/*.a3m --model fitted -o alone --least 0 --threads 1 --quiet > /dev/null
for file in alone/*; do
    cmp -s "$file" "maps/${file#alone/}" || fail "contacts: $file differs where three ranks made it"
done
same "maps" 12 "$(find alone -type f | wc -l)"
spread classify vit1 data/lying/0[0-7].pgm --threads 1
same "pictures" 8 "$(wc -l < spread.txt)"
spread classify vit1 data/lying/00.pgm data/lying/01.pgm nofile.pgm data/lying/02.pgm missing.pgm --threads 1
same "pictures that are there" 3 "$(wc -l < spread.txt)"
"$attn" eval one few1 of2 --part valid --threads 1 | grep -v '^speed' > alone.txt
ranks 2 eval one few1 of2 --part valid --threads 1 2> err.txt | grep -v '^speed' > spread.txt
cmp -s alone.txt spread.txt || fail "eval: $(cat err.txt; diff alone.txt spread.txt | head -5)"
same "models measured" 3 "$(grep -c '^loss' spread.txt)"

# If a rank has no place to store its output, all print an error, and none prints half.
shim="$ATTN_BUILD/tests/libfailing_disk.so"
timeout 300 mpirun -n 1 "$attn" classify vit1 data/lying/0[0-7].pgm --threads 1 : \
    -n 1 env LD_PRELOAD="$shim" FAILING_DISK_TEMPORARY=1 "$attn" classify vit1 data/lying/0[0-7].pgm --threads 1 > spread.txt 2> err.txt
same "exit code without a temporary file" 1 $?
same "pictures without a temporary file" 0 "$(wc -l < spread.txt)"
same "lines about a temporary file" 1 "$(grep -c '^attn: rank 1: .*: cannot create a temporary file' err.txt)"

# ---- what one rank alone finds wrong stops all, with its words, once
grep -v '^#' "$root/data/phrasebook.tsv" | head -150 > a.tsv
sed '100s/\t/ again\t/' a.tsv > b.tsv
# wrong PATTERN ARGUMENTS: rank 1 has a.tsv's settings with others behind them.
wrong() {
    pattern=$1
    shift
    rm -rf bad
    common="train translate --data a.tsv --out bad --num-hiddens 16 --num-blks 1 --num-heads 2 --epochs 2 --threads 1 --quiet"
    # shellcheck disable=SC2086
    timeout 300 mpirun -n 1 "$attn" $common : -n 1 "$attn" $common "$@" > out.txt 2> err.txt
    same "exit code of '$pattern'" 2 $?
    same "lines of '$pattern'" 1 "$(grep -c "^attn: $pattern" err.txt)"
}
wrong 'rank 1: nofile.tsv: ' --data nofile.tsv
wrong 'rank 1 reads other data than rank 0' --data b.tsv
wrong 'rank 1 was given other settings than rank 0' --rate 0.001
mkdir -p bad && touch bad/model.safetensors
wrong_too=$(ranks 2 train translate --data a.tsv --out bad --threads 1 --quiet 2>&1 | grep -c '^attn: bad/model.safetensors exists already')
same "lines about a directory that is taken" 1 "$wrong_too"

# ---- a disk that is full where rank 0 saves: all stop, the error is printed once, and the earlier state can be resumed
full="train translate --data phrasebook --num-hiddens 16 --ffn-num-hiddens 16 --num-blks 1 --num-heads 2 --max-examples 100
      --batch 10 --save-every 2 --threads 1 --quiet"
# shellcheck disable=SC2086
"$attn" $full --epochs 3 --out enough > /dev/null
# shellcheck disable=SC2086
LD_PRELOAD="$shim" FAILING_DISK_REPORT=calls "$attn" $full --epochs 3 --out counted > /dev/null
for part in 3 2; do
    rm -rf onfull
    # shellcheck disable=SC2086
    timeout 120 mpirun -n 1 env LD_PRELOAD="$shim" FAILING_DISK_AT=$(($(cat calls) / part)) FAILING_DISK_ON=1 \
        "$attn" $full --epochs 3 --out onfull : -n 1 "$attn" $full --epochs 3 --out onfull > out.txt 2> err.txt
    same "exit code on a full disk" 2 $?
    same "lines about a full disk" 1 "$(grep -c '^attn: ' err.txt)"
    grep -q '^attn: onfull/.*: \(No space left\|Input/output error\)' err.txt || fail "a full disk: $(head -3 err.txt)"
    ranks 2 train translate --out onfull --resume --threads 1 --quiet > /dev/null 2> err.txt || fail "after a full disk: $(cat err.txt)"
    same_losses enough onfull
done

# ---- a rank that is killed stops the run with a checkpoint: two ranks go on from it to the bits of a run that was not
# stopped, one and three to the same within the rounding of what is left
long="--data phrasebook --num-hiddens 64 --ffn-num-hiddens 128 --num-blks 1 --num-heads 2 --max-examples 300
      --warmup 20 --rate 0.001 --threads 1 --quiet"
# await WHAT CONDITION...: until it holds, as long as mpirun is there; a minute at most.
await() {
    what=$1 turns=0
    shift
    until "$@"; do
        turns=$((turns + 1))
        [ $turns -lt 3000 ] && kill -0 $pid 2> /dev/null || {
            fail "$what did not come: $(cat err.txt)"
            return
        }
        sleep 0.02
    done
}
epochs_done() {
    [ -s "$1/model.safetensors" ] && [ "$(wc -l < "$1/history.tsv")" -gt "$2" ]
}
children() {
    ps -o pid=,args= --ppid "$1" 2> /dev/null | awk '/train translate/ { print $1 }'
}
export OMPI_MCA_odls_base_sigkill_timeout=4 # room to save on a machine that has other work; mpirun waits it out
for how in KILL INT; do
    rm -rf broken whole on1 on2 on3
    # shellcheck disable=SC2086
    mpirun -n 2 "$attn" train translate $long --epochs 4000 --out broken > /dev/null 2> err.txt &
    pid=$!
    await "an epoch's end" epochs_done broken 2
    if [ "$(uname)" = Linux ] && ! grep -q 'memfd:attn-' "/proc/$(children $pid | head -1)/maps"; then
        fail "$how: ranks of one machine share no memory"
    fi
    if [ $how = KILL ]; then
        for child in $(children $pid); do
            grep -qz '^OMPI_COMM_WORLD_RANK=1$\|^PMI_RANK=1$' "/proc/$child/environ" && kill -9 "$child"
        done
    else
        kill -s INT $pid # Ctrl-C
    fi
    wait $pid && fail "$how: mpirun ended well"
    grep -q '^attn: stopped and saved; go on with' err.txt || fail "$how: $(cat err.txt)"
    epochs=$(wc -l < broken/history.tsv) # the one that was broken off, to its end
    # shellcheck disable=SC2086
    ranks 2 train translate $long --epochs "$epochs" --out whole > /dev/null 2>&1
    for n in 2 1 3; do
        cp -r broken "on$n"
        ranks $n train translate --out "on$n" --resume --epochs "$epochs" --threads 1 --quiet > /dev/null 2> err.txt ||
            fail "$how, $n ranks: $(cat err.txt)"
        same_losses whole "on$n"
    done
    cmp -s whole/checkpoint.safetensors on2/checkpoint.safetensors || fail "$how: two ranks end in other bits"
    near on2 on1 5e-5 model.safetensors
    near on2 on3 5e-5 model.safetensors
done

# ---- Ctrl-C around the end: no rank waits for one that has left normally (a rank stops waiting after 20 s only)
short="--data phrasebook --num-hiddens 16 --ffn-num-hiddens 16 --num-blks 1 --num-heads 2 --max-examples 100 --epochs 2
       --threads 1 --quiet"
export OMPI_MCA_odls_base_sigkill_timeout=1 # nothing is resumed here, so nobody needs the room
for part in 01 03 05 08 12 20; do
    rm -rf ended
    # shellcheck disable=SC2086
    timeout 60 mpirun -n 2 "$attn" train translate $short --out ended > /dev/null 2> err.txt &
    pid=$!
    turns=0
    while kill -0 $pid 2> /dev/null && [ ! -s ended/model.safetensors ] && [ $turns -lt 3000 ]; do
        turns=$((turns + 1))
        sleep 0.01
    done
    sleep "0.$part"
    began=$(date +%s)
    kill -s INT $pid 2> /dev/null
    wait $pid
    took=$(($(date +%s) - began))
    [ $took -lt 15 ] || fail "Ctrl-C around the end was obeyed after $took s only: $(cat err.txt)"
done
exit $failed
