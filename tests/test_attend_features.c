/* SPDX-License-Identifier: MIT
 * labels: no-tsan
 *
 * Compares every solver that accepts a problem with the float64 evaluation, forward and backward. The problems cover
 * every feature of attn.h and every pair of features. Their shapes have several heads, two axes, a window, additive
 * scores or tied rows, with one query, prime lengths, or lengths close to those of tiles. Pairs of features also run
 * with 130 short heads. Keys, values and biases that no query reads are NaN or infinity. A NaN that a query reads must
 * reach the same outputs as in the evaluation. ATTN_TEST_STEP=N runs only every N-th problem, and ATTN_TEST_FIRST=N
 * begins with problem N.
 */
#include "support/context.h"

#include "support/attend_ref_walk.h"
#include "support/random_arrays.h"
#include "support/solver_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 0, HEAD = 1, MOST_SOLVERS = 32 };

/* ------------------------------------------------------------------------------------------------- the forms */

typedef enum form { HEADS, TWO_AXES, WINDOW, ADDITIVE, TIED, FORMS } form;
static const char *const form_names[FORMS] = {"heads", "two axes", "window", "additive", "tied rows"};

typedef struct shape {
    int64_t batch, heads, queries, keys, channels, values;
} shape;

static void add_dim(attn_problem *p, attn_role role, int64_t n)
{
    p->dims[p->ndims++] = (attn_dim){.role = role, .n = n};
}

static int last_dim(const attn_problem *p, attn_role role)
{
    for (int d = p->ndims - 1; d >= 0; d--)
        if (p->dims[d].role == role)
            return d;
    return -1;
}

static int64_t *stride_of(attn_problem *p, int dim, size_t field)
{
    return (int64_t *)(void *)((char *)&p->dims[dim] + field);
}

static int64_t length_of(const attn_problem *p, int dim, size_t field)
{
    bool positions =
        field == offsetof(attn_dim, k) || field == offsetof(attn_dim, v) || field == offsetof(attn_dim, mask);
    return positions && p->nwindows && dim == p->windows[0].key_dim ? p->windows[0].size : p->dims[dim].n;
}

/* Sets contiguous strides of the roles' dims in their order, with the last dim innermost. If `inside` is true, the
 * heads are next to the channels. */
static void lay_out(attn_problem *p, size_t field, int roles, bool inside, int64_t next)
{
    for (int pass = 0; pass < 3; pass++) {
        for (int d = p->ndims - 1; d >= 0; d--) {
            int mine = p->dims[d].role >= ATTN_ROLE_CONTRACT ? 0 : d == HEAD && inside ? 1 : 2;
            if (mine != pass || !(roles >> p->dims[d].role & 1))
                continue;
            *stride_of(p, d, field) = next;
            next *= length_of(p, d, field);
        }
    }
}

#define LAY(p, name, roles, inside) lay_out(p, offsetof(attn_dim, name), roles, inside, 1)

static void add_positions(attn_problem *p, form f, const shape *s)
{
    if (f == TWO_AXES) {
        add_dim(p, ATTN_ROLE_QUERY, 3);
        add_dim(p, ATTN_ROLE_QUERY, (s->queries + 2) / 3);
        add_dim(p, ATTN_ROLE_KEY, 2);
        add_dim(p, ATTN_ROLE_KEY, (s->keys + 1) / 2);
        return;
    }
    add_dim(p, ATTN_ROLE_QUERY, s->queries);
    add_dim(p, ATTN_ROLE_KEY, f == WINDOW ? 5 : s->keys);
    if (f == WINDOW)
        p->windows[p->nwindows++] = (attn_window){
            .query_dim = 2, .key_dim = 3, .size = s->queries + 4, .offset = -2, .border = (attn_border)(s->keys % 3)};
}

