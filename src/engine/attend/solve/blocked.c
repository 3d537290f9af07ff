/* SPDX-License-Identifier: MIT
 *
 * blocked.c - attention by blocks of queries and keys, with matrix products in float64. This solver is the only fast
 * one for f64 problems and for kernels of the distance. In batch-invariant contexts it is also the only fast one for
 * windows, tables and other scores.
 *
 *     S[queries,keys] = scale * score         by the product of src/engine/gemm, or with keys in the lanes
 *     P = exp(S - running maximum)            (or S itself, if weights are not exponentials)
 *     O[queries,values] += P V
 */
#include "attend/plan/solver.h"

#include "attend/block/gradient_sums.h"
#include "attend/solve/blocked_tile.h"
#include "base/parallel.h"

#include <stdio.h>

/* ------------------------------------------------------------------------------------------------- memory */

static double *take(attn__arena *arena, int64_t n)
{
    return attn__arena_take(arena, n, sizeof(double));
}

/* Reserves memory for operands: rows of all positions, of the columns of a block, and of the queries of a block. */
static void take_operands(blocked_memory *m, const blocked_plan *p, const attn__canonical *canonical,
                          attn__arena *arena)
{
    int64_t channels = canonical->contract.size, values = canonical->value.size, queries = p->queries;
    int64_t backward = canonical->backward, windows = canonical->problem.nwindows > 0;
    int64_t positions = windows ? p->positions.size : canonical->key.size, plain = windows ? 0 : p->ld;
    int64_t of_block = windows ? p->columns : 0, block_ld = windows ? p->ld : 0;
    m->k = take(arena, positions * channels);
    m->k_t = take(arena, plain * channels);
    m->v = take(arena, positions * values);
    m->v_t = take(arena, backward * plain * values);
    m->block_k = take(arena, of_block * channels);
    m->block_k_t = take(arena, block_ld * channels);
    m->block_v = take(arena, of_block * values);
    m->block_v_t = take(arena, backward * block_ld * values);
    m->block_dk = take(arena, backward * of_block * channels);
    m->block_dv = take(arena, backward * of_block * values);
    m->q = take(arena, queries * channels);
    m->o = take(arena, queries * values);
    m->dout = take(arena, backward * queries * values);
    m->s.rows = take(arena, queries * p->ld_s);
    m->dp.rows = take(arena, backward * queries * p->ld_s);
    m->dq = take(arena, backward * queries * channels);
    m->m = take(arena, p->linear ? channels * values : 0);
    m->dm = take(arena, p->linear ? channels * values : 0);
    m->dk = take(arena, backward * positions * channels);
    m->dv = take(arena, backward * positions * values);
}

/* Reserves memory for arrays with an entry per query of a block, or per pair of a row. */
static void take_rows(blocked *b, const blocked_plan *p, const attn__canonical *canonical, attn__arena *arena)
{
    blocked_memory *m = &b->at;
    int64_t backward = canonical->backward, windows = canonical->problem.nwindows > 0, pairs = p->pairs;
    int64_t rows = canonical->key.size > pairs ? p->queries : 1; /* rows whose largest scores are kept at once */
    m->max = take(arena, p->queries);
    m->sum = take(arena, p->queries);
    m->count = take(arena, p->queries);
    m->fades = attn__arena_take(arena, p->queries, 1);
    m->s.pairs = take(arena, windows ? pairs : 0);
    m->dp.pairs = take(arena, backward && windows ? pairs : 0);
    m->largest = attn__arena_take(arena, canonical->problem.top_k ? p->queries : 0, sizeof *m->largest);
    m->ranked = attn__arena_take(arena, rows, attn__largest_bytes(canonical->problem.top_k));
    m->slope = take(arena, canonical->problem.softcap != 0 ? pairs : 0);
    m->seen = attn__arena_take(arena, pairs, 1);
    m->position = attn__arena_offsets(arena, canonical->key.n * pairs);
    m->column = attn__arena_offsets(arena, windows * pairs);
    m->position_of = attn__arena_offsets(arena, windows * p->columns);
    m->bias_at = attn__arena_offsets(arena, canonical->has_bias ? pairs : 0);
    m->dbias_at = attn__arena_offsets(arena, canonical->problem.flags & ATTN_WANT_DBIAS ? pairs : 0);
    m->drop_at = attn__arena_take(arena, canonical->has_dropout ? pairs : 0, sizeof *m->drop_at);
    attn__visible_rows_take(&b->rows, &p->tiles.visible, arena, p->queries, ATTN__VISIBLE_ANY);
    attn__visible_keys_take(&b->keys, &p->tiles.visible, arena, pairs, ATTN__VISIBLE_ANY);
}

/* Reserves memory for scores that are not computed by products. Additive scores keep tanh of a pair or of a tile. */
static void take_scores(blocked_memory *m, const blocked_plan *p, const attn__canonical *canonical, attn__arena *arena)
{
    attn_score score = canonical->problem.score;
    bool other = score != ATTN_SCORE_DOT && score != ATTN_SCORE_ADDITIVE;
    int64_t channels = canonical->contract.size, backward = canonical->backward;
    m->w = take(arena, score == ATTN_SCORE_DOT ? 0 : 2 * channels);
    m->dw = take(arena, score == ATTN_SCORE_DOT ? 0 : 2 * channels);
    m->dk_t = take(arena, other ? backward * channels * p->ld_s : 0);
    m->scratch = take(arena, other ? p->ld_s : 0);
    if (score == ATTN_SCORE_ADDITIVE)
        m->tanh = take(arena, p->keeps_tanh ? p->queries * p->columns * channels : channels);
}

