/* SPDX-License-Identifier: MIT
 *
 * Tests padding in a batch-invariant context, where the bits of a sequence's results and gradients must not depend on
 * padding. The tests use grouped heads and windows, in f32 and f64.
 */
#include "support/context.h"

#include "attn/attn.h"
#include "base/rng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHANNELS = 8 };

typedef enum member { Q, K, V, DOUT, O, LSE, DQ, DK, DV, MEMBERS } member;

/* Operands and results of one run, as bytes. lse is [heads][positions], and the others are
 * [heads][positions][channels]. */
typedef struct side {
    int64_t positions;
    size_t size; /* bytes of an element */
    unsigned char *array[MEMBERS];
} side;

CONTEXT_OF_TESTS(.threads = 2, .batch_invariant = true)

static int64_t width(member m)
{
    return m == LSE ? 1 : CHANNELS;
}

/* Fills the positions before `length` with numbers that depend only on head, position and channel. */
static void fill(side *s, member m, int64_t heads, int64_t length)
{
    for (int64_t h = 0; h < heads; h++)
        for (int64_t e = 0; e < length * CHANNELS; e++) {
            attn__rng rng = {.seed = 7, .stream = (uint64_t)(m * 1000003 + h * 10007 + e)};
            double x = attn__rng_normal(&rng);
            int64_t at = h * s->positions * CHANNELS + e;
            if (s->size == sizeof x)
                ((double *)(void *)s->array[m])[at] = x;
            else
                ((float *)(void *)s->array[m])[at] = (float)x;
        }
}

static void make(side *s, int64_t heads, int64_t length)
{
    for (member m = 0; m < MEMBERS; m++)
        s->array[m] = calloc((size_t)(heads * s->positions * width(m)), s->size);
    for (member m = Q; m <= DOUT; m++)
        fill(s, m, heads, length);
}

static void run(const attn_problem *p, const attn_arrays *arrays)
{
    attn_plan *plan;
    if (attn_plan_create(&plan, context, p, NULL) != ATTN_OK)
        fail_msg("%s", attn_context_error(context));
    assert_int_equal(attn_plan_execute(plan, arrays, NULL), ATTN_OK);
    attn_plan_destroy(plan);
}

static void run_both(const side *s, attn_problem *forward, attn_problem *backward, int32_t length)
{
    unsigned char *const *a = s->array;
    attn_arrays arrays = {.q = a[Q], .k = a[K], .v = a[V], .lens = &length, .dout = a[DOUT]};
    arrays.o = a[O];
    arrays.lse = a[LSE];
    arrays.dq = a[DQ];
    arrays.dk = a[DK];
    arrays.dv = a[DV];
    run(forward, &arrays);
    run(backward, &arrays);
}

static void compare(const side *alone, const side *padded, const char *what, int64_t heads, int64_t groups)
{
    static const char *const names[] = {"q", "k", "v", "dout", "o", "lse", "dq", "dk", "dv"};
    for (member m = O; m < MEMBERS; m++)
        for (int64_t h = 0; h < (m == DK || m == DV ? groups : heads); h++) {
            size_t row = (size_t)width(m) * alone->size, length = (size_t)alone->positions;
            const unsigned char *one = alone->array[m] + (size_t)h * length * row;
            if (memcmp(one, padded->array[m] + (size_t)h * (size_t)padded->positions * row, length * row) != 0)
                fail_msg("%s, %zu positions padded to %lld: other bits in %s of head %lld", what, length,
                         (long long)padded->positions, names[m], (long long)h);
        }
    for (member m = 0; m < MEMBERS; m++) {
        free(alone->array[m]);
        free(padded->array[m]);
    }
}

static void check_heads(int64_t heads, int64_t groups, int64_t length, int64_t padded, const char *features,
                        size_t size)
{
    side sides[2] = {{.positions = length, .size = size}, {.positions = padded, .size = size}};
    char text[200];
    for (int i = 0; i < 2; i++) {
        attn_problem problems[2];
        make(&sides[i], heads, length);
        snprintf(text, sizeof text, "b1h%dq%dk%dd%dg%d:bhtd,lens,lse%s%s", (int)heads, (int)sides[i].positions,
                 (int)sides[i].positions, CHANNELS, (int)groups, size == sizeof(double) ? ",f64" : "", features);
        for (int d = 0; d < 2; d++)
            assert_int_equal(attn_problem_parse(&problems[d], context, text, d), ATTN_OK);
        run_both(&sides[i], &problems[0], &problems[1], (int32_t)length);
    }
    compare(&sides[0], &sides[1], text, heads, groups);
}

static void grouped_heads_do_not_show_padding(void **state)
{
    static const int64_t lengths[][2] = {{20, 60}, {100, 130}, {150, 300}, {193, 400}};
    static const int64_t heads[][2] = {{1, 1}, {2, 1}, {4, 2}, {6, 1}};
    (void)state;
    for (int l = 0; l < 4; l++)
        for (int h = 0; h < 4; h++)
            for (size_t size = sizeof(float); size <= sizeof(double); size += sizeof(float)) {
                check_heads(heads[h][0], heads[h][1], lengths[l][0], lengths[l][1], "", size);
                check_heads(heads[h][0], heads[h][1], lengths[l][0], lengths[l][1], ",causal", size);
            }
}

/* Describes a window of taps over a sequence. Keys at or past the length are masked. */
static attn_problem window_of(int64_t taps, int64_t positions, attn_dtype dtype)
{
    attn_problem p = {.ndims = 4, .dtype = dtype, .nwindows = 1, .lens_dim = 1};
    p.dims[0] = (attn_dim){.role = ATTN_ROLE_QUERY, .n = positions, .q = CHANNELS, .o = CHANNELS, .lse = 1};
    p.dims[1] = (attn_dim){.role = ATTN_ROLE_KEY, .n = taps, .k = CHANNELS, .v = CHANNELS};
    p.dims[2] = (attn_dim){.role = ATTN_ROLE_CONTRACT, .n = CHANNELS, .q = 1, .k = 1};
    p.dims[3] = (attn_dim){.role = ATTN_ROLE_VALUE, .n = CHANNELS, .v = 1, .o = 1};
    p.windows[0] = (attn_window){.query_dim = 0, .key_dim = 1, .size = positions, .offset = -(taps / 2)};
    p.flags = ATTN_WITH_LENS | ATTN_WANT_LSE;
    return p;
}

static void check_window(int64_t taps, int64_t length, int64_t padded, size_t size)
{
    side sides[2] = {{.positions = length, .size = size}, {.positions = padded, .size = size}};
    for (int i = 0; i < 2; i++) {
        attn_problem forward = window_of(taps, sides[i].positions, size == sizeof(double) ? ATTN_F64 : ATTN_F32);
        attn_problem backward = forward;
        make(&sides[i], 1, length);
        backward.direction = ATTN_DIRECTION_BACKWARD;
        backward.flags = ATTN_WITH_LENS | ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
        run_both(&sides[i], &forward, &backward, (int32_t)length);
    }
    compare(&sides[0], &sides[1], "a window", 1, 1);
}

static void windows_do_not_show_padding(void **state)
{
    (void)state;
    for (size_t size = sizeof(float); size <= sizeof(double); size += sizeof(float)) {
        check_window(5, 20, 23, size);
        check_window(5, 100, 130, size);
        check_window(41, 300, 500, size);
        check_window(300, 400, 430, size);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(grouped_heads_do_not_show_padding),
                                       cmocka_unit_test(windows_do_not_show_padding)};
    return cmocka_run_group_tests(tests, open_context, close_context);
}
