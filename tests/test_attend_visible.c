/* SPDX-License-Identifier: MIT
 * labels: no-isa amx no-tsan
 *
 * Compares attend/block/visible.h and dropout.h with the loop over single pairs in attend/block/row.h, on random
 * problems. These have bands with bounds up to the limits of 64 bits, lengths, masks, blocks, packed sequences,
 * windows, and several axes. ATTN_TEST_PROBLEMS is the number of problems (default 4000), and ATTN_TEST_FIRST is the
 * number of the first problem.
 */
#include "support/cmocka.h"

#include "support/random_problem.h"

#include "attend/block/dropout.h"
#include "attend/block/rows.h"
#include "attend/block/items.h"
#include "attend/block/row.h"
#include "attend/block/visible.h"
#include "attend/problem/problem.h"
#include "base/constants.h"
#include "base/integers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 16, KEYS = 24, LANES = 8 };

typedef struct subject {
    random_problem r;
    attn__execution run;
    attn__canonical canonical;
    attn__visible visible;
    attn__visible_rows rows;
    attn__visible_keys keys;
    attn__sequence one;
    bool by_sequence;
    const attn__canonical *now;
    const attn__execution *arrays;
    int64_t batch;
    attn__rng rng;
} subject;

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static int64_t below(subject *s, int64_t n)
{
    return (int64_t)attn__rng_below(&s->rng, (uint64_t)n);
}

/* Returns a bound near a limit of int64_t, near half of it, or near 0. */
static int64_t far_bound(subject *s)
{
    static const int64_t ends[] = {INT64_MIN, INT64_MAX, 0, INT64_MIN / 2, INT64_MAX / 2};
    int64_t end = ends[below(s, 5)], by = below(s, 6);
    return end == INT64_MAX ? end - by : end == INT64_MIN ? end + by : end + by - 3;
}

static void make(subject *s, uint64_t number)
{
    s->rng = (attn__rng){.seed = number, .stream = 7};
    random_problem_make(&s->r, number);
    s->run = (attn__execution){.at = s->r.arrays};
    attn_problem p = s->r.forward;
    for (int i = 0; i < p.nbands && below(s, 2); i++)
        p.bands[i].lo = far_bound(s), p.bands[i].hi = far_bound(s);
    attn__resolve_problem(&p);
    attn__canonical_make(&s->canonical, &p, below(s, 2));
}

static int64_t padded_index(const attn__group *group, const attn__group *padded, int64_t index)
{
    int64_t at[ATTN_MAX_DIMS], all = 0;
    attn__split(group, index, at);
    for (int i = 0; i < group->n; i++)
        all = all * padded->axis[i].dim.n + at[i];
    return all;
}

/* Returns the state of a row's key by the loop over single pairs. */
static int kind_of(const subject *s, const attn__row *row, int64_t key)
{
    static const int kinds[] = {[ATTN__SPOT_OUT] = ATTN__VISIBLE_OUT,
                                [ATTN__SPOT_FILL] = ATTN__VISIBLE_FILL,
                                [ATTN__SPOT_KEY] = ATTN__VISIBLE_KEY};
    attn__spot spot;
    attn__spot_at(&spot, row, s->by_sequence ? padded_index(&s->now->key, &s->canonical.key, key) : key);
    return kinds[spot.kind];
}

static attn__row row_of(const subject *s, int64_t query)
{
    attn__row row;
    query = s->by_sequence ? padded_index(&s->now->query, &s->canonical.query, query) : query;
    attn__row_at(&row, &s->canonical, &s->run, s->batch, query);
    return row;
}

static void check_view(const attn__visible_tile *t, uint8_t kinds[ROWS][KEYS])
{
    attn__visible_span span = attn__visible_span_of(t->rows, t->row, t->nrows);
    unsigned view = attn__visible_of(t, &span);
    for (int64_t i = 0; i < t->nrows; i++)
        for (int64_t j = 0; j < t->nkeys; j++) {
            int kind = kinds[t->row + i][t->key + j];
            int64_t key = t->keys->first + t->key + j;
            if (view == ATTN__VISIBLE_ALL)
                assert_int_equal(kind, ATTN__VISIBLE_KEY);
            if (view == ATTN__VISIBLE_NONE)
                assert_int_equal(kind, ATTN__VISIBLE_OUT);
            if (view == ATTN__VISIBLE_LIMITS && t->rows->visible->ranges)
                assert_int_equal(kind == ATTN__VISIBLE_KEY,
                                 key >= t->rows->from[0][t->row + i] && key < t->rows->to[0][t->row + i]);
            if (kind == ATTN__VISIBLE_KEY || kind == ATTN__VISIBLE_FILL)
                assert_true(key >= span.first && key < span.last);
        }
}

