/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Compares copies that transpose rows and columns with plain loops, on every instruction set of the machine. Sizes are
 * arbitrary. Copies may cover a part of the rows, be scaled or added, or have NaN payloads.
 */
#include "support/cmocka.h"

#include "kernels/elementwise/elementwise.h"
#include "support/guard.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct turning {
    int64_t outer, rows, columns; /* x is [outer][columns][rows], y is [outer][rows][columns] */
    int64_t begin, end;           /* the rows [begin, end) of the outer * rows rows of y are copied */
    double scale;
    bool add;
} turning;

static float number(int64_t i)
{
    return (float)((i * 7919) % 1009) / 64 - 7;
}

static void check(const turning *t, const attn__elementwise_table *table)
{
    int64_t n = t->outer * t->rows * t->columns;
    size_t size = (size_t)n * sizeof(float);
    float *x = guard_alloc(size), *y = guard_alloc(size), *want = malloc(size + 1);
    for (int64_t i = 0; i < n; i++) {
        x[i] = number(i);
        y[i] = want[i] = number(i + 13);
    }
    for (int64_t row = t->begin; row < t->end; row++)
        for (int64_t c = 0; c < t->columns; c++) {
            int64_t from = (row / t->rows * t->columns + c) * t->rows + row % t->rows, to = row * t->columns + c;
            want[to] = (float)t->scale * x[from] + (t->add ? want[to] : 0);
        }
    attn__elementwise_args args = {.x = x,
                                   .y = y,
                                   .s = {t->scale},
                                   .add = t->add,
                                   .rank = 3,
                                   .shape = {t->outer, t->rows, t->columns},
                                   .stride_x = {t->rows * t->columns, 1, t->rows},
                                   .stride_y = {t->rows * t->columns, t->columns, 1}};
    table->run[ATTN__ELEMENTWISE_STRIDED](&args, t->begin, t->end);
    for (int64_t i = 0; i < n; i++)
        if (y[i] != want[i])
            fail_msg("%s: %lld x %lld x %lld, rows %lld to %lld: %g instead of %g at %lld", attn__isa_text(table->isa),
                     (long long)t->outer, (long long)t->rows, (long long)t->columns, (long long)t->begin,
                     (long long)t->end, (double)y[i], (double)want[i], (long long)i);
    guard_free(x, size);
    guard_free(y, size);
    free(want);
}

static void with_each_isa(const turning *t)
{
    for (int isa = 0; isa < ATTN_ISA_COUNT; isa++)
        if (attn__isa_runs_here((attn__isa)isa))
            check(t, attn__elementwise_for(false, (attn__isa)isa));
}

static void transposed_elementwise_matches_for_all_sizes(void **state)
{
    for (int64_t rows = 1; rows <= 50; rows++) {
        for (int64_t columns = 1; columns <= 50; columns += rows % 3 + 1) {
            turning t = {1 + rows % 3, rows, columns, 0, (1 + rows % 3) * rows, 1, false};
            with_each_isa(&t);
            t.begin = (rows * 3 + columns) % t.end;
            t.end -= (t.end - t.begin) * columns / 150;
            t.scale = 0.5;
            t.add = columns % 2;
            with_each_isa(&t);
            t.scale = 1;
            t.add = true;
            with_each_isa(&t);
        }
    }
}

/* Integers are copied as floats, whose bits may be a NaN with any payload. The payload must stay. */
static void nan_payloads_are_kept(void **state)
{
    enum { SIDE = 33 };
    uint32_t x[SIDE * SIDE], y[SIDE * SIDE];
    for (int isa = 0; isa < ATTN_ISA_COUNT; isa++) {
        if (!attn__isa_runs_here((attn__isa)isa))
            continue;
        for (uint32_t i = 0; i < SIDE * SIDE; i++)
            x[i] = i % 3 ? 0x7f800001u + i * 2654435761u % 0x7fffffu : i * 2654435761u;
        memset(y, 0, sizeof y);
        attn__elementwise_args args = {
            .x = x, .y = y, .s = {1}, .rank = 2, .shape = {SIDE, SIDE}, .stride_x = {1, SIDE}, .stride_y = {SIDE, 1}};
        attn__elementwise_for(false, (attn__isa)isa)->run[ATTN__ELEMENTWISE_STRIDED](&args, 0, SIDE);
        for (int i = 0; i < SIDE * SIDE; i++)
            assert_true(y[i] == x[i % SIDE * SIDE + i / SIDE]);
    }
}

RUN_TESTS(TEST(transposed_elementwise_matches_for_all_sizes), TEST(nan_payloads_are_kept))