static void take_tables(blocked_memory *m, const blocked_plan *p, const attn__canonical *canonical, attn__arena *arena)
{
    for (int i = 0; i < canonical->problem.nrelatives; i++) {
        const blocked_table *table = &p->table[i];
        int64_t channels = attn__table_channels(canonical, i)->size;
        bool by_key = canonical->problem.relatives[i].kind == ATTN_RELATIVE_KEY;
        m->table[i].t = take(arena, table->rows * channels);
        m->table[i].t_t = take(arena, table->ld_t * channels);
        m->table[i].x = take(arena, (by_key ? p->columns : p->queries) * table->ld);
        m->table[i].g = take(arena, by_key && canonical->backward ? p->columns * table->ld : 0);
        m->table[i].dt = take(arena, canonical->backward ? table->rows * channels : 0);
    }
}

static void blocked_take(blocked *b, const blocked_plan *p, const attn__canonical *canonical, attn__arena *arena)
{
    blocked_memory *m = &b->at;
    int64_t channels = attn__max(canonical->contract.size, canonical->value.size);
    take_rows(b, p, canonical, arena);
    take_operands(m, p, canonical, arena);
    take_scores(m, p, canonical, arena);
    take_tables(m, p, canonical, arena);
    int64_t rows = attn__max(p->queries, p->columns);
    for (int i = 0; i < canonical->problem.nrelatives; i++)
        rows = attn__max(rows, p->table[i].most);
    m->finite = take(arena, rows * channels);
    m->product = take(arena, p->product_size);
    rows = attn__max(p->positions.size, attn__max(canonical->key.size, p->queries));
    m->offsets = attn__arena_offsets(arena, attn__max(rows, channels));
}

/* ------------------------------------------------------------------------------------------------- threads */

typedef struct blocked_job {
    const attn__canonical *canonical;
    const blocked_plan *plan;
    const attn__execution *arrays;
    char *workspace;
    int64_t blocks; /* forward: number of blocks of a segment */
    attn__slots slots;
    unsigned broadcast; /* gradients in which several batch indices or pairs share an element */
    unsigned adds;      /* gradients that are added to, not overwritten */
} blocked_job;

/* Returns the state of a thread. It is at the start of the thread's memory, and persists between items. */
static blocked *state_of(const blocked_job *j, int thread)
{
    return (blocked *)(void *)(j->workspace + (size_t)thread * j->plan->bytes);
}

static void start_threads(const blocked_job *j)
{
    for (int i = 0; i < j->canonical->threads; i++) {
        attn__arena arena = {.base = j->workspace + (size_t)i * j->plan->bytes};
        blocked *b = attn__arena_take(&arena, 1, sizeof(blocked));
        *b = (blocked){.plan = j->plan, .batch = -1};
        blocked_take(b, j->plan, j->canonical, &arena);
    }
}

static blocked *blocked_begin(const blocked_job *j, int64_t batch, int thread)
{
    blocked *b = state_of(j, thread);
    b->canonical = j->canonical;
    b->arrays = j->arrays;
    attn__sequence_enter(&b->one, &b->canonical, &b->arrays, batch);
    return b;
}

/* ---------------------------------------------------------------------------------------------------------- forward */

static void forward_tile(blocked *b, const blocked_tile *t)
{
    int64_t values = b->canonical->value.size;
    blocked_score(b, t);
    blocked_multiply_tables(b, t);
    for (int64_t i = 0; i < t->queries; i++) {
        double *s = blocked_finish_scores(b, t, i);
        double left = blocked_softmax_step(b, t, i, s);
        if (left != 1)
            b->plan->kernel->scale(b->at.o + i * values, values, left);
        blocked_finish_weights(b, t, i, s);
        blocked_sum_tables(b, t, i, true, s);
        blocked_scatter_pairs(b, t, &b->at.s, i);
    }
    blocked_multiply_masked(b, &(blocked_product){{t->queries, values, t->columns},
                                                  {b->at.s.rows, b->plan->ld_s, false},
                                                  {t->v, values, false},
                                                  {b->at.o, values, true}});
    blocked_apply_tables(b, t);
}

/* Returns the divisor of the sums of row i, or 0 if all keys of the row are masked. */
static double whole_of(const blocked *b, int64_t i)
{
    attn_normalization normalization = b->canonical->problem.normalization;
    if (normalization == ATTN_NORMALIZATION_MEAN)
        return b->at.count[i];
    if (attn__is_sum(b->canonical))
        return b->at.count[i] != 0;
    bool none = attn__is_softmax(b->canonical) && b->at.sum[i] == 0 && b->at.max[i] == -(double)INFINITY;
    return none ? 0 : b->at.sum[i];
}

/* Starts another pass over the tiles, which knows the rows of blocked_fades. */
static void blocked_restart(const blocked *b, const blocked_tile *t)
{
    for (int64_t i = 0; i < t->queries; i++) { /* mask_fill excludes sinks */
        b->at.max[i] = -(double)INFINITY;
        b->at.sum[i] = b->at.count[i] = 0;
    }
}

static void finish_rows(const blocked *b, const blocked_tile *t)
{
    const attn__canonical *canonical = b->canonical;
    int64_t values = canonical->value.size;
    for (int64_t i = 0; i < t->queries; i++) {
        double *row = b->at.o + i * values, whole = whole_of(b, i);
        for (int64_t c = 0; c < values; c++)
            row[c] = whole == 0 ? 0 : row[c] / whole;
        attn__scatter(&canonical->value, ATTN__OP_O, canonical->problem.dtype, b->arrays->at.o,
                      blocked_offset(b, ATTN__STRIDE(dim.o), t->query + i), row, false);
        if (canonical->problem.flags & ATTN_WANT_LSE)
            attn__store(attn__operand_dtype(&canonical->problem, ATTN__OP_LSE), b->arrays->at.lse,
                        blocked_offset(b, ATTN__STRIDE(dim.lse), t->query + i),
                        whole == 0 ? -(double)INFINITY : b->at.max[i] + log(whole));
    }
}