static void check_hide(const attn__visible_tile *t, uint8_t kinds[ROWS][KEYS])
{
    static _Alignas(64) float scores[KEYS * ROWS], scratch[KEYS * ROWS], flags[KEYS * ROWS];
    const attn__online_softmax_kernel *lanes = attn__online_softmax_for(ATTN_ISA_SCALAR);
    if (t->row % LANES || t->rows->visible->windows)
        return;
    int64_t width = attn__round_up(t->nrows, LANES);
    for (int i = 0; i < KEYS * ROWS; i++)
        scores[i] = 1;
    attn__visible_hide(t, ATTN__VISIBLE_ANY, lanes, scores, width, -2, scratch);
    attn__visible_hide(t, ATTN__VISIBLE_ANY, lanes, flags, width, 0, flags);
    for (int64_t i = 0; i < t->nrows; i++)
        for (int64_t j = 0; j < t->nkeys; j++) {
            bool visible = kinds[t->row + i][t->key + j] == ATTN__VISIBLE_KEY;
            assert_true(scores[j * width + i] == (visible ? 1.0f : -2.0f));
            assert_true((flags[j * width + i] != 0) == visible);
        }
}

static void check_bytes(const attn__visible_tile *t, uint8_t kinds[ROWS][KEYS])
{
    uint8_t bytes[ROWS][KEYS], part[ROWS][KEYS], all[ROWS][KEYS];
    attn__visible_bytes(t, ATTN__VISIBLE_ANY, bytes[0], KEYS);
    memset(all, 1, sizeof all);
    for (unsigned bit = 1; bit < ATTN__VISIBLE_ANY; bit *= 2) {
        attn__visible_bytes(t, bit, part[0], KEYS);
        for (int64_t i = 0; i < t->nrows; i++)
            for (int64_t j = 0; j < t->nkeys; j++)
                all[i][j] &= part[i][j];
    }
    for (int64_t i = 0; i < t->nrows; i++) {
        attn__visible_tile one = *t;
        one.row += i, one.nrows = 1;
        attn__visible_kinds(&one, part[0]);
        for (int64_t j = 0; j < t->nkeys; j++) {
            assert_int_equal(part[0][j], kinds[t->row + i][t->key + j]);
            assert_int_equal(bytes[i][j], part[0][j] == ATTN__VISIBLE_KEY);
            assert_int_equal(all[i][j], bytes[i][j]);
        }
    }
}

static void check_blocks(subject *s)
{
    static uint8_t kinds[ROWS][KEYS];
    int64_t live = 0;
    for (int64_t i = 0; i < s->rows.count; i++) {
        attn__row row = row_of(s, s->rows.first + i);
        if (row.absent)
            break;
        live++;
        for (int64_t j = 0; j < s->keys.count; j++)
            kinds[i][j] = (uint8_t)kind_of(s, &row, s->keys.first + j);
    }
    for (int n = 0; live > 0 && s->keys.count > 0 && n < 4; n++) {
        attn__visible_tile t = {&s->rows, 0, live, &s->keys, 0, s->keys.count};
        if (n > 0) {
            t.row = below(s, live), t.nrows = 1 + below(s, live - t.row);
            t.key = below(s, s->keys.count), t.nkeys = 1 + below(s, s->keys.count - t.key);
        }
        check_view(&t, kinds);
        check_bytes(&t, kinds);
        check_hide(&t, kinds);
    }
}

/* Checks the weight of the fill for the first query of the block and all keys. A fill that is much larger than all
 * scores has a weight that depends only on the number of filled keys. */
static void check_fill_weight(const subject *s)
{
    double fill = s->now->problem.mask_fill;
    attn__row row = row_of(s, s->rows.first);
    int64_t filled = 0;
    for (int64_t j = 0; !row.absent && j < s->now->key.size; j++)
        filled += kind_of(s, &row, j) == ATTN__VISIBLE_FILL;
    if (fill == 0 || row.absent)
        return;
    assert_true(fabs(attn__visible_fill_weight(&s->rows, 0, 3) / ((fill - 3) * ATTN__LOG2E) - 1) < 1e-6);
    if (filled > 0)
        assert_true(fabs(attn__visible_fill_weight(&s->rows, 0, (float)(fill + log((double)filled))) +
                         log2((double)filled)) < 1e-6);
}

