/* SPDX-License-Identifier: MIT
 * labels: no-tsan
 *
 * Compares the functions of attend/block for rows, scores, finite numbers and work items with plain loops.
 * test_attend_visible.c tests visible.h and dropout.h.
 */
#include "support/cmocka.h"

#include "support/random_problem.h"

#include "attend/block/finite.h"
#include "attend/block/items.h"
#include "attend/block/row.h"
#include "attend/block/rows.h"
#include "attend/block/scores.h"
#include "attend/problem/problem.h"
#include "base/arena.h"
#include "base/bf16.h"
#include "base/integers.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

enum { PROBLEMS = 1500, MOST = 80 };

typedef struct subject {
    random_problem r;
    attn__execution run;
    attn__canonical canonical;
    attn__rng rng;
} subject;

static int64_t below(subject *s, int64_t n)
{
    return (int64_t)attn__rng_below(&s->rng, (uint64_t)n);
}

static void make(subject *s, uint64_t number, bool backward)
{
    s->rng = (attn__rng){.seed = number, .stream = 9};
    random_problem_make(&s->r, number);
    s->run = (attn__execution){.at = s->r.arrays};
    attn_problem p = backward ? s->r.backward : s->r.forward;
    attn__resolve_problem(&p);
    attn__canonical_make(&s->canonical, &p, below(s, 2));
}

/* Draws a block of queries or keys. Returns its length, and its first index in *first. The length is 0 if the group
 * is empty. */
static int64_t draw_block(subject *s, const attn__group *group, int64_t *first)
{
    *first = 0;
    if (group->size == 0)
        return 0;
    *first = below(s, group->size);
    return 1 + below(s, attn__min(MOST, group->size - *first));
}

static void each_problem(void (*check)(subject *), bool backward)
{
    static subject s;
    for (uint64_t number = 0; number < PROBLEMS; number++) {
        make(&s, number, backward);
        if (s.canonical.batch.size > 0)
            check(&s);
        random_problem_free(&s.r);
    }
}

/* ---------------------------------------------------------------------------------------------------- rows */

static void check_offsets(subject *s)
{
    const attn__canonical *canonical = &s->canonical;
    int64_t batch = below(s, canonical->batch.size), first, at[MOST], n = draw_block(s, &canonical->query, &first);
    int64_t index[ATTN_MAX_DIMS];
    attn__place place = {.drop = 0};
    attn__split(&canonical->batch, batch, index);
    for (int a = 0; a < canonical->batch.n; a++)
        attn__place_advance(&place, &canonical->batch.axis[a], index[a]);
    if (canonical->extras & ATTN__PACKED)
        return;
    for (attn__operand op = 0; op < ATTN__OPERANDS && n > 0; op++) {
        attn__row row;
        attn__query_offsets(canonical, attn__stride_of(op), batch, first, n, at);
        for (int64_t i = 0; i < n; i++) {
            attn__row_at(&row, canonical, &s->run, batch, first + i);
            assert_true(row.offset[op] == at[i]);
        }
        assert_true(attn__stride(&place.at, op) == attn__offsets_one(&canonical->batch, attn__stride_of(op), batch));
    }
    assert_true(place.drop == (uint64_t)attn__offsets_one(&canonical->batch, ATTN__STRIDE(drop), batch));
}

static void offsets_are_those_of_the_walk(void **state)
{
    (void)state;
    each_problem(check_offsets, false);
    each_problem(check_offsets, true);
}

static void check_rows(attn_dtype dtype, bool scattered, bool add)
{
    enum { ROWS = 5, N = 11, LD = 16 };
    static const int64_t at[ROWS] = {300, 0, 40, 200, 120};
    int64_t channel[N];
    _Alignas(64) float f32[512], from[ROWS * LD], to[ROWS * LD];
    uint16_t bf16[512];
    for (int c = 0; c < N; c++)
        channel[c] = 3 * c + 1;
    for (int i = 0; i < 512; i++) {
        f32[i] = (float)(i % 31) - 9;
        bf16[i] = attn__to_bf16(f32[i]);
    }
    for (int i = 0; i < ROWS * LD; i++)
        from[i] = (float)(i % 7) - 2;
    attn__rows x = {dtype == ATTN_F32 ? (void *)f32 : (void *)bf16, dtype, at, ROWS, scattered ? channel : NULL, N};
    assert_true(attn__rows_load(&x, attn__online_softmax_for(ATTN_ISA_SCALAR), to, LD));
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < LD; c++) {
            int64_t place = at[r] + (scattered && c < N ? channel[c] : c);
            assert_true(to[r * LD + c] == (c < N ? f32[place] : 0.0f));
        }
    attn__rows_store(&x, attn__softmax_backward_for(ATTN_ISA_SCALAR), from, LD, 2.0f, add);
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t c = 0; c < N; c++) {
            int64_t place = at[r] + (scattered ? channel[c] : c);
            float now = dtype == ATTN_F32 ? f32[place] : attn__from_bf16(bf16[place]);
            assert_true(now == (add ? to[r * LD + c] : 0.0f) + 2 * from[r * LD + c]);
        }
    if (dtype == ATTN_F32) {
        f32[at[2] + (scattered ? channel[3] : 3)] = INFINITY;
        assert_false(attn__rows_load(&x, attn__online_softmax_for(ATTN_ISA_SCALAR), to, LD));
    }
}