static void make_form(attn_problem *p, form f, const shape *s)
{
    *p = (attn_problem){.flags = ATTN_WANT_LSE};
    add_dim(p, ATTN_ROLE_BATCH, s->batch);
    add_dim(p, ATTN_ROLE_BATCH, s->heads);
    add_positions(p, f, s);
    if (f == TIED)
        add_dim(p, ATTN_ROLE_CONTRACT, 3);
    add_dim(p, ATTN_ROLE_CONTRACT, s->channels);
    if (f == TIED)
        add_dim(p, ATTN_ROLE_VALUE, 3);
    add_dim(p, ATTN_ROLE_VALUE, s->values);
    p->lens_dim = last_dim(p, ATTN_ROLE_KEY);
    LAY(p, q, ROLE_B | ROLE_Q | ROLE_C, true);
    LAY(p, k, ROLE_B | ROLE_K | ROLE_C, true);
    LAY(p, v, ROLE_B | ROLE_K | ROLE_V, true);
    LAY(p, o, ROLE_B | ROLE_Q | ROLE_V, true);
    LAY(p, lse, ROLE_B | ROLE_Q, false);
    LAY(p, weights, ROLE_B | ROLE_Q | ROLE_K, false);
    if (f == ADDITIVE) {
        p->score = ATTN_SCORE_ADDITIVE;
        LAY(p, w, ROLE_C, false);
    }
}

/* ---------------------------------------------------------------------------------------------- the features */

static void add_softcap(attn_problem *p)
{
    p->softcap = 2;
}

static void add_sinks(attn_problem *p)
{
    p->flags |= ATTN_WITH_SINKS;
    p->dims[HEAD].sinks = 1;
}

static void add_bias(attn_problem *p)
{
    p->flags |= ATTN_WITH_BIAS;
    lay_out(p, offsetof(attn_dim, bias), ROLE_B | ROLE_Q | ROLE_K, false, 1);
}

/* Adds a bias that all heads share, with gaps between its rows. */
static void add_bias_apart(attn_problem *p)
{
    p->flags |= ATTN_WITH_BIAS;
    lay_out(p, offsetof(attn_dim, bias), ROLE_K, false, 1);
    int64_t next = 3;
    for (int d = 0; d < p->ndims; d++)
        next *= p->dims[d].role == ATTN_ROLE_KEY ? p->dims[d].n : 1;
    lay_out(p, offsetof(attn_dim, bias), ROLE_Q, false, next + 1);
}

static void add_bias_of_keys(attn_problem *p)
{
    p->flags |= ATTN_WITH_BIAS;
    lay_out(p, offsetof(attn_dim, bias), ROLE_B | ROLE_K, false, 1);
}

static void by_distance(attn_problem *p)
{
    p->dims[last_dim(p, ATTN_ROLE_QUERY)].bias = -1;
    p->dims[last_dim(p, ATTN_ROLE_KEY)].bias = 1;
}

static void add_bias_by_distance(attn_problem *p)
{
    p->flags |= ATTN_WITH_BIAS;
    by_distance(p);
    p->dims[HEAD].bias = p->dims[last_dim(p, ATTN_ROLE_QUERY)].n + p->dims[last_dim(p, ATTN_ROLE_KEY)].n;
}

static void add_bias_by_index(attn_problem *p)
{
    p->flags |= ATTN_WITH_BIAS | ATTN_WITH_BIAS_INDEX;
    by_distance(p);
    p->bias_index = (attn_bias_index){.rows = 11, .row_stride = p->dims[HEAD].n};
    p->dims[HEAD].bias = 1;
}

static void add_bias_by_index_of_pairs(attn_problem *p)
{
    p->flags |= ATTN_WITH_BIAS | ATTN_WITH_BIAS_INDEX;
    lay_out(p, offsetof(attn_dim, bias), ROLE_Q | ROLE_K, false, 1);
    p->bias_index = (attn_bias_index){.rows = 7, .row_stride = 1};
    p->dims[HEAD].bias = 8;
    p->dims[BATCH].bias = 8 * p->dims[HEAD].n + 3;
}

/* Adds a mask over pairs. With a window, the mask is over positions and has no strides along queries. */
static void add_mask(attn_problem *p)
{
    p->flags |= ATTN_WITH_MASK;
    lay_out(p, offsetof(attn_dim, mask), p->nwindows ? ROLE_B | ROLE_K : ROLE_B | ROLE_Q | ROLE_K, false, 1);
}

static void add_mask_of_keys(attn_problem *p)
{
    p->flags |= ATTN_WITH_MASK;
    lay_out(p, offsetof(attn_dim, mask), ROLE_K, false, 1);
    p->dims[BATCH].mask = length_of(p, last_dim(p, ATTN_ROLE_KEY), offsetof(attn_dim, mask)) * 2;
}