/* Runs over all tiles of a block in an extra pass. Finds the largest scores of each row if `ranks` is set, otherwise
 * the row's maximum and sum. Does nothing if a float64 tile has whole rows, because its normal pass finds them. */
static void walk_scores(blocked *b, blocked_tile *t, bool ranks)
{
    int64_t k = b->canonical->problem.top_k;
    if (has_whole_rows(b))
        return;
    b->ranks = ranks;
    for (int64_t i = 0; i < t->queries && ranks; i++)
        b->at.largest[i] = attn__largest_start(b->at.ranked + (size_t)i * attn__largest_bytes(k), k);
    for (t->pair = 0; t->pair < b->canonical->key.size; t->pair += b->plan->pairs) {
        if (!blocked_start_tile(b, t))
            continue;
        blocked_score(b, t);
        blocked_multiply_tables(b, t);
        for (int64_t i = 0; i < t->queries; i++) {
            double *s = blocked_finish_scores(b, t, i);
            if (!ranks)
                (void)blocked_softmax_step(b, t, i, s);
        }
    }
    for (int64_t i = 0; i < t->queries && ranks; i++)
        attn__largest_end(b->at.largest + i);
    b->ranks = false;
    t->pair = 0;
}

/* Reports whether the weight of a mask_fill may be 0, although it is not in an early tile, and whether this matters. */
static bool fill_may_fade(const blocked *b)
{
    return b->canonical->problem.mask_fill != 0 && b->has_nonfinite && !has_whole_rows(b);
}

static void forward_block(blocked *b, int64_t batch, int64_t query, int64_t queries)
{
    blocked_tile t = {.query = query, .queries = queries};
    if (b->batch != batch)
        blocked_gather_batch(b, batch);
    blocked_gather_queries(b, &t);
    blocked_reset_softmax(b, &t);
    if (b->plan->linear) {
        blocked_linear_queries(b, &t);
        finish_rows(b, &t);
        return;
    }
    memset(b->at.o, 0, (size_t)(queries * b->canonical->value.size) * sizeof(double));
    blocked_start_block(b, &t);
    if (b->canonical->extras & ATTN__TOP_K)
        walk_scores(b, &t, true);
    if (fill_may_fade(b)) {
        walk_scores(b, &t, false);
        blocked_fades(b, &t);
        blocked_restart(b, &t);
    }
    for (; t.pair < b->canonical->key.size; t.pair += b->plan->pairs)
        if (blocked_start_tile(b, &t))
            forward_tile(b, &t);
    finish_rows(b, &t);
}

static void run_item(void *user, int64_t item, int thread)
{
    const blocked_job *j = user;
    const blocked_plan *plan = j->plan;
    int64_t segments = j->canonical->query.size / plan->segment, block = item % (segments * j->blocks);
    int64_t batch = item / (segments * j->blocks), first = block % j->blocks * plan->queries;
    blocked *b = blocked_begin(j, batch, thread);
    int64_t segment = blocked_segment(b->canonical), begin = block / j->blocks * segment;
    if (first < segment && begin < b->canonical->query.size)
        forward_block(b, batch, begin + first, attn__min(segment - first, plan->queries));
}

/* --------------------------------------------------------------------------------------------------------- backward */

/* ------------------------------------------------------------------------------------------------- a row */

/* Stores row i of the bias gradient. It equals the gradient of the scores. */
static void store_bias(const blocked *b, const blocked_tile *t, int64_t i, unsigned adds, const double *ds)
{
    attn_dtype dtype = attn__operand_dtype(&b->canonical->problem, ATTN__OP_DBIAS);
    const int64_t *key = b->at.dbias_at;
    int64_t row = blocked_offset(b, ATTN__STRIDE(dim.dbias), t->query + i);
    for (int64_t j = 0; j < t->pairs; j++) {
        double before = adds & ATTN_WANT_DBIAS ? attn__load(dtype, b->arrays->at.dbias, row + key[j]) : 0;
        attn__store(dtype, b->arrays->at.dbias, row + key[j], before + (ds ? ds[j] : 0));
    }
}

/* Converts gradients of capped scores to gradients of the scores before softcap and scale. */
static void scale_row(const blocked *b, const blocked_tile *t, double *ds)
{
    const attn_problem *p = &b->canonical->problem;
    const double *slope = b->at.slope;
    for (int64_t j = 0; j < t->pairs && p->softcap != 0; j++)
        ds[j] = ds[j] == 0 && !blocked_marks(b) ? 0 : ds[j] * slope[j]; /* the slope of a masked pair is undefined */
    b->plan->kernel->scale(ds, t->pairs, p->scale);
    blocked_mark_gradients(b, t, ds);
}

static double delta_of(const blocked *b, const blocked_tile *t, int64_t i)
{
    const attn__canonical *canonical = b->canonical;
    int64_t values = canonical->value.size;
    double delta = attn__dot_channels(b->o + i * values, b->dout + i * values, values);
    if (canonical->extras & ATTN__DLSE)
        delta -= attn__load(attn__operand_dtype(&canonical->problem, ATTN__OP_LSE), b->arrays->at.dlse,
                            blocked_offset(b, ATTN__STRIDE(dim.lse), t->query + i));
    return delta;
}