static void rows_are_read_and_written_where_they_lie(void **state)
{
    (void)state;
    for (int which = 0; which < 8; which++)
        check_rows(which & 1 ? ATTN_BF16 : ATTN_F32, which & 2, which & 4);
    attn__group group = {.n = 2, .size = 6, .axis = {{.dim = {.n = 2, .q = 3}}, {.dim = {.n = 3, .q = 1}}}};
    int64_t room[6], *next = room;
    assert_null(attn__offsets_channels(&group, ATTN__STRIDE(dim.q), &next));
    group.axis[0].dim.q = 10;
    assert_ptr_equal(attn__offsets_channels(&group, ATTN__STRIDE(dim.q), &next), room);
    assert_ptr_equal(next, room + 6);
    assert_true(room[4] == 11);
}

/* -------------------------------------------------------------------------------------------------- scores */

static void check_bias(subject *s)
{
    enum { LANES = 8, WIDE = 88 };
    static _Alignas(64) float rows[MOST * WIDE], lanes[MOST * WIDE];
    const attn__canonical *canonical = &s->canonical;
    int64_t row_at[MOST], key_at[MOST], query, key, n = draw_block(s, &canonical->query, &query),
                                                    m = draw_block(s, &canonical->key, &key);
    if (!canonical->has_bias || canonical->problem.dtype == ATTN_F64 || n < 1 || m < 1 ||
        (canonical->problem.flags & ATTN_WITH_BIAS_INDEX))
        return;
    int64_t batch = below(s, canonical->batch.size), width = attn__round_up(n, LANES);
    attn__query_offsets(canonical, ATTN__STRIDE(dim.bias), batch, query, n, row_at);
    attn__offsets_fill(&canonical->key, ATTN__STRIDE(dim.bias), key, m, key_at);
    attn__bias bias = attn__bias_of(canonical, &s->run, false, row_at, n, key_at, m);
    attn__bias_rows(&bias, m + 2, rows, WIDE);
    attn__bias_lanes(&bias, attn__online_softmax_for(ATTN_ISA_SCALAR), 2.0f, lanes, width);
    for (int64_t i = 0; i < n; i++) {
        assert_true(rows[i * WIDE + m] == 0 && rows[i * WIDE + m + 1] == 0);
        for (int64_t j = 0; j < m; j++) {
            float x = ((const float *)s->r.arrays.bias)[row_at[i] + key_at[j]];
            assert_true(rows[i * WIDE + j] == x && lanes[j * width + i] == 2 * x);
        }
    }
}

static void check_running(subject *s)
{
    const attn__canonical *canonical = &s->canonical;
    int64_t first, n = draw_block(s, &canonical->query, &first), batch = below(s, canonical->batch.size);
    float max[MOST], sum[MOST];
    if (canonical->problem.dtype == ATTN_F64 || n < 1 || (canonical->extras & ATTN__PACKED))
        return;
    bool sinks = canonical->extras & ATTN__SINKS;
    attn__running_begin(canonical, &s->run, batch, first, n, n, max, sum);
    for (int64_t i = 0; i < n; i++) {
        attn__row row;
        attn__row_at(&row, canonical, &s->run, batch, first + i);
        float sink = sinks ? ((const float *)s->r.arrays.sinks)[row.offset[ATTN__OP_SINKS]] : -INFINITY;
        float lse = attn__running_lse(canonical, max[i], sum[i]);
        assert_true(sink == -INFINITY ? lse == -INFINITY : fabsf(lse - sink) < 1e-5f * (1 + fabsf(sink)));
        if (!(canonical->problem.flags & ATTN_WANT_LSE))
            continue;
        attn__running_store(canonical, &s->run, batch, first + i, 1, max + i, sum + i);
        assert_true(((const float *)s->r.arrays.lse)[row.offset[ATTN__OP_LSE]] == lse);
    }
}