static void add_blocks(attn_problem *p)
{
    int query = last_dim(p, ATTN_ROLE_QUERY), key = last_dim(p, ATTN_ROLE_KEY);
    p->flags |= ATTN_WITH_BLOCKS;
    p->blocks = (attn_blocks){.query_dim = query, .key_dim = key, .queries = 6, .keys = 10};
    p->dims[key].blocks = 1;
    p->dims[query].blocks = (p->dims[key].n + 9) / 10;
    p->dims[HEAD].blocks = p->dims[query].blocks * ((p->dims[query].n + 5) / 6);
}

static void add_band(attn_problem *p, int64_t lo, int64_t hi)
{
    p->bands[p->nbands++] = (attn_band){last_dim(p, ATTN_ROLE_QUERY), last_dim(p, ATTN_ROLE_KEY), lo, hi};
}

static void add_causal(attn_problem *p)
{
    add_band(p, INT64_MIN, 0);
}

static void add_causal_bottom_right(attn_problem *p)
{
    add_band(p, INT64_MIN, p->dims[last_dim(p, ATTN_ROLE_KEY)].n - p->dims[last_dim(p, ATTN_ROLE_QUERY)].n);
}

static void add_narrow_band(attn_problem *p)
{
    add_band(p, -3, 4);
}

static void add_lengths(attn_problem *p)
{
    p->flags |= ATTN_WITH_LENS;
    p->dims[BATCH].lens = 1;
}

static void add_lengths_of_queries(attn_problem *p)
{
    p->flags |= ATTN_WITH_LENS;
    lay_out(p, offsetof(attn_dim, lens), ROLE_B | ROLE_Q, false, 1);
}

static void add_packed(attn_problem *p)
{
    int query = last_dim(p, ATTN_ROLE_QUERY), key = last_dim(p, ATTN_ROLE_KEY);
    attn_dim *batch = &p->dims[BATCH];
    p->flags |= ATTN_WITH_PACKED;
    p->packed = (attn_packed){.batch_dim = BATCH,
                              .query_dim = query,
                              .key_dim = key,
                              .queries = batch->n * p->dims[query].n + 2,
                              .keys = batch->n * p->dims[key].n + 2,
                              .align_ends = p->dims[key].n % 2};
    batch->q = batch->k = batch->v = batch->o = batch->lse = 0;
    p->dims[HEAD].lse = p->packed.queries;
}

static void add_dropout(attn_problem *p)
{
    p->dropout = 0.3;
    p->seed = 77, p->stream = 5;
}

static void add_dlse(attn_problem *p)
{
    p->flags |= ATTN_WITH_DLSE;
}

static void add_fill(attn_problem *p)
{
    p->mask_fill = -2.5;
}

static void add_large_fill(attn_problem *p)
{
    p->mask_fill = -1e6;
}

static void add_bf16(attn_problem *p)
{
    p->dtype = ATTN_BF16;
}

static void add_f64(attn_problem *p)
{
    p->dtype = ATTN_F64;
}

static void add_bf16_keys(attn_problem *p)
{
    (void)p; /* Nothing is set here, because random_problem_narrow_keys converts the keys later. */
}

static void add_groups(attn_problem *p)
{
    p->dims[HEAD].k = p->dims[HEAD].v = 0;
}

static void add_table(attn_problem *p)
{
    int query = last_dim(p, ATTN_ROLE_QUERY), key = last_dim(p, ATTN_ROLE_KEY),
        channel = last_dim(p, ATTN_ROLE_CONTRACT);
    int64_t reach = p->dims[query].n + p->dims[key].n + 4;
    attn_relative *r = &p->relatives[p->nrelatives++];
    *r = (attn_relative){.query_dim = query, .key_dim = key, .offset = reach, .rows = 2 * reach + 1};
    int64_t next = 1;
    for (int d = channel; d >= 0; d--) {
        if (p->dims[d].role != ATTN_ROLE_CONTRACT)
            continue;
        r->stride[d] = next;
        next *= p->dims[d].n;
    }
    r->row_stride = next;
}

static void add_weights(attn_problem *p)
{
    p->flags |= ATTN_WANT_WEIGHTS;
}