/* Checks that entries after the last query repeat the last query. */
static void check_padding(const subject *s)
{
    int64_t last = s->rows.count - 1;
    for (int64_t i = last; i < attn__round_up(s->rows.count, LANES); i++) {
        for (int a = 0; a < s->visible.axes; a++) {
            assert_int_equal(s->rows.from[a][i], s->rows.from[a][last]);
            assert_int_equal(s->rows.to[a][i], s->rows.to[a][last]);
        }
        if (s->rows.mask)
            assert_true(s->rows.mask[i] == s->rows.mask[last]);
    }
}

static void check_dropout(const subject *s)
{
    uint64_t key[ROWS];
    uint32_t low[ROWS], high[ROWS], column[KEYS];
    if (!s->canonical.has_dropout)
        return;
    attn__dropout_rows(s->now, s->arrays, s->batch, s->rows.first, s->rows.count, key);
    attn__dropout_lanes(s->now, s->arrays, s->batch, s->rows.first, s->rows.count, LANES, low, high);
    attn__dropout_columns(s->now, s->keys.first, s->keys.count, column);
    for (int64_t i = 0; i < attn__round_up(s->rows.count, LANES); i++) {
        attn__row row = row_of(s, s->rows.first + attn__min(i, s->rows.count - 1));
        assert_true((low[i] | (uint64_t)high[i] << 32) == row.key);
        assert_true(i >= s->rows.count || key[i] == row.key);
        for (int64_t j = 0; i == 0 && j < s->keys.count; j++) {
            int64_t k = s->keys.first + j;
            attn__spot spot;
            attn__spot_at(&spot, &row, s->by_sequence ? padded_index(&s->now->key, &s->canonical.key, k) : k);
            assert_true(spot.kind == ATTN__SPOT_OUT || spot.column == column[j]);
        }
    }
    assert_true(attn__dropout_factor(s->now) == 1 / (1 - s->canonical.problem.dropout));
}

static void check_batch(subject *s)
{
    int64_t rows = 1 + below(s, ROWS), keys = 1 + below(s, KEYS);
    s->now = &s->canonical, s->arrays = &s->run;
    if (s->by_sequence) {
        attn__sequence_at(&s->one, &s->canonical, &s->run, attn__packed_sequence(&s->canonical, s->batch));
        s->now = &s->one.canonical, s->arrays = &s->one.arrays;
    }
    for (int64_t first = 0; first < s->now->query.size; first += rows) {
        attn__visible_rows_start(&s->rows, s->now, s->arrays, s->batch, first,
                                 attn__min(rows, s->now->query.size - first), LANES);
        check_padding(s);
        check_fill_weight(s);
        for (int64_t key = 0; key < s->now->key.size; key += keys) {
            attn__visible_keys_start(&s->keys, s->now, key, attn__min(keys, s->now->key.size - key));
            check_blocks(s);
            check_dropout(s);
        }
    }
}

static void check(subject *s, void *memory, size_t size)
{
    attn__arena arena = {memory, 0};
    attn__visible_make(&s->visible, &s->canonical);
    attn__visible_rows_take(&s->rows, &s->visible, &arena, ROWS, ATTN__VISIBLE_ANY);
    attn__visible_keys_take(&s->keys, &s->visible, &arena, KEYS, ATTN__VISIBLE_ANY);
    assert_true(arena.used <= size);
    for (s->batch = 0; s->batch < s->canonical.batch.size; s->batch++)
        check_batch(s);
}

static void visible_is_what_the_walk_finds(void **state)
{
    (void)state;
    static subject s;
    static _Alignas(64) char memory[1 << 16];
    uint64_t first = from_environment("ATTN_TEST_FIRST", 0), n = from_environment("ATTN_TEST_PROBLEMS", 4000);
    for (uint64_t number = first; number < first + n; number++) {
        make(&s, number);
        s.by_sequence = attn__is_packed(&s.canonical);
        check(&s, memory, sizeof memory);
        random_problem_free(&s.r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(visible_is_what_the_walk_finds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