/* Reports whether log-sum-exps are computed again, because the stored values have too few digits in f32 or with a
 * mask_fill. With sinks the stored values are used, because the backward pass does not have the sinks. */
static bool normalizes_again(const blocked *b)
{
    const attn_problem *p = &b->canonical->problem;
    return p->normalization == ATTN_NORMALIZATION_SOFTMAX && !(p->flags & ATTN_WITH_SINKS) &&
           (p->dtype != ATTN_F64 || p->mask_fill != 0);
}

/* Returns the log-sum-exp of a row. If it is computed again, it is relative to the row's maximum, which is subtracted
 * from s. */
static double normalizer_of(const blocked *b, const blocked_tile *t, int64_t i, double *s)
{
    const attn_problem *p = &b->canonical->problem;
    if (is_sigmoid(b))
        return 0;
    if (!normalizes_again(b))
        return attn__load(attn__operand_dtype(p, ATTN__OP_LSE), b->arrays->at.lse,
                          blocked_offset(b, ATTN__STRIDE(dim.lse), t->query + i));
    if (has_whole_rows(b)) {
        memcpy(b->at.finite, s, (size_t)t->pairs * sizeof *s);
        (void)blocked_softmax_step(b, t, i, b->at.finite);
    }
    double max = b->at.max[i];
    for (int64_t j = 0; j < t->pairs && isfinite(max); j++)
        s[j] -= max;
    return max == -(double)INFINITY ? max : log(b->at.sum[i]);
}

/* Converts scores `s` to weights, and gradients of weights `dp` to gradients of scores. */
static void weigh(const blocked *b, const blocked_tile *t, double lse, double delta, double *s, double *dp)
{
    const uint8_t *seen = b->at.seen;
    const attn_problem *p = &b->canonical->problem;
    if (p->normalization == ATTN_NORMALIZATION_SOFTMAX) {
        b->plan->kernel->gradients(s, dp, t->pairs, lse, delta, 0);
        for (int64_t j = 0; j < t->pairs && p->mask_fill != 0; j++)
            dp[j] = seen[j] == ATTN__VISIBLE_FILL ? 0 : dp[j];
        return;
    }
    if (is_sigmoid(b)) {
        squash(b, t, s);
        for (int64_t j = 0; j < t->pairs; j++)
            dp[j] = seen[j] == ATTN__VISIBLE_KEY ? s[j] * (1 - s[j]) * dp[j] : 0;
        return;
    }
    bool chosen = p->normalization == ATTN_NORMALIZATION_HARDMAX;
    double inverse = chosen ? 0 : exp(-lse), less = p->normalization == ATTN_NORMALIZATION_SUM ? delta : 0;
    for (int64_t j = 0; j < t->pairs; j++) {
        bool sees = seen[j] == ATTN__VISIBLE_KEY; /* hidden keys get 0, even if the sum is NaN */
        s[j] = !sees ? 0 : chosen ? 1 : s[j] * inverse;
        dp[j] = sees && !chosen ? (dp[j] - less) * inverse : 0;
    }
}

/* Fills a row whose log-sum-exp is NaN. A visible key gets the weight and the gradient NaN. A key with the score
 * mask_fill gets the weight NaN and the gradient 0. */
static void spread_nan(const blocked *b, const blocked_tile *t, double nan, double *s, double *dp)
{
    const uint8_t *seen = b->at.seen;
    const attn_problem *p = &b->canonical->problem;
    bool counted = counts(b), chosen = p->normalization == ATTN_NORMALIZATION_HARDMAX;
    for (int64_t j = 0; j < t->pairs; j++) {
        bool out = counted ? seen[j] == ATTN__VISIBLE_OUT : s[j] == -(double)INFINITY;
        s[j] = out ? 0 : nan;
        dp[j] = out || chosen || (counted && seen[j] == ATTN__VISIBLE_FILL) ? 0 : nan;
    }
}

static void weigh_row(const blocked *b, const blocked_tile *t, int64_t i, double *s, double *dp)
{
    double lse = normalizer_of(b, t, i, s);
    if (lse == -(double)INFINITY) { /* the row has no keys */
        memset(s, 0, (size_t)t->pairs * sizeof *s);
        memset(dp, 0, (size_t)t->pairs * sizeof *dp);
        memset(b->at.seen, ATTN__VISIBLE_OUT, (size_t)t->pairs);
    } else if (lse != lse) {
        spread_nan(b, t, lse, s, dp);
    } else {
        blocked_drop(b, t, i, dp);
        weigh(b, t, lse, delta_of(b, t, i), s, dp);
    }
    blocked_finish_weights(b, t, i, s);
}

/* ------------------------------------------------------------------------------------------------ a tile */

static void run_row(blocked *b, const blocked_tile *t, int64_t i, unsigned adds)
{
    double *s = blocked_finish_scores(b, t, i), *dp = blocked_gather_pairs(b, t, &b->at.dp, i);
    blocked_add_tables(b, t, i, true, dp);
    weigh_row(b, t, i, s, dp);
    blocked_sum_tables(b, t, i, true, s);
    if (b->canonical->problem.flags & ATTN_WANT_DBIAS)
        store_bias(b, t, i, adds, dp);
    scale_row(b, t, dp);
    blocked_sum_tables(b, t, i, false, dp);
    blocked_scatter_pairs(b, t, &b->at.s, i);
    blocked_scatter_pairs(b, t, &b->at.dp, i);
}

