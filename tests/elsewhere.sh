#!/bin/sh
# SPDX-License-Identifier: MIT
# labels: no-isa no-asan no-tsan
# The engine on other systems: all of it compiled without a warning, and its tests that take seconds run by an emulator,
# for those of which compiler and emulator are installed.
#   arm64    aarch64-linux-gnu-gcc and qemu-aarch64-static
#   Windows  zig (the package ziglang of $PYTHON, or of python3) and wine64.  gcc does not align the stack for AVX there.
set -e
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
zig="${PYTHON:-python3} -m ziglang"
# What answers repeated compilations, such as ccache, if the build was configured with it.
launcher=$(sed -n 's/^CMAKE_C_COMPILER_LAUNCHER:[A-Z]*=//p' "${ATTN_BUILD:-build}/CMakeCache.txt" 2>/dev/null || true)
ran=

# run_on SYSTEM COMPILER... -- RUNNER...
run_on() {
    system=$1 compiler=
    shift
    while [ "$1" != -- ]; do
        compiler="$compiler $1"
        shift
    done
    shift
    mkdir "$dir/$system"
    compiler="$compiler -std=gnu11 -O1 -pthread -static -ffp-contract=off -Wall -Wextra -Wno-missing-field-initializers -Werror
        -Itests/support/plain -Iinclude -Isrc/engine -Itests"
    compiler=$(echo $compiler)
    ls src/engine/base/*.c src/engine/gemm/*.c src/engine/kernels/*.c src/engine/kernels/*/*.c src/engine/attend/*/*.c tests/support/simd_probe*.c \
        tests/support/attend_ref*.c tests/support/guard.c tests/support/random_*.c tests/support/solver_check.c |
        xargs -P 2 -I{} sh -c "$compiler -c {} -o $dir/$system/\$(echo {} | tr / _).o"
    for name in simd gemm_tile gemm_kernels gemm_problem batch_norm_kernel attend_random attend_scores attend_usual; do
        echo "== $system: test_$name"
        # a module for several processes is opened at run time, of which the linker warns in a static program
        $compiler "tests/test_$name.c" "$dir/$system"/*.o -lm -o "$dir/test_$name" 2>"$dir/said" || {
            cat "$dir/said"
            exit 1
        }
        ATTN_TEST_PROBLEMS=100 ATTN_TEST_STEP=41 "$@" "$dir/test_$name"
    done
    ran=1
}

if command -v aarch64-linux-gnu-gcc >/dev/null && command -v qemu-aarch64-static >/dev/null; then
    run_on arm64 $launcher aarch64-linux-gnu-gcc -- qemu-aarch64-static
fi
if $zig version >/dev/null 2>&1 && command -v wine64 >/dev/null; then
    export WINEPREFIX="$dir/wine" WINEDEBUG=-all
    run_on windows $zig cc -target x86_64-windows-gnu -- wine64
fi
[ "$ran" ] || {
    echo "skipped: no compiler and emulator of another system"
    exit 77
}