static void add_scale(attn_problem *p)
{
    p->scale = 0.37;
}

/* Two features of the same class exclude each other. */
typedef enum class { FREE, A_BIAS, A_MASK, A_LENGTH, A_TYPE, A_FILL_OR_SINK } class;

typedef struct feature {
    const char *name;
    void (*add)(attn_problem *p);
    class class;
} feature;

static const feature features[] = {
    {"softcap", add_softcap, FREE},
    {"sinks", add_sinks, A_FILL_OR_SINK},
    {"bias", add_bias, A_BIAS},
    {"bias of shared heads", add_bias_apart, A_BIAS},
    {"bias of keys", add_bias_of_keys, A_BIAS},
    {"bias by distance", add_bias_by_distance, A_BIAS},
    {"bias by index", add_bias_by_index, A_BIAS},
    {"bias by index of pairs", add_bias_by_index_of_pairs, A_BIAS},
    {"mask", add_mask, A_MASK},
    {"mask of keys", add_mask_of_keys, A_MASK},
    {"blocks", add_blocks, FREE},
    {"causal", add_causal, FREE},
    {"causal bottom-right", add_causal_bottom_right, FREE},
    {"narrow band", add_narrow_band, FREE},
    {"lengths", add_lengths, A_LENGTH},
    {"lengths of queries", add_lengths_of_queries, A_LENGTH},
    {"packed", add_packed, FREE},
    {"dropout", add_dropout, FREE},
    {"dlse", add_dlse, FREE},
    {"fill", add_fill, A_FILL_OR_SINK},
    {"large fill", add_large_fill, A_FILL_OR_SINK},
    {"bf16", add_bf16, A_TYPE},
    {"f64", add_f64, A_TYPE},
    {"bf16 keys", add_bf16_keys, A_TYPE},
    {"grouped heads", add_groups, FREE},
    {"table", add_table, FREE},
    {"weights", add_weights, FREE},
    {"scale", add_scale, FREE},
};
enum { FEATURES = sizeof features / sizeof *features };

static bool fit(const feature *a, const feature *b)
{
    bool narrow = a->add == add_bf16_keys || b->add == add_bf16_keys;
    bool weights = a->add == add_weights || b->add == add_weights;
    bool blocks = a->add == add_blocks || b->add == add_blocks, packed = a->add == add_packed || b->add == add_packed;
    return !(blocks && packed) && (a->class == FREE || a->class != b->class) && !(narrow && weights);
}

/* --------------------------------------------------------------------------------------------- the contents */

/* The contents of elements: NaN or infinity in all elements that no query reads, or NaN in one element that some query
 * reads. */
typedef enum contents { NAN_UNUSED, INFINITY_UNUSED, NAN_READ, CONTENTS } contents;

static void poison_bias(random_problem *r, double with)
{
    const array *bias = &r->array[ARRAY_BIAS];
    if (!bias->block)
        return;
    unsigned char *used = calloc((size_t)bias->n, 1);
    assert_non_null(used);
    walk w = {.p = &r->forward};
    if (r->forward.flags & ATTN_WITH_PACKED)
        w.q_offsets = r->arrays.q_offsets, w.k_offsets = r->arrays.k_offsets;
    if (walk_start(&w, ROLE_B | ROLE_Q | ROLE_K))
        do {
            walk at = w;
            if (walk_row_exists(&w) && walk_place(&at, &r->arrays) == WALK_PRESENT)
                used[walk_bias_offset(&at, &r->arrays, offsetof(attn_dim, bias)) - bias->low] = 1;
        } while (walk_next(&w, ROLE_B | ROLE_Q | ROLE_K));
    for (int64_t i = 0; i < bias->n; i++)
        if (!used[i])
            array_set(bias, bias->low + i, with);
    free(used);
}

static void unused_infinite(random_problem *r, array_id id)
{
    const array *a = &r->array[id];
    for (int64_t i = a->low; i < a->low + a->n; i++)
        if (isnan(array_get(a, i)))
            array_set(a, i, i % 2 ? (double)INFINITY : (double)-INFINITY);
}