static void backward_tile(blocked *b, const blocked_tile *t, unsigned adds)
{
    int64_t values = b->canonical->value.size;
    bool slopes = b->canonical->problem.normalization != ATTN_NORMALIZATION_HARDMAX;
    blocked_score(b, t);
    blocked_multiply_tables(b, t);
    if (slopes)
        blocked_multiply(b, &(blocked_product){{t->queries, t->columns, values},
                                               {b->dout, values, false},
                                               {t->v_t, b->plan->ld, false},
                                               {b->at.dp.rows, b->plan->ld_s, false}});
    for (int64_t i = 0; i < t->queries; i++)
        run_row(b, t, i, adds);
    blocked_multiply_masked(b, &(blocked_product){{t->columns, values, t->queries},
                                                  {b->at.s.rows, b->plan->ld_s, true},
                                                  {b->dout, values, false},
                                                  {t->dv, values, true}});
    if (slopes)
        blocked_score_gradients(b, t);
    blocked_apply_tables(b, t);
    blocked_sum_table_gradients(b, t);
}

/* ----------------------------------------------------------------------------------------------- a block */

/* Adds the gradients of the block's columns to the gradients of the positions. Only windows need this step. */
static void add_columns(const blocked *b, const blocked_tile *t, double *to, const double *from, int64_t channels)
{
    const int64_t *place = b->at.position_of;
    for (int64_t c = 0; c < t->columns; c++)
        for (int64_t j = 0; j < channels && place[c] >= 0; j++)
            to[place[c] * channels + j] += from[c * channels + j];
}

static void store(const blocked *b, unsigned want, attn__operand op, unsigned adds, int64_t first, int64_t n,
                  const double *rows)
{
    const attn__canonical *canonical = b->canonical;
    bool positions = canonical->problem.nwindows > 0 && op != ATTN__OP_DQ;
    const attn__group *group = positions ? &b->plan->positions : attn__rows_of(canonical, op);
    const attn__group *channels = attn__channels_of(canonical, op);
    int64_t base = attn__offsets_one(&canonical->batch, attn__stride_of(op), b->batch);
    for (int64_t i = 0; i < n && (canonical->problem.flags & want); i++)
        attn__scatter(channels, op, canonical->problem.dtype, attn__operand_array(b->arrays, op),
                      base + attn__offsets_one(group, attn__stride_of(op), first + i), rows + i * channels->size,
                      adds & want);
}

static void clear_sums(const blocked *b, const blocked_tile *t)
{
    int64_t channels = b->canonical->contract.size, values = b->canonical->value.size;
    memset(b->at.dq, 0, (size_t)(t->queries * channels) * sizeof(double));
    if (!b->canonical->problem.nwindows)
        return;
    memset(t->dk, 0, (size_t)(t->columns * channels) * sizeof *t->dk);
    memset(t->dv, 0, (size_t)(t->columns * values) * sizeof *t->dv);
}

static void store_sums(const blocked *b, const blocked_tile *t, unsigned adds)
{
    if (b->canonical->problem.nwindows) {
        add_columns(b, t, b->at.dk, t->dk, b->canonical->contract.size);
        add_columns(b, t, b->at.dv, t->dv, b->canonical->value.size);
    }
    store(b, ATTN_WANT_DQ, ATTN__OP_DQ, adds, t->query, t->queries, b->at.dq);
}

static void backward_block(blocked *b, blocked_tile *t, unsigned adds)
{
    blocked_gather_queries(b, t);
    if (b->plan->linear) {
        blocked_linear_query_gradients(b, t);
        store_sums(b, t, adds);
        return;
    }
    blocked_start_block(b, t);
    clear_sums(b, t);
    if (b->canonical->extras & ATTN__TOP_K)
        walk_scores(b, t, true);
    if (normalizes_again(b)) {
        blocked_reset_softmax(b, t);
        walk_scores(b, t, false);
    }
    for (t->pair = 0; t->pair < b->canonical->key.size; t->pair += b->plan->pairs) {
        bool sees = blocked_start_tile(b, t);
        if (sees)
            backward_tile(b, t, adds);
        bool clears = !sees && (b->canonical->problem.flags & ~adds & ATTN_WANT_DBIAS);
        for (int64_t i = 0; i < t->queries && clears; i++) /* masked pairs have the bias gradient 0 */
            store_bias(b, t, i, 0, NULL);
    }
    store_sums(b, t, adds);
}

/* ----------------------------------------------------------------------------------------- a batch index */

/* Adds the gradients of the tables for one batch index to the sums of the slot. */
static void store_tables(const blocked *b)
{
    const attn__canonical *canonical = b->canonical;
    for (int i = 0; i < canonical->problem.nrelatives; i++) {
        const blocked_table *table = &b->plan->table[i];
        double *sums = b->sums->at[ATTN__SUM_TABLE + i], *rows = b->at.table[i].dt;
        int64_t channels = attn__table_channels(canonical, i)->size, row = canonical->problem.relatives[i].row_stride;
        for (int64_t d = 0; sums && d < table->rows; d++)
            attn__table_add(canonical, i, sums, blocked_table_at(b, i) + d * row, 1, rows + d * channels);
    }
}

static void backward_blocks(blocked *b, unsigned adds)
{
    int64_t segment = blocked_segment(b->canonical);
    for (int64_t first = 0; first < b->canonical->query.size; first += segment)
        for (int64_t i = 0; i < segment; i += b->plan->queries) {
            blocked_tile t = {.query = first + i, .queries = attn__min(segment - i, b->plan->queries)};
            backward_block(b, &t, adds);
        }
}