static void check_delta(subject *s)
{
    const attn__canonical *canonical = &s->canonical;
    int64_t first, n = draw_block(s, &canonical->query, &first), batch = below(s, canonical->batch.size);
    float lse[MOST], delta[MOST];
    if (canonical->problem.dtype == ATTN_F64 || n < 1 || (canonical->extras & ATTN__PACKED) || !s->r.arrays.lse)
        return;
    attn__row row;
    for (int64_t i = 0; i < n; i++) {
        attn__row_at(&row, canonical, &s->run, batch, first + i);
        ((float *)s->r.arrays.lse)[row.offset[ATTN__OP_LSE]] = i % 3 ? (float)i : -INFINITY;
        delta[i] = 5;
    }
    attn__lse_load(canonical, &s->run, batch, first, n, lse, delta);
    for (int64_t i = 0; i < n; i++) {
        attn__row_at(&row, canonical, &s->run, batch, first + i);
        float was = ((const float *)s->r.arrays.lse)[row.offset[ATTN__OP_LSE]];
        bool takes = (canonical->extras & ATTN__DLSE) && was != -INFINITY;
        float less = takes ? ((const float *)s->r.arrays.dlse)[row.offset[ATTN__OP_LSE]] : 0;
        assert_true(lse[i] == (was == -INFINITY ? INFINITY : (float)((double)was * ATTN__LOG2E)));
        assert_true(delta[i] == 5 - less);
    }
}

static void scores_are_those_of_single_pairs(void **state)
{
    (void)state;
    each_problem(check_bias, false);
    each_problem(check_running, false);
    each_problem(check_delta, true);
}

static void masked_keys_score_the_fill_or_nothing(void **state)
{
    (void)state;
    attn__canonical canonical = {.problem = {.mask_fill = -1e6}};
    assert_true(attn__masked_score(&canonical) == -1e6f * (float)ATTN__LOG2E);
    canonical.problem.mask_fill = 0;
    assert_true(attn__masked_score(&canonical) == -INFINITY);
}

/* -------------------------------------------------------------------------------------------------- finite */

enum { OUTS = 9, IN = 13, CHANNELS = 7 };

/* Checks the sums over the pairs that `alive` marks, with and without NaN and infinity in x. Rows of x are `ld`
 * elements apart. */
static void check_channels(const float *x, int64_t ld, int channels, bool transposed, int64_t bads)
{
    float clean[IN * CHANNELS], w[OUTS * IN], want[OUTS * CHANNELS] = {0}, out[OUTS * CHANNELS] = {0};
    uint8_t alive[OUTS * IN];
    int64_t bad[IN], w_out = transposed ? 1 : IN, w_row = transposed ? OUTS : 1;
    for (int i = 0; i < OUTS * IN; i++) {
        alive[i] = i % 3 ? 2 : 1;
        w[i] = alive[i] & 2 ? (float)(i % 4 + 1) : 0.0f;
    }
    int64_t n = attn__finite_clean(x, ld, IN, channels, clean, CHANNELS, bad);
    assert_int_equal(n, bads);
    for (int i = 0; i < OUTS; i++)
        for (int r = 0; r < IN; r++)
            for (int c = 0; c < channels; c++) {
                int64_t pair = i * w_out + r * w_row;
                out[c * OUTS + i] += w[pair] * clean[r * CHANNELS + c];
                want[c * OUTS + i] += alive[pair] & 2 ? w[pair] * x[r * ld + c] : 0.0f;
            }
    attn__finite_sums sums = {.outs = OUTS, .channels = channels, .w = w, .alive = alive, .bit = 2, .w_out = w_out};
    sums.w_row = w_row, sums.factor = 1, sums.out = out, sums.out_row = 1, sums.out_channel = OUTS;
    sums.x = x, sums.x_row = ld;
    attn__finite_repair(&sums, bad, n);
    for (int i = 0; i < OUTS * channels; i++)
        assert_true(out[i] == want[i] || (isnan(out[i]) && isnan(want[i])));
}

static void check_repair(bool grouped, bool transposed)
{
    enum { GROUP = 4 };
    float x[IN * CHANNELS], groups[2 * GROUP * IN];
    for (int i = 0; i < IN * CHANNELS; i++)
        x[i] = (float)(i % 5) - 2;
    x[3 * CHANNELS] = NAN, x[8 * CHANNELS + 6] = INFINITY, x[12 * CHANNELS + 2] = -INFINITY;
    for (int r = 0; r < IN; r++)
        for (int c = 0; c < CHANNELS; c++)
            groups[c / GROUP * GROUP * IN + r * GROUP + c % GROUP] = x[r * CHANNELS + c];
    if (!grouped) {
        check_channels(x, CHANNELS, CHANNELS, transposed, 3);
        return;
    }
    check_channels(groups, GROUP, GROUP, transposed, 2);
    check_channels(groups + GROUP * IN, GROUP, CHANNELS - GROUP, transposed, 1);
}

