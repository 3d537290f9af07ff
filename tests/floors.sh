#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-asan no-tsan
# A floor includes only what precedes it; the command may include all of it.
# The house is drawn in docs/architecture.md.
set -eu
cd "$(dirname "$0")/.."

# floor: the floors that it may include, in addition to itself and the public headers of the same floors
allowed() {
    case $1 in
    base) echo "" ;;
    simd) echo "base" ;;
    gemm) echo "base simd" ;;
    kernels) echo "base simd gemm" ;;
    attend) echo "base simd gemm kernels" ;;
    config | dist) echo "base" ;;
    tensor) echo "base simd gemm kernels attend dist" ;;
    nn) echo "base kernels attend tensor dist" ;;
    models) echo "base attend config tensor nn dist" ;;
    io | data | train | plot) echo "base kernels attend config tensor dist" ;;
    apps) echo "base attend config tensor nn models io data train plot dist" ;;
    *) echo "floors.sh: unknown floor $1" >&2; exit 1 ;;
    esac
}
# The public header that each floor answers for.
header_floor() {
    case $1 in
    attn.h) echo base ;;
    config.h) echo config ;;
    tensor.h | product.h) echo tensor ;;
    models.h) echo models ;;
    io.h | image.h) echo io ;;
    train.h) echo train ;;
    plot.h) echo plot ;;
    *) echo apps ;;
    esac
}

bad=0
for dir in src/engine/*/ src/networks/*/ src/files/*/ src/plot/ src/apps/; do
    floor=$(basename "$dir")
    may=" $floor $(allowed "$floor") "
    for line in $(grep -rhoE '#include "[^"]+"' "$dir" | sed 's/#include "//; s/"//' | sort -u); do
        case $line in
        attn/*) below=$(header_floor "${line#attn/}") ;;
        */*) below=${line%%/*} ;;
        *) continue ;; # a file of its own folder
        esac
        case $may in
        *" $below "*) ;;
        *) echo "$dir includes \"$line\", which is not below it:"; grep -rln "\"$line\"" "$dir"; bad=1 ;;
        esac
    done
done
# In the engine: block/ is below solve/ and plan/.
if grep -rnE '#include "attend/(solve|plan)/' src/engine/attend/block src/engine/attend/problem src/engine/attend/scores; then
    echo "src/engine/attend/block, problem and scores include nothing of solve/ or plan/"
    bad=1
fi
if grep -rn '#include "attend/solve/' src --include='*.[ch]' | grep -v '^src/engine/attend/solve/'; then
    echo "solvers are reached through plan/solvers.inc only"
    bad=1
fi
# A solver's files, whose names begin with its word, include no header of another solver.
leaning=$(grep -rHE '#include "attend/solve/' src/engine/attend/solve | awk -F'[:"]' '{
        n = split($1, own, "/"); m = split($3, other, "/"); sub(/[_.].*/, "", own[n]); sub(/[_.].*/, "", other[m])
        if (own[n] != other[m]) print $1 " includes " $3}')
if [ -n "$leaning" ]; then
    echo "$leaning"
    echo "a solver includes no header of another one"
    bad=1
fi
# The first line of a file that describes itself begins with its name.
if find src include cli -name '*.[ch]' -exec awk 'FNR == 3 && $1 == "*" && $2 ~ /^[A-Za-z0-9_]+\.[ch]$/ && $3 == "-" {
        base = FILENAME; sub(".*/", "", base); if ($2 != base) print FILENAME " calls itself " $2 }' {} + | grep .; then
    bad=1
fi
exit $bad