/* Runs the backward pass of a batch index. First clears the gradients in `clear`, which belong to packed keys. */
static void run_batch(blocked *b, int64_t batch, unsigned adds, unsigned clear)
{
    const attn__canonical *canonical = b->canonical;
    const blocked_plan *plan = b->plan;
    int64_t channels = canonical->contract.size, values = canonical->value.size;
    int64_t keys = canonical->problem.nwindows ? plan->positions.size : canonical->key.size;
    blocked_gather_batch(b, batch);
    memset(b->at.dk, 0, (size_t)(keys * channels) * sizeof(double));
    memset(b->at.dv, 0, (size_t)(keys * values) * sizeof(double));
    store(b, ATTN_WANT_DK & clear, ATTN__OP_DK, 0, 0, keys, b->at.dk);
    store(b, ATTN_WANT_DV & clear, ATTN__OP_DV, 0, 0, keys, b->at.dv);
    for (int i = 0; i < canonical->problem.nrelatives; i++)
        memset(b->at.table[i].dt, 0,
               (size_t)(plan->table[i].rows * attn__table_channels(canonical, i)->size) * sizeof(double));
    if (plan->linear)
        memset(b->at.dm, 0, (size_t)(channels * values) * sizeof(double));
    backward_blocks(b, adds);
    if (plan->linear)
        blocked_linear_key_gradients(b);
    store(b, ATTN_WANT_DK, ATTN__OP_DK, adds, 0, keys, b->at.dk);
    store(b, ATTN_WANT_DV, ATTN__OP_DV, adds, 0, keys, b->at.dv);
    store_tables(b);
}

/* If several BATCH indices share packed keys, the first one clears the gradients of the keys. */
static void run_one(const blocked_job *j, attn__sums *sums, int64_t batch, int thread)
{
    blocked *b = blocked_begin(j, batch, thread);
    unsigned clear = (attn__batch_comes_first(j->canonical, ATTN__OP_DK, batch) ? ATTN_WANT_DK : 0u) |
                     (attn__batch_comes_first(j->canonical, ATTN__OP_DV, batch) ? ATTN_WANT_DV : 0u);
    clear &= attn__is_packed(j->canonical) ? j->broadcast : 0;
    b->sums = sums;
    b->batch = batch;
    run_batch(b, batch, j->adds, clear);
}

static void run_slot(void *user, int64_t slot, int thread)
{
    const blocked_job *j = user;
    const attn__slots *slots = &j->slots;
    attn__sums sums;
    int64_t item, end;
    bool packed = attn__is_packed(j->canonical);
    unsigned clear = packed ? ATTN_WANT_DBIAS : j->broadcast; /* no pass writes the dbias of padding pairs */
    if (j->canonical->problem.accumulate)
        clear = 0;
    for (attn__slots_start(slots, slot, &sums, &item, &end); item < end; item++) {
        attn__gradients_clear(j->canonical, j->arrays, attn__batch_split_index(&slots->split, j->canonical, item, 0),
                              clear, slots->split.apart);
        for (int64_t rest = 0; rest < slots->split.rest; rest++)
            run_one(j, &sums, attn__batch_split_index(&slots->split, j->canonical, item, rest), thread);
    }
}

/* ----------------------------------------------------------------------------------------------- its plan */

/* Returns how many columns along a key axis are read by a run of queries along the last QUERY axis. */
static double columns_along(const attn__canonical *canonical, int axis, int64_t queries)
{
    const attn_window *w = attn__window_of(&canonical->problem, axis);
    double taps = (double)canonical->key.axis[axis].dim.n;
    if (!w || w->query_dim != canonical->query.n - 1 || queries == 1)
        return taps;
    /* A window with a shifting border may reach one dilation further. */
    return (double)(queries - 1) * (double)w->step + (taps + 1) * (double)w->dilation;
}

static double columns_of(const attn__canonical *canonical, int64_t queries)
{
    double columns = 1;
    for (int a = 0; a < canonical->key.n; a++)
        columns *= columns_along(canonical, a, queries);
    return columns;
}

/* Returns how many queries a block with windows has: as many as taps, so that a query uses half of the columns. */
static int64_t window_queries(const attn__canonical *canonical)
{
    int64_t reach = 16;
    for (int i = 0; i < canonical->problem.nwindows; i++) {
        const attn_window *w = &canonical->problem.windows[i];
        if (w->query_dim == canonical->query.n - 1)
            reach = attn__max(reach, canonical->key.axis[w->key_dim].dim.n * w->dilation / w->step);
    }
    return attn__min(reach, 96);
}

/* Returns how many queries a block has. In the backward pass and with windows the number must not depend on threads or
 * lengths, because it determines the order of sums. */
static int64_t query_block(const attn__canonical *canonical, int64_t run)
{
    enum { TILE = 12 };
    if (canonical->problem.nwindows)
        return attn__min(run, window_queries(canonical));
    if (canonical->backward)
        return attn__min(attn__round_up(run, TILE), BLOCKED_QUERIES);
    int64_t pieces = attn__ceil_div(run, BLOCKED_QUERIES);
    if (canonical->batch.size * (canonical->query.size / run) < canonical->threads)
        pieces = attn__max(pieces, canonical->threads);
    return attn__round_up(attn__ceil_div(run, pieces), TILE);
}

/* Returns how many indices along a key axis occur in the pairs of a tile. */
static int64_t keys_along(const attn__canonical *canonical, const blocked_plan *p, int axis)
{
    int64_t inner = 1, n = canonical->key.axis[axis].dim.n;
    for (int a = axis + 1; a < canonical->key.n; a++)
        inner *= canonical->key.axis[a].dim.n;
    return attn__min(n, p->pairs / inner + 2);
}