static void pairs_that_count_are_noted(void **state)
{
    (void)state;
    /* A dropped weight is -0. A weight of 0 of a masked score, but not of another score, does not count. Four rows of
     * two lanes; in the second lane masked scores may fade. */
    const float scores[] = {1.0f, -INFINITY, -INFINITY, 0.0f, NAN, -INFINITY, 3.0f, -INFINITY};
    const float weights[] = {0.5f, 0.0f, 0.0f, 0.0f, NAN, 0.25f, -0.0f, -0.0f};
    static const uint8_t attended[] = {1, 0, 0, 1, 1, 0, 1, 0}, weighed[] = {1, 0, 0, 1, 1, 1, 0, 0};
    static const uint8_t fades[] = {0, 1};
    uint8_t alive[8];
    attn__finite_note(scores, 8, alive);
    assert_memory_equal(alive, attended, 8);
    attn__finite_note_weights(weights, 4, 2, NULL, alive);
    assert_memory_equal(alive, weighed, 8);
    attn__finite_note(scores, 8, alive);
    attn__finite_note_weights(weights, 4, 2, fades, alive);
    assert_int_equal(alive[5], 0);
    alive[5] = 1;
    assert_memory_equal(alive, weighed, 8);
}

static void a_fill_fades_if_its_weight_is_0(void **state)
{
    (void)state;
    const float m[] = {10.0f, 200.0f, -5.0f, NAN};
    uint8_t fades[4];
    assert_true(attn__finite_fades(m, 4, -3.0f, fades));
    assert_true(!fades[0] && fades[1] && !fades[2] && !fades[3]);
    assert_false(attn__finite_fades(m, 1, -3.0f, fades));
}

static void rows_that_are_not_finite_reach_only_pairs_that_count(void **state)
{
    (void)state;
    for (int which = 0; which < 4; which++)
        check_repair(which & 1, which & 2);
}

static void an_arena_that_overflows_stays_at_the_largest_size(void **state)
{
    (void)state;
    attn__arena arena = {0};
    attn__arena_take(&arena, 3, 4);
    assert_true(arena.used == 64);
    attn__arena_take(&arena, INT64_MAX, 16);
    assert_true(arena.used == SIZE_MAX);
    attn__arena_take(&arena, 1, 1);
    assert_true(arena.used == SIZE_MAX);
    arena.used = SIZE_MAX / 64 * 64 - 64;
    attn__arena_take(&arena, 129, 1);
    assert_true(arena.used == SIZE_MAX);
}

/* --------------------------------------------------------------------------------------------------- items */

static void check_items(subject *s)
{
    static attn__item item, next;
    static int64_t seen[4096];
    const attn__canonical *canonical = &s->canonical;
    int64_t block = 1 + below(s, 20), all = canonical->batch.size * canonical->query.size, found = 0, wanted = 0;
    attn__items items = attn__items_make(canonical, &s->run, block);
    assert_true(all <= 4096);
    memset(seen, 0, sizeof seen);
    for (int64_t number = 0; number < items.n; number++) {
        if (!attn__item_start(&item, &items, number))
            continue;
        for (int64_t i = item.first; i < item.first + item.count; i++, found++)
            assert_true(seen[item.batch * canonical->query.size + i]++ == 0);
        if (item.next_batch >= 0 && attn__item_start(&next, &items, number + 1))
            assert_true(next.batch == item.next_batch && next.first == item.next_first);
    }
    for (int64_t batch = 0; batch < canonical->batch.size; batch++)
        for (int64_t query = 0; query < canonical->query.size; query++) {
            attn__row row;
            attn__row_at(&row, canonical, &s->run, batch, query);
            wanted += !row.absent;
        }
    assert_true(found == wanted);
}

static void items_are_all_queries_once(void **state)
{
    (void)state;
    each_problem(check_items, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offsets_are_those_of_the_walk),
        cmocka_unit_test(rows_are_read_and_written_where_they_lie),
        cmocka_unit_test(scores_are_those_of_single_pairs),
        cmocka_unit_test(masked_keys_score_the_fill_or_nothing),
        cmocka_unit_test(rows_that_are_not_finite_reach_only_pairs_that_count),
        cmocka_unit_test(an_arena_that_overflows_stays_at_the_largest_size),
        cmocka_unit_test(pairs_that_count_are_noted),
        cmocka_unit_test(a_fill_fades_if_its_weight_is_0),
        cmocka_unit_test(items_are_all_queries_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