static void fill(random_problem *r, contents what, uint64_t number)
{
    static const array_id read[] = {ARRAY_Q, ARRAY_K, ARRAY_V};
    attn__rng g = {.seed = 411, .stream = number};
    random_allocate(r);
    random_offsets(&g, r);
    random_index(r);
    random_fill(&g, r, 1);
    poison_bias(r, what == INFINITY_UNUSED ? (double)INFINITY : (double)NAN);
    if (what == INFINITY_UNUSED) {
        unused_infinite(r, ARRAY_K);
        unused_infinite(r, ARRAY_V);
    }
    if (what == NAN_READ) {
        const array *a = &r->array[read[number % 3]];
        array_set(a, a->low + (int64_t)attn__rng_below(&g, (uint64_t)a->n), (double)NAN);
    }
}

/* ------------------------------------------------------------------------------------------------ the check */

typedef struct tally {
    int taken[FEATURES][MOST_SOLVERS][2], problems[FORMS], impossible[FORMS];
    uint64_t number, step, first;
    double worst;
} tally;

CONTEXT_OF_TESTS(.threads = 2)
static tally total;

/* Returns false if attn.h forbids the problem: blocks together with a window, or two masks of one kind. */
static bool is_possible(const random_problem *r)
{
    attn_plan *plan;
    bool possible = attn_plan_create(&plan, context, &r->forward, NULL) == ATTN_OK;
    attn_plan_destroy(plan);
    if (possible) {
        possible = attn_plan_create(&plan, context, &r->backward, NULL) == ATTN_OK;
        attn_plan_destroy(plan);
    }
    attn_context_clear_error(context);
    return possible;
}

static void check_direction(random_problem *r, const truth *t, attn_direction direction, const int pair[2])
{
    if (direction == ATTN_DIRECTION_BACKWARD)
        solver_prepare_backward(context, r);
    for (int i = 0; attn_solver_name(i); i++) {
        if (!solver_check(context, attn_solver_name(i), r, t, direction, &total.worst))
            continue;
        total.taken[pair[0]][i][direction]++;
        if (pair[1] != pair[0])
            total.taken[pair[1]][i][direction]++;
    }
}

static attn_problem backward_of(const attn_problem *forward)
{
    attn_problem p = *forward;
    p.direction = ATTN_DIRECTION_BACKWARD;
    p.flags |= ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
    p.flags |= p.flags & ATTN_WITH_BIAS ? ATTN_WANT_DBIAS : 0;
    p.flags |= p.flags & ATTN_WITH_SINKS ? ATTN_WANT_DSINKS : 0;
    p.flags |= p.nrelatives ? ATTN_WANT_DTABLES : 0;
    p.flags |= p.score == ATTN_SCORE_ADDITIVE ? ATTN_WANT_DW : 0;
    return p;
}

static void check(form f, const shape *s, const int pair[2])
{
    static random_problem r;
    truth t;
    uint64_t number = total.number++;
    if (number < total.first || (number - total.first) % total.step != 0)
        return;
    r = (random_problem){.number = number};
    make_form(&r.forward, f, s);
    bool narrow = false;
    for (int i = 0; i < 2; i++) {
        narrow = narrow || features[pair[i]].add == add_bf16_keys;
        if (i == 0 || pair[1] != pair[0])
            features[pair[i]].add(&r.forward);
    }
    r.backward = backward_of(&r.forward);
    if (!is_possible(&r)) {
        total.impossible[f]++;
        return;
    }
    fill(&r, (contents)(number / 7 % CONTENTS), number);
    if (narrow)
        assert_true(random_problem_narrow_keys(&r));
    total.problems[f]++;
    truth_make(&t, &r);
    check_direction(&r, &t, ATTN_DIRECTION_FORWARD, pair);
    if (!narrow)
        check_direction(&r, &t, ATTN_DIRECTION_BACKWARD, pair);
    truth_free(&t, &r);
    random_problem_free(&r);
}

static int begin(void **state)
{
    const char *first = getenv("ATTN_TEST_FIRST");
    total.step = (uint64_t)test_step();
    total.first = first && *first ? strtoull(first, NULL, 10) : 0;
    return open_context(state);
}

