#!/bin/sh
# SPDX-License-Identifier: MIT
# The engine on arm64: all of it compiled without a warning, and its tests that take seconds run by an emulator, where
# compiler and emulator are installed.  The C test library is for the host only, so a few lines stand in for it.
set -e
cd "$(dirname "$0")/.."
command -v aarch64-linux-gnu-gcc >/dev/null && command -v qemu-aarch64-static >/dev/null || {
    echo "skipped: no arm64 compiler or emulator"
    exit 77
}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat >"$dir/cmocka.h" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define fail_msg(...) (printf(__VA_ARGS__), puts(""), exit(1))
#define assert_true(x) ((x) ? (void)0 : fail_msg("%s:%d: %s", __FILE__, __LINE__, #x))
#define assert_false(x) assert_true(!(x))
#define assert_null(x) assert_true((x) == NULL)
#define assert_non_null(x) assert_true((x) != NULL)
#define assert_string_equal(a, b) assert_true(strcmp(a, b) == 0)
#define assert_memory_equal(a, b, n) assert_true(memcmp(a, b, n) == 0)
#define assert_int_equal(a, b) assert_true((long long)(a) == (long long)(b))
#define print_message(...) printf(__VA_ARGS__)
struct CMUnitTest { void (*run)(void **); };
#define cmocka_unit_test(f) {f}
#define cmocka_run_group_tests(tests, setup, teardown) run_tests(tests, sizeof tests / sizeof *tests, setup, teardown)
static inline int run_tests(const struct CMUnitTest *t, size_t n, int (*setup)(void **), int (*teardown)(void **))
{
    void *state = NULL;
    if (setup && setup(&state))
        return 1;
    for (size_t i = 0; i < n; i++)
        t[i].run(&state);
    return teardown ? teardown(&state) : 0;
}
END
flags="-std=gnu11 -O1 -pthread -static -ffp-contract=off -Wall -Wextra -Werror -I$dir -Iinclude -Isrc -Itests"
compile() { aarch64-linux-gnu-gcc $flags "$@"; }
ls src/base/*.c src/gemm/*.c src/kernels/*.c src/kernels/*/*.c src/attend/*/*.c tests/support/simd_probe*.c tests/support/attend_ref*.c \
    tests/support/guard.c tests/support/random_*.c tests/support/solver_check.c tests/support/scratch.c |
    xargs -P 2 -I{} sh -c "aarch64-linux-gnu-gcc $flags -c {} -o $dir/\$(echo {} | tr / _).o"
aarch64-linux-gnu-ar rc "$dir/engine.a" "$dir"/*.o
for name in simd gemm_tile gemm_problem batch_norm_kernel attend_random attend_scores attend_usual; do
    echo "== test_$name"
    # a module for several processes is opened at run time, of which the linker warns in a static program
    compile "tests/test_$name.c" "$dir/engine.a" -lm -o "$dir/test_$name" 2>"$dir/said" || {
        cat "$dir/said"
        exit 1
    }
    ATTN_TEST_PROBLEMS=100 qemu-aarch64-static "$dir/test_$name"
done