/* Finds the table rows that any pair may read, and the largest number of rows that the pairs of a tile read. */
static void find_rows(const attn__canonical *canonical, const blocked_plan *p, const attn_relative *r,
                      blocked_table *table)
{
    const attn_window *w = attn__window_of(&canonical->problem, r->key_dim);
    int64_t queries = canonical->query.axis[r->query_dim].dim.n, keys = canonical->key.axis[r->key_dim].dim.n;
    int64_t low = 1 - queries, high = keys - 1, queries_along = 1; /* queries_along: a block's queries along the axis */
    if (w)
        attn__window_reach(w, keys, queries, &low, &high);
    if (r->query_dim == canonical->query.n - 1)
        queries_along = attn__min(queries, p->queries);
    int64_t first = attn__max(attn__min(low + r->offset, r->rows - 1), 0);
    table->begin = first / BLOCKED_ROWS * BLOCKED_ROWS;
    table->rows = attn__max(attn__min(high + r->offset + 1, r->rows) - table->begin, 1);
    int64_t distances = w ? high - low + 1 : queries_along + keys_along(canonical, p, r->key_dim) - 1;
    table->most = attn__min(table->rows, distances + BLOCKED_ROWS - 1);
    table->ld = attn__round_up(table->most, 8);
    table->ld_t = attn__round_up(table->rows, 8);
}

static int64_t product_size(const attn__canonical *canonical, int64_t m, int64_t n, int64_t k)
{
    return attn__ceil_div((int64_t)attn__gemm_workspace_most(ATTN_F64, canonical->isa, m, n, k), sizeof(double));
}

/* Returns the largest workspace for the product of rows and a matrix of n rows of channels, and for its gradients. */
static int64_t largest_product(const attn__canonical *canonical, int64_t rows, int64_t n, int64_t channels)
{
    return attn__max(product_size(canonical, rows, n, channels),
                     attn__max(product_size(canonical, rows, channels, n), product_size(canonical, n, channels, rows)));
}

static int64_t size_of_products(const attn__canonical *canonical, const blocked_plan *p)
{
    int64_t channels = attn__max(canonical->contract.size, canonical->value.size);
    int64_t largest = largest_product(canonical, p->queries, p->columns, channels);
    for (int i = 0; i < canonical->problem.nrelatives; i++) {
        bool by_key = canonical->problem.relatives[i].kind == ATTN_RELATIVE_KEY;
        largest = attn__max(largest,
                            largest_product(canonical, by_key ? p->columns : p->queries, p->table[i].most, channels));
    }
    if (p->linear) {
        int64_t most = attn__max(p->queries, canonical->key.size);
        largest = attn__max(largest, attn__max(product_size(canonical, most, channels, channels),
                                               product_size(canonical, channels, channels, most)));
    }
    return largest;
}

static void choose_blocks(blocked_plan *p, const attn__canonical *canonical)
{
    enum { MOST_TANH = 65536, FEWER = 8, LEAST = 24 }; /* tanh values in the cache; factor of pairs; least queries */
    bool windows = canonical->problem.nwindows > 0;
    p->queries = query_block(canonical, p->segment);
    p->pairs = canonical->key.size;
    if (!windows && canonical->problem.top_k == 0)
        p->pairs = attn__min(p->pairs, BLOCKED_KEYS);
    if (!windows && p->pairs > BLOCKED_KEYS) { /* a tile has whole rows, so that no score is computed twice */
        p->pairs = attn__min(p->pairs, BLOCKED_KEYS * FEWER);
        p->queries = attn__min(p->queries, attn__max(BLOCKED_QUERIES * BLOCKED_KEYS / p->pairs, LEAST));
    }
    p->columns = windows ? (int64_t)columns_of(canonical, p->queries) : p->pairs;
    p->ld = attn__round_up(windows ? p->columns : canonical->key.size, 8) + 8;
    p->ld_s = attn__round_up(p->columns, 8);
    p->keeps_tanh =
        canonical->backward && attn__min(p->queries, p->segment) * p->columns <= MOST_TANH / canonical->contract.size;
    for (int i = 0; i < canonical->problem.nrelatives; i++)
        find_rows(canonical, p, &canonical->problem.relatives[i], &p->table[i]);
    p->product_size = size_of_products(canonical, p);
}

static void lay_out(blocked_plan *p, const attn__canonical *canonical)
{
    const attn_problem *problem = &canonical->problem;
    attn__arena arena = {0};
    blocked unused = {0};
    p->positions = canonical->key;
    for (int i = 0; i < problem->nwindows; i++) {
        attn__axis *axis = &p->positions.axis[problem->windows[i].key_dim];
        p->positions.size = p->positions.size / axis->dim.n * problem->windows[i].size;
        axis->dim.n = problem->windows[i].size;
    }
    p->tiles = attn__tile_plan_of(canonical, canonical->isa);
    p->linear = blocked_is_linear(canonical);
    p->segment = blocked_segment(canonical);
    choose_blocks(p, canonical);
    (void)attn__arena_take(&arena, 1, sizeof(blocked));
    blocked_take(&unused, p, canonical, &arena);
    p->bytes = arena.used;
}

/* ------------------------------------------------------------------------------------------ what it takes */

static bool is_distance(attn_score score)
{
    return score == ATTN_SCORE_GAUSSIAN || score == ATTN_SCORE_BOXCAR || score == ATTN_SCORE_TRIANGULAR;
}

/* The workspace of a thread may have at most this many doubles. */
static const double MOST_NUMBERS = 0x1p32;

