# SPDX-License-Identifier: MIT
# Code that the tests of the command share: a folder of their own, and checks with error messages.
set -u
attn="$ATTN_BUILD/attn"
root=$(pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work" || exit 1
failed=0
# For builds with the address sanitizer, where the test runs without ctest.
export LSAN_OPTIONS="suppressions=$root/tests/support/lsan.txt:print_suppressions=0"

fail() {
    echo "FAILED: $*"
    failed=1
}

# expect CODE PATTERN COMMAND...: the exit code, and a line of output or error that matches.  A failure (code 1 or 2)
# prints exactly one line on standard error, which starts with "attn: ".
expect() {
    code=$1 pattern=$2
    shift 2
    "$@" > out.txt 2> err.txt
    got=$?
    [ "$got" = "$code" ] || fail "$*: exit code $got, not $code: $(head -c 300 err.txt)"
    cat out.txt err.txt | grep -q -e "$pattern" || fail "$*: nothing matches '$pattern': $(head -c 300 out.txt err.txt)"
    case $code in 1 | 2)
        [ "$(wc -l < err.txt)" = 1 ] || fail "$*: not one line of error: $(head -c 500 err.txt)"
        grep -q '^attn: ' err.txt || fail "$*: the error does not start with attn:" ;;
    esac
}

# same WHAT EXPECTED GOT
same() {
    [ "$2" = "$3" ] || fail "$1: '$3', not '$2'"
}

# same_scores MODEL COLUMNS KEYS: what the last epoch wrote into history.tsv is what eval finds on the validation part.
same_scores() {
    "$attn" eval "$1" --part valid --json | sed -n "s/.*\"\($3\)\": \([0-9.e-]*\),*\$/\2/p" > scores.txt
    tail -1 "$1/history.tsv" | cut -f "$2" | tr '\t' '\n' | paste - scores.txt > both.txt
    awk '{ d = $1 - $2; bad += NF != 2 || (d < 0 ? -d : d) > 1e-5 } END { exit bad || NR == 0 }' both.txt ||
        fail "$1: $3 of the last epoch and of eval: $(cat both.txt)"
}

# damaged MODEL COMMAND...: the command names the model's weights where they are cut off; "damaged" stands for the model.
damaged() {
    rm -rf damaged && cp -r "$1" damaged && head -c 100 "$1/model.safetensors" > damaged/model.safetensors
    shift
    expect 2 'damaged/model.safetensors' "$attn" "$@"
    rm -rf damaged
}

# Settings of a training whose epoch takes some hundredths of a second; unquoted, so that they are words.
tiny="--data phrasebook --num-hiddens 32 --ffn-num-hiddens 32 --num-blks 1 --num-heads 2 --max-examples 600
      --warmup 20 --rate 0.003"