static void each_feature_in_many_shapes(void **state)
{
    (void)state;
    static const shape shapes[] = {{2, 2, 1, 1, 1, 1},   {1, 2, 1, 130, 64, 64},  {1, 1, 16, 67, 16, 16},
                                   {1, 1, 64, 65, 8, 8}, {1, 1, 65, 63, 5, 8},    {1, 1, 129, 31, 8, 8},
                                   {1, 2, 33, 23, 4, 4}, {1, 1, 5, 17, 128, 128}, {1, 1, 2, 19, 300, 280}};
    enum { SHAPES = sizeof shapes / sizeof *shapes, EACH = 3 };
    for (int f = 0; f < FORMS; f++)
        for (int i = 0; i < FEATURES; i++)
            for (int s = 0; s < (f == HEADS ? SHAPES : EACH); s++)
                check((form)f, &shapes[f == HEADS ? s : (s * EACH + i) % SHAPES], (const int[]){i, i});
}

static void each_pair_of_features(void **state)
{
    (void)state;
    static const shape shapes[] = {{2, 2, 7, 5, 3, 2},    {2, 2, 1, 33, 16, 16}, {1, 2, 16, 17, 16, 16},
                                   {2, 1, 17, 15, 8, 8},  {2, 2, 13, 13, 5, 7},  {1, 2, 15, 33, 9, 9},
                                   {2, 2, 1, 66, 8, 8},   {1, 2, 9, 65, 16, 16}, {2, 2, 31, 16, 4, 4},
                                   {2, 2, 2, 19, 33, 32}, {1, 1, 33, 47, 24, 24}};
    enum { SHAPES = sizeof shapes / sizeof *shapes, EACH = 2 };
    for (int f = 0; f < FORMS; f++)
        for (int i = 0; i < FEATURES; i++)
            for (int j = 0; j < i; j++)
                for (int s = 0; s < EACH && fit(&features[i], &features[j]); s++)
                    check((form)f, &shapes[total.number % SHAPES], (const int[]){j, i});
}

/* A work item that computes several heads one after another must not reuse the bias, mask, lengths or blocks of an
 * earlier head. */
static void each_pair_of_features_with_many_heads(void **state)
{
    (void)state;
    static const shape shapes[] = {{26, 5, 3, 4, 3, 2}, {1, 130, 2, 3, 4, 4}, {130, 1, 3, 2, 2, 3}};
    for (int i = 0; i < FEATURES; i++)
        for (int j = 0; j < i; j++)
            if (fit(&features[i], &features[j]))
                check(HEADS, &shapes[total.number % 3], (const int[]){j, i});
}

static void bands_and_fills_over_many_keys(void **state)
{
    (void)state;
    static const shape shapes[] = {
        {2, 2, 1, 300, 8, 8}, {1, 2, 3, 270, 4, 4}, {1, 3, 17, 261, 16, 16}, {1, 1, 5, 290, 24, 24}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int i = 0; i < FEATURES; i++)
            for (int j = 0; j < FEATURES; j++)
                if (features[i].class == A_FILL_OR_SINK && features[i].add != add_sinks && features[j].class == FREE &&
                    (features[j].add == add_causal || features[j].add == add_narrow_band))
                    check(HEADS, &shapes[s], (const int[]){j, i});
}

/* Checks that every pair of features occurred in a problem with heads. Prints how many problems each solver accepted
 * in each direction. */
static void what_solvers_took(void **state)
{
    (void)state;
    for (int f = 0; f < FORMS; f++)
        print_message("  %-10s %5d problems, %4d ruled out\n", form_names[f], total.problems[f], total.impossible[f]);
    print_message("  worst error %.2f of its bound\n", total.worst);
    for (int i = 0; attn_solver_name(i); i++) {
        print_message("  %s:", attn_solver_name(i));
        for (int f = 0; f < FEATURES; f++)
            if (total.taken[f][i][0] || total.taken[f][i][1])
                print_message(" %s %d/%d;", features[f].name, total.taken[f][i][0], total.taken[f][i][1]);
        print_message("\n");
    }
    assert_int_equal(total.impossible[HEADS], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_feature_in_many_shapes), cmocka_unit_test(each_pair_of_features),
        cmocka_unit_test(each_pair_of_features_with_many_heads), cmocka_unit_test(bands_and_fills_over_many_keys),
        cmocka_unit_test(what_solvers_took)};
    return cmocka_run_group_tests(tests, begin, close_context);
}