/* Reports whether the workspace would be too large. It computes in floating point, because integers could overflow. */
static bool is_large(const attn__canonical *canonical)
{
    const attn_problem *p = &canonical->problem;
    double positions = (double)canonical->key.size, tables = 0;
    double columns = p->nwindows ? columns_of(canonical, window_queries(canonical)) : BLOCKED_KEYS;
    double channels = (double)canonical->contract.size + (double)canonical->value.size;
    for (int i = 0; i < p->nwindows; i++)
        positions *= (double)p->windows[i].size / (double)canonical->key.axis[p->windows[i].key_dim].dim.n;
    for (int i = 0; i < p->nrelatives; i++)
        tables += (double)p->relatives[i].rows;
    return (positions + columns + BLOCKED_QUERIES) * (channels + 1) > MOST_NUMBERS ||
           BLOCKED_QUERIES * 6.0 * (double)p->top_k > MOST_NUMBERS ||
           columns * (columns + BLOCKED_QUERIES + channels) > MOST_NUMBERS ||
           tables * (channels + columns + BLOCKED_QUERIES) > MOST_NUMBERS;
}

static const char *refuse(const attn__canonical *canonical)
{
    const attn_problem *p = &canonical->problem;
    bool packed = attn__is_packed(canonical);
    if (p->score > ATTN_SCORE_CONCAT && !is_distance(p->score))
        return "does not support this score";
    for (int i = 0; i < p->nwindows; i++)
        if (packed || p->windows[i].size == 0)
            return "does not support windows of packed sequences or of size 0";
    unsigned shared = canonical->backward ? attn__sums_shared(canonical) : 0;
    if (shared && (p->accumulate || p->dtype == ATTN_BF16))
        return "does not support broadcast gradients in bf16 or with accumulate";
    if (packed && (shared & ATTN_WANT_DQ))
        return "does not support dq of broadcast packed queries";
    if (is_large(canonical))
        return "needs many gigabytes of workspace";
    return attn__refuse_normalization(canonical, ATTN__SUMS_TOO);
}

/* Estimates the time in f32 multiply-adds: 2.5 for a float64 multiply-add, 60 for exp, 50 for tanh, 10 for a gather. */
static double cost(const attn__canonical *canonical)
{
    blocked_plan p = {0};
    lay_out(&p, canonical);
    double queries = (double)canonical->query.size, keys = (double)canonical->key.size;
    double contract = (double)canonical->contract.size, channels = contract + (double)canonical->value.size;
    double tiles = (double)attn__ceil_div(canonical->key.size, p.pairs), rows = (double)p.positions.size;
    double columns = canonical->problem.nwindows ? (double)p.columns : keys;
    double products = columns * (channels + (canonical->problem.score == ATTN_SCORE_ADDITIVE ? 20 * contract : 0));
    for (int i = 0; i < canonical->problem.nrelatives; i++) {
        bool by_key = canonical->problem.relatives[i].kind == ATTN_RELATIVE_KEY;
        double sides = by_key ? (double)p.columns / (double)p.queries : 1;
        products += tiles * sides * (double)p.table[i].most * (double)attn__table_channels(canonical, i)->size;
        rows += (double)p.table[i].rows;
    }
    double each = queries * (2.5 * products + 60 * keys) + 10 * (queries + rows) * channels;
    if (p.linear)
        each = (queries + keys) * (2.5 * contract * (double)canonical->value.size + 10 * channels);
    return (canonical->backward ? 2.5 : 1) * (double)canonical->batch.size * each;
}

static attn_status plan(attn_context *context, const attn__canonical *canonical, attn__recipe *recipe)
{
    blocked_plan *p = attn__alloc_zero(context, sizeof *p);
    if (!p)
        return ATTN_ERROR_MEMORY;
    p->kernel = attn__rows_f64_for(canonical->isa);
    lay_out(p, canonical);
    recipe->data = p;
    recipe->workspace = attn__size_mul((size_t)canonical->threads, p->bytes);
    if (canonical->backward)
        recipe->workspace = attn__size_add(recipe->workspace, attn__slots_make(canonical, NULL).bytes);
    snprintf(recipe->text, sizeof recipe->text, "%s in f64, blocks of %d queries x %d keys",
             attn__isa_text(p->kernel->isa), (int)p->queries, (int)p->columns);
    return ATTN_OK;
}

static void apply(const attn__canonical *canonical, const attn__recipe *recipe, const attn__execution *arrays,
                  void *workspace)
{
    const blocked_plan *plan = recipe->data;
    blocked_job j = {.canonical = canonical, .plan = plan, .arrays = arrays, .workspace = workspace};
    start_threads(&j);
    if (!canonical->backward) {
        j.blocks = attn__ceil_div(plan->segment, plan->queries);
        int64_t segments = canonical->query.size / plan->segment;
        attn__parallel_items(canonical->threads, canonical->batch.size * segments * j.blocks, run_item, &j);
        return;
    }
    j.broadcast = attn__sums_shared(canonical);
    j.adds = canonical->problem.accumulate ? ATTN__WANT_OWN : j.broadcast;
    j.slots = attn__slots_make(canonical, j.workspace + (size_t)canonical->threads * plan->bytes);
    attn__parallel_items(canonical->threads, j.slots.n, run_slot, &j);
    attn__slots_store(&j.slots, arrays);
}

const attn__solver attn__solver_blocked = {.name = "blocked",
                                           .refuse = refuse,
                                           .cost = cost,
                                           .plan = plan,
                                           .apply = apply,
                                           .extras = ATTN__PACKED | ATTN__SOFTCAP | ATTN__SINKS | ATTN__DLSE |
                                                     ATTN__BIAS_MEETS | ATTN__BLOCKS | ATTN__TOP_K |
                                                     ATTN__BATCH_INVARIANT};
