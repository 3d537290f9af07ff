#!/bin/sh
# SPDX-License-Identifier: MIT
# The vector operations and the tile product on NEON: compiled for arm64 and run by an emulator, where both are
# installed.  The C test library is for the host only, so a few lines stand in for it.
set -e
command -v aarch64-linux-gnu-gcc >/dev/null && command -v qemu-aarch64-static >/dev/null || {
    echo "skipped: no arm64 compiler or emulator"
    exit 0
}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat >"$dir/cmocka.h" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define fail_msg(...) (printf(__VA_ARGS__), puts(""), exit(1))
#define assert_true(x) ((x) ? (void)0 : fail_msg("%s:%d: %s", __FILE__, __LINE__, #x))
#define assert_memory_equal(a, b, n) assert_true(memcmp(a, b, n) == 0)
#define assert_int_equal(a, b) assert_true((long long)(a) == (long long)(b))
#define print_message(...) printf(__VA_ARGS__)
struct CMUnitTest { void (*run)(void **); };
#define cmocka_unit_test(f) {f}
#define cmocka_run_group_tests(tests, a, b) run_tests(tests, sizeof tests / sizeof *tests)
static inline int run_tests(const struct CMUnitTest *t, size_t n)
{
    for (size_t i = 0; i < n; i++)
        t[i].run(NULL);
    return 0;
}
END
common="src/base/cpu.c src/base/rng.c tests/support/guard.c"
flags="-std=gnu11 -O2 -static -ffp-contract=off -I$dir -Iinclude -Isrc -Itests"
aarch64-linux-gnu-gcc $flags tests/test_simd.c tests/support/simd_probe*.c $common -lm -o "$dir/simd"
aarch64-linux-gnu-gcc $flags tests/test_tile.c src/kernels/tile/*.c $common -lm -o "$dir/tile"
qemu-aarch64-static "$dir/simd"
qemu-aarch64-static "$dir/tile"
