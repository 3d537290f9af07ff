/* SPDX-License-Identifier: MIT
 *
 * blocked.c - attention by blocks of queries and keys, with matrix products.  Wide problems, such as those with heads
 * of thousands of channels, are computed in f32 (blocked_wide.h). All other problems are computed in float64. This
 * solver is the only fast one for f64 problems and for kernels of the distance. In batch-invariant contexts it is also
 * the only fast one for windows, tables and other scores.
 *
 *     S[queries,keys] = scale * score         by the product of src/engine/gemm, or with keys in the lanes
 *     P = exp(S - running maximum)            (or S itself, if weights are not exponentials)
 *     O[queries,values] += P V
 */
#include "attend/plan/solver.h"

#include "attend/block/gradient_sums.h"
#include "attend/solve/blocked_tile.h"
#include "base/parallel.h"

#include <float.h>
#include <stdio.h>

/* Reports whether several indices of a group share an element. Packed sequences have stride 0, but share no element. */
static bool repeats(const attn__canonical *canonical, const attn__group *group, attn__operand op)
{
    for (int i = 0; i < group->n; i++) {
        bool moves = attn__stride(&group->axis[i].dim, op) != 0 || (group->axis[i].packed && op != ATTN__OP_DBIAS);
        if (!moves && attn__operand_length(&canonical->problem, &group->axis[i].dim, i, op) > 1)
            return true;
    }
    return false;
}

/* Returns the gradients (ATTN_WANT_...) in which several batch indices or pairs share an element. */
static unsigned blocked_broadcast(const attn__canonical *canonical)
{
    static const unsigned wants[] = {ATTN_WANT_DQ, ATTN_WANT_DK, ATTN_WANT_DV, ATTN_WANT_DBIAS};
    static const attn__operand ops[] = {ATTN__OP_DQ, ATTN__OP_DK, ATTN__OP_DV, ATTN__OP_DBIAS};
    unsigned shared = canonical->extras & ATTN__BIAS_MEETS ? ATTN_WANT_DBIAS : 0u;
    for (int i = 0; i < 4; i++) {
        const attn__group *last = i < 3 ? attn__channels_of(canonical, ops[i]) : &canonical->key;
        if (repeats(canonical, &canonical->batch, ops[i]) || repeats(canonical, last, ops[i]) ||
            repeats(canonical, attn__rows_of(canonical, ops[i]), ops[i]))
            shared |= wants[i];
    }
    return shared & canonical->problem.flags;
}

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
    m->s.pairs = take(arena, windows || p->wide ? pairs : 0);
    m->dp.pairs = take(arena, backward && (windows || p->wide) ? pairs : 0);
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

static void take_wide(blocked *b, const blocked_plan *p, const attn__canonical *canonical, attn__arena *arena)
{
    blocked_memory *m = &b->at;
    int64_t rows = attn__round_up(p->queries, DEPTH), most = attn__max(p->queries, p->columns);
    bool keeps = canonical->problem.dtype == ATTN_BF16 && canonical->key.size > p->pairs;
    wide_take(&b->wide, &p->kernels, arena, most, p->ld_s);
    m->s.singles = attn__arena_floats(arena, rows * p->ld_s);
    m->dp.singles = attn__arena_floats(arena, canonical->backward ? rows * p->ld_s : 0);
    m->sums = attn__arena_floats(arena, keeps ? p->queries * canonical->value.size : 0);
    m->delta = take(arena, p->queries);
    m->factor = attn__arena_floats(arena, rows);
    m->was = attn__arena_floats(arena, rows);
    for (int i = 0; i < BLOCKED_ROW_AT; i++)
        m->row_at[i] = attn__arena_offsets(arena, most);
}

static void blocked_take(blocked *b, const blocked_plan *p, const attn__canonical *canonical, attn__arena *arena)
{
    blocked_memory *m = &b->at;
    int64_t channels = attn__max(canonical->contract.size, canonical->value.size);
    take_rows(b, p, canonical, arena);
    if (p->wide) {
        take_wide(b, p, canonical, arena);
        return;
    }
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
    const attn_arrays *arrays;
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

/* Prepares a thread for the products of a batch index. blocked_end must be called afterwards. */
static blocked *blocked_begin(const blocked_job *j, int64_t batch, int thread)
{
    blocked *b = state_of(j, thread);
    b->canonical = j->canonical;
    b->arrays = j->arrays;
    attn__sequence_enter(&b->one, &b->canonical, &b->arrays, batch);
    for (int64_t i = 0; i < attn__max(j->plan->queries, j->plan->columns) && j->plan->wide; i++)
        b->wide.ones[i] = 1.0f;
    if (j->plan->kernels.amx)
        j->plan->kernels.amx->begin();
    return b;
}

static void blocked_end(const blocked *b)
{
    if (b->plan->kernels.amx)
        b->plan->kernels.amx->end();
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
    if (normalization == ATTN_NORMALIZATION_NONE)
        return b->at.count[i] != 0;
    bool none = attn__is_softmax(b->canonical) && b->at.sum[i] == 0 && b->at.max[i] == -(double)INFINITY;
    return none ? 0 : b->at.sum[i];
}

/* Multiplies `weights` by the rows `in`: out = was * out + factor * product. `was` and `factor` have a number per row.
 * If `was` is NULL, out = factor * product. */
static void wide_add(blocked *b, wide_rows in, wide_rows out, const float *weights, bool across, const float *factor,
                     const float *was)
{
    wide_multiply_all(&b->wide, &(wide_product){.in = in,
                                                .out = out,
                                                .channels = in.operand.channels->size,
                                                .weight = weights,
                                                .across = across,
                                                .hides = b->plan->hides,
                                                .factor = factor,
                                                .was = was});
}

enum { SINGLE_LANES = 16 }; /* largest number of lanes of any kernel; rows of floats are padded to it */

static float largest_of(const float *s, int64_t padded)
{
    float most[SINGLE_LANES], largest = -INFINITY;
    memcpy(most, s, sizeof most);
    for (int64_t j = SINGLE_LANES; j < padded; j += SINGLE_LANES)
        for (int l = 0; l < SINGLE_LANES; l++)
            most[l] = most[l] > s[j + l] ? most[l] : s[j + l];
    for (int l = 0; l < SINGLE_LANES; l++)
        largest = most[l] > largest ? most[l] : largest;
    return largest;
}

/* Sets s to x for masked keys and for padding. */
static void set_masked(float *s, const uint8_t *seen, int64_t from, int64_t to, int64_t pairs, int64_t padded, float x)
{
    for (int64_t j = 0; j < pairs && seen; j++)
        s[j] = seen[j] ? s[j] : x;
    for (int64_t j = 0; j < from; j++)
        s[j] = x;
    for (int64_t j = to; j < padded; j++)
        s[j] = x;
}

/* Does the same as blocked_softmax_step and blocked_finish_weights, for a row of floats in base 2. Each lane has a part
 * of the row. */
static double single_softmax_step(const blocked *b, const blocked_tile *t, int64_t i)
{
    const attn__online_softmax_kernel *kernel = b->plan->kernels.lanes;
    float *s = b->at.s.singles + i * b->plan->ld_s;
    float top[SINGLE_LANES], max[SINGLE_LANES], sum[SINGLE_LANES] = {0}, shrink[SINGLE_LANES];
    int64_t from, to, padded = attn__round_up(t->pairs, SINGLE_LANES);
    const uint8_t *seen = blocked_kinds(b, t, i, &from, &to);
    set_masked(s, seen, from, to, t->pairs, padded, -INFINITY);
    float largest = largest_of(s, padded);
    for (int l = 0; l < kernel->lanes; l++) {
        top[l] = largest;
        max[l] = (float)b->at.max[i];
    }
    bool changed;
    kernel->softmax(&(attn__online_softmax_args){.s = s,
                                                 .rows = padded / kernel->lanes,
                                                 .width = kernel->lanes,
                                                 .top = top,
                                                 .m = max,
                                                 .l = sum,
                                                 .shrink = shrink,
                                                 .changed = &changed});
    if (b->plan->hides)
        set_masked(s, seen, from, to, t->pairs, padded, -0.0f);
    b->at.max[i] = (double)max[0];
    b->at.sum[i] *= (double)shrink[0];
    for (int l = 0; l < kernel->lanes; l++)
        b->at.sum[i] += (double)sum[l];
    return (double)shrink[0];
}

/* Computes a tile. The last tile also divides by the sums of weights. If bf16 cannot hold sums, `o` is f32 scratch. */
static void wide_forward_tile(blocked *b, const blocked_tile *t, bool first, bool last, wide_rows o)
{
    float *factor = b->at.factor, *was = b->at.was;
    blocked_score(b, t);
    for (int64_t i = 0; i < t->queries; i++) {
        double *s = b->plan->single ? NULL : blocked_finish_scores(b, t, i);
        double left = s ? blocked_softmax_step(b, t, i, s) : single_softmax_step(b, t, i);
        double whole = last ? whole_of(b, i) : 1;
        factor[i] = whole == 0 ? 0.0f : (float)(1 / whole);
        was[i] = (float)left * factor[i];
        if (!s)
            continue;
        blocked_finish_weights(b, t, i, s);
        blocked_scatter_pairs(b, t, &b->at.s, i);
    }
    wide_add(b, wide_of(b, t, ATTN__OP_V, 0), o, b->at.s.singles, false, factor, first ? NULL : was);
}

/* Stores the sums `from`, which were kept in f32 scratch memory, in the rows `o`. */
static void wide_move(const blocked *b, const wide_rows *from, const wide_rows *o)
{
    int64_t values = b->canonical->value.size, chunk = b->plan->kernels.chunk;
    for (int64_t first = 0; first < values; first += chunk) {
        wide_chunk sums = {*from, first, attn__min(values - first, chunk)}, to = {*o, first, sums.n};
        wide_copy(&b->wide, &sums, b->wide.out);
        wide_store(&b->wide, &to, b->wide.ones, NULL);
    }
}

/* Starts another pass over the tiles, which knows the rows of blocked_fades. */
static void blocked_restart(const blocked *b, const blocked_tile *t)
{
    for (int64_t i = 0; i < t->queries; i++) { /* mask_fill excludes sinks */
        b->at.max[i] = -(double)INFINITY;
        b->at.sum[i] = b->at.count[i] = 0;
    }
}

/* Runs all tiles up to the one that begins at pair `last`. Returns false if there are none. */
static bool wide_forward_tiles(blocked *b, blocked_tile *t, int64_t last, wide_rows sums)
{
    bool first = true;
    for (t->pair = 0; t->pair <= last; t->pair += b->plan->pairs)
        if (blocked_start_tile(b, t)) {
            wide_forward_tile(b, t, first, t->pair == last, sums);
            first = false;
        }
    return !first;
}

static void wide_forward_block(blocked *b, blocked_tile *t)
{
    const attn__canonical *canonical = b->canonical;
    int64_t last = -1, values = canonical->value.size;
    wide_rows o = wide_of(b, t, ATTN__OP_O, 2), sums = o;
    blocked_start_block(b, t);
    for (; t->pair < canonical->key.size; t->pair += b->plan->pairs)
        last = blocked_start_tile(b, t) ? t->pair : last;
    bool keeps = canonical->problem.dtype == ATTN_BF16 && canonical->key.size > b->plan->pairs;
    if (keeps) {
        int64_t *at = b->at.row_at[BLOCKED_ROW_AT - 1];
        for (int64_t i = 0; i < t->queries; i++)
            at[i] = i * values;
        sums = (wide_rows){{NULL, 0, ATTN_F32, values}, b->at.sums, at, t->queries};
    }
    b->wide.met = false;
    bool any = wide_forward_tiles(b, t, last, sums);
    if (b->wide.met && canonical->problem.mask_fill != 0 && blocked_fades(b, t)) {
        blocked_restart(b, t);
        wide_forward_tiles(b, t, last, sums);
    }
    if (!any)
        wide_clear(&b->wide, &o, values);
    else if (keeps)
        wide_move(b, &sums, &o);
}

static void finish_rows(const blocked *b, const blocked_tile *t)
{
    const attn__canonical *canonical = b->canonical;
    int64_t values = canonical->value.size;
    double unit = b->plan->single ? ATTN__LOG2E : 1;
    for (int64_t i = 0; i < t->queries; i++) {
        double *row = b->at.o + i * values, whole = whole_of(b, i);
        for (int64_t c = 0; c < values && !b->plan->wide; c++)
            row[c] = whole == 0 ? 0 : row[c] / whole;
        if (!b->plan->wide)
            attn__scatter(&canonical->value, ATTN__OP_O, canonical->problem.dtype, b->arrays->o,
                          blocked_offset(b, ATTN__STRIDE(dim.o), t->query + i), row, false);
        if (canonical->problem.flags & ATTN_WANT_LSE)
            attn__store(attn__operand_dtype(&canonical->problem, ATTN__OP_LSE), b->arrays->lse,
                        blocked_offset(b, ATTN__STRIDE(dim.lse), t->query + i),
                        whole == 0 ? -(double)INFINITY : b->at.max[i] / unit + log(whole));
    }
}

/* Runs over all tiles of a block in an extra pass. Finds the largest scores of each row if `ranks` is set, otherwise
 * the row's maximum and sum. Does nothing if a float64 tile has whole rows, because its normal pass finds them. */
static void walk_scores(blocked *b, blocked_tile *t, bool ranks)
{
    int64_t k = b->canonical->problem.top_k;
    if (has_whole_rows(b) && !b->plan->wide)
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
    if (b->plan->linear || b->plan->wide) {
        if (b->plan->wide)
            wide_forward_block(b, &t);
        else
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
    int64_t segment = blocked_segment(plan, b->canonical), begin = block / j->blocks * segment;
    if (first < segment && begin < b->canonical->query.size)
        forward_block(b, batch, begin + first, attn__min(segment - first, plan->queries));
    blocked_end(b);
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
        double before = adds & ATTN_WANT_DBIAS ? attn__load(dtype, b->arrays->dbias, row + key[j]) : 0;
        attn__store(dtype, b->arrays->dbias, row + key[j], before + (ds ? ds[j] : 0));
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
    const double *o = b->plan->wide ? NULL : b->o + i * values, *dout = b->plan->wide ? NULL : b->dout + i * values;
    double delta = b->plan->wide ? b->at.delta[i] : attn__dot_channels(o, dout, values);
    if (canonical->extras & ATTN__DLSE)
        delta -= attn__load(attn__operand_dtype(&canonical->problem, ATTN__OP_LSE), b->arrays->dlse,
                            blocked_offset(b, ATTN__STRIDE(dim.lse), t->query + i));
    return delta;
}

/* Reports whether log-sum-exps are computed again, because the stored values have too few digits in f32 or with a
 * mask_fill. With sinks the stored values are used, because the backward pass does not have the sinks. */
static bool normalizes_again(const blocked *b)
{
    const attn_problem *p = &b->canonical->problem;
    return p->normalization == ATTN_NORMALIZATION_SOFTMAX && !(p->flags & ATTN_WITH_SINKS) &&
           ((p->dtype != ATTN_F64 && !b->plan->wide) || p->mask_fill != 0);
}

/* Returns the log-sum-exp of a row. If it is computed again, it is relative to the row's maximum, which is subtracted
 * from s. */
static double normalizer_of(const blocked *b, const blocked_tile *t, int64_t i, double *s)
{
    const attn_problem *p = &b->canonical->problem;
    if (!normalizes_again(b))
        return attn__load(attn__operand_dtype(p, ATTN__OP_LSE), b->arrays->lse,
                          blocked_offset(b, ATTN__STRIDE(dim.lse), t->query + i));
    if (has_whole_rows(b) && !b->plan->wide) {
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
        double least = b->plan->wide ? (double)FLT_MIN : 0; /* f32 cannot hold smaller weights, so they become 0 */
        b->plan->kernel->gradients(s, dp, t->pairs, lse, delta, least);
        for (int64_t j = 0; j < t->pairs && p->mask_fill != 0; j++)
            dp[j] = seen[j] == ATTN__VISIBLE_FILL ? 0 : dp[j];
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

/* Computes the weights and the gradients of the scores of a tile in f32. b->at.delta has o . dout of each row. */
static void run_single_rows(blocked *b, const blocked_tile *t)
{
    const attn__canonical *canonical = b->canonical;
    const wide_kernels *kernels = &b->plan->kernels;
    float *lse = b->at.factor, *delta = b->at.was;
    for (int64_t i = 0; i < t->queries; i++)
        delta[i] = (float)b->at.delta[i];
    attn__lse_load(canonical, b->arrays, b->batch, t->query, t->queries, lse, delta);
    attn__tile_rows rows = {.lse = lse, .delta = delta};
    attn__tile_keys keys = {.see = {.first = t->pair}};
    attn__tile_weights(&(attn__tile){.plan = &b->plan->tiles,
                                     .see = &b->rows,
                                     .rows = &rows,
                                     .nrows = t->queries,
                                     .keys = &keys,
                                     .nkeys = t->pairs,
                                     .ld = b->plan->ld_s,
                                     .s = b->at.s.singles,
                                     .ds = b->at.dp.singles,
                                     .full = b->hides == ATTN__VISIBLE_ALL});
    for (int64_t i = 0; i < t->queries; i++) {
        float *ds = b->at.dp.singles + i * b->plan->ld_s;
        kernels->channels->scale((float)canonical->problem.scale, ds, t->pairs);
        for (int64_t j = 0; j < t->pairs && canonical->problem.scale < 0; j++)
            ds[j] = ds[j] == 0 ? -ds[j] : ds[j]; /* marks stay -0, and other zeros +0 */
    }
}

/* Returns the gradients that a tile overwrites because no earlier tile has added to them. */
static unsigned wide_fresh(const blocked_tile *t, bool first, unsigned adds)
{
    return ((t->query == 0 ? ATTN_WANT_DK | ATTN_WANT_DV : 0u) | (first ? ATTN_WANT_DQ : 0u)) & ~adds;
}

static void wide_backward_tile(blocked *b, const blocked_tile *t, bool first, unsigned adds)
{
    static const struct {
        unsigned want;
        attn__operand in, out;
    } gradients[] = {{ATTN_WANT_DV, ATTN__OP_DOUT, ATTN__OP_DV},
                     {ATTN_WANT_DK, ATTN__OP_Q, ATTN__OP_DK},
                     {ATTN_WANT_DQ, ATTN__OP_K, ATTN__OP_DQ}};
    const float *ones = b->wide.ones;
    memset(b->at.delta, 0, (size_t)t->queries * sizeof(double));
    wide_score(&b->wide, &(wide_scores){.a = wide_of(b, t, ATTN__OP_DOUT, 0),
                                        .b = wide_of(b, t, ATTN__OP_V, 1),
                                        .with = wide_of(b, t, ATTN__OP_O, 2),
                                        .channels = b->canonical->value.size,
                                        .factor = 1.0f,
                                        .out = b->at.dp.singles,
                                        .dots = b->at.delta});
    blocked_score(b, t);
    if (b->plan->single)
        run_single_rows(b, t);
    for (int64_t i = 0; i < t->queries && !b->plan->single; i++)
        run_row(b, t, i, adds);
    for (int g = 0; g < 3; g++)
        if (b->canonical->problem.flags & gradients[g].want)
            wide_add(b, wide_of(b, t, gradients[g].in, 0), wide_of(b, t, gradients[g].out, 1),
                     g == 0 ? b->at.s.singles : b->at.dp.singles, g < 2, ones,
                     wide_fresh(t, first, adds) & gradients[g].want ? NULL : ones);
}

/* Clears the requested gradients among `gradients` for the keys or queries of a tile. */
static void wide_clear_gradients(const blocked *b, const blocked_tile *t, unsigned gradients)
{
    static const unsigned wants[] = {ATTN_WANT_DQ, ATTN_WANT_DK, ATTN_WANT_DV};
    static const attn__operand ops[] = {ATTN__OP_DQ, ATTN__OP_DK, ATTN__OP_DV};
    for (int g = 0; g < 3; g++)
        if (gradients & b->canonical->problem.flags & wants[g]) {
            wide_rows rows = wide_of(b, t, ops[g], 0);
            wide_clear(&b->wide, &rows, rows.operand.channels->size);
        }
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

/* Stores rows [first, first + n) of a gradient if it is requested. */
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
    bool in_f32 = b->plan->wide, first = true;
    blocked_gather_queries(b, t);
    if (b->plan->linear) {
        blocked_linear_query_gradients(b, t);
        store_sums(b, t, adds);
        return;
    }
    blocked_start_block(b, t);
    if (!in_f32)
        clear_sums(b, t);
    if (b->canonical->extras & ATTN__TOP_K)
        walk_scores(b, t, true);
    if (normalizes_again(b)) {
        blocked_reset_softmax(b, t);
        walk_scores(b, t, false);
    }
    for (t->pair = 0; t->pair < b->canonical->key.size; t->pair += b->plan->pairs) {
        bool sees = blocked_start_tile(b, t);
        if (sees && in_f32)
            wide_backward_tile(b, t, first, adds);
        else if (sees)
            backward_tile(b, t, adds);
        else if (in_f32)
            wide_clear_gradients(b, t, wide_fresh(t, false, adds));
        bool clears = !sees && (b->canonical->problem.flags & ~adds & ATTN_WANT_DBIAS);
        for (int64_t i = 0; i < t->queries && clears; i++) /* masked pairs have the bias gradient 0 */
            store_bias(b, t, i, 0, NULL);
        first = first && !sees;
    }
    if (!in_f32)
        store_sums(b, t, adds);
    else if (first)
        wide_clear_gradients(b, t, ATTN_WANT_DQ & ~adds);
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
    int64_t segment = blocked_segment(b->plan, b->canonical);
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

/* Runs the backward pass of a batch index of a wide problem. If there are no queries, dk and dv become 0. */
static void wide_backward(blocked *b, unsigned adds, unsigned clear)
{
    blocked_tile all = {0};
    if (b->canonical->query.size == 0)
        clear |= (ATTN_WANT_DK | ATTN_WANT_DV) & ~adds;
    for (; all.pair < b->canonical->key.size; all.pair += b->plan->pairs) {
        all.pairs = attn__min(b->canonical->key.size - all.pair, b->plan->pairs);
        wide_clear_gradients(b, &all, clear);
    }
    backward_blocks(b, adds);
}

/* Reports whether `batch` is the first of the BATCH indices that add to the same elements of a gradient. */
static bool comes_first(const attn__canonical *canonical, attn__operand op, int64_t batch)
{
    const attn__group *group = &canonical->batch;
    for (int a = 0; a < group->n; a++) {
        bool repeats = !group->axis[a].packed && attn__stride(&group->axis[a].dim, op) == 0;
        if (repeats && attn__offsets_index(group, a, batch) != 0)
            return false;
    }
    return true;
}

/* Runs one batch index. If several BATCH indices share packed keys, the first one clears the gradients of the keys. */
static void run_one(const blocked_job *j, attn__sums *sums, int64_t batch, int thread)
{
    blocked *b = blocked_begin(j, batch, thread);
    unsigned clear = (comes_first(j->canonical, ATTN__OP_DK, batch) ? ATTN_WANT_DK : 0u) |
                     (comes_first(j->canonical, ATTN__OP_DV, batch) ? ATTN_WANT_DV : 0u);
    clear &= attn__is_packed(j->canonical) ? j->broadcast : 0;
    b->sums = sums;
    b->batch = batch;
    if (b->plan->wide)
        wide_backward(b, j->adds, clear);
    else
        run_batch(b, batch, j->adds, clear);
    blocked_end(b);
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

/* ------------------------------------------------------------------------------------------ plan of wide problems */

/* Block sizes of wide problems: WIDE_QUERIES queries forward, WIDE_BLOCK queries and keys backward. At these sizes, P
 * and dS fill half of a typical L2 cache. */
enum { WIDE_BLOCK = 256, WIDE_QUERIES = 288 };

/* Reports whether products of f32 run on AMX. Each step along k must be a run of adjacent channels in every operand. */
static bool wide_uses_amx(const attn__canonical *canonical)
{
    static const attn__operand ops[] = {ATTN__OP_Q,    ATTN__OP_K,  ATTN__OP_V,  ATTN__OP_O,
                                        ATTN__OP_DOUT, ATTN__OP_DQ, ATTN__OP_DK, ATTN__OP_DV};
    bool fit = wide_stream_pays(canonical) && !(canonical->backward && blocked_broadcast(canonical));
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        wide_operand x = wide_operand_of(canonical, ops[i]);
        fit = fit && (!attn__operand_used(&canonical->problem, ops[i]) || wide_streams(&x));
    }
    return fit;
}

/* Reports whether products of bf16 run on AMX. This is so in forward passes whose sizes fill whole AMX tiles well. */
static bool wide_uses_bf16(const attn__canonical *canonical)
{
    enum { LEAST = 24 };
    double queries = (double)attn__round_up(canonical->query.size, SIDE), keys = (double)canonical->key.size;
    double channels = (double)canonical->contract.size, values = (double)canonical->value.size;
    double whole =
        queries * (double)(attn__round_up(canonical->key.size, SIDE) * attn__round_up(canonical->contract.size, DEPTH) +
                           attn__round_up(canonical->key.size, DEPTH) * attn__round_up(canonical->value.size, SIDE));
    return canonical->problem.dtype == ATTN_BF16 && !canonical->backward && attn__bf16x3_for(canonical->isa) &&
           canonical->query.size >= LEAST && whole <= 1.5 * queries * keys * (channels + values);
}

/* Reports whether a problem is wide: a softmax of dot products in f32 or bf16.  Batch-invariant contexts use float64
 * instead, where the order of sums does not depend on the number of keys. Bf16 gradients to which several blocks add
 * also use float64, because bf16 cannot hold sums. */
static bool is_wide(const attn__canonical *canonical)
{
    const attn_problem *p = &canonical->problem;
    bool one = canonical->query.size <= WIDE_BLOCK && canonical->key.size <= WIDE_BLOCK &&
               !(canonical->backward && blocked_broadcast(canonical));
    return p->dtype != ATTN_F64 && p->score == ATTN_SCORE_DOT && p->normalization == ATTN_NORMALIZATION_SOFTMAX &&
           p->top_k == 0 && p->nwindows == 0 && p->nrelatives == 0 && !(canonical->extras & ATTN__BATCH_INVARIANT) &&
           !(canonical->backward && p->dtype == ATTN_BF16 && !one);
}

/* Divides n into equal parts of at most `most`. Returns the length of a part, rounded up to a multiple of `unit`. */
static int64_t part_of(int64_t n, int64_t most, int64_t unit)
{
    int64_t parts = attn__ceil_div(n, most);
    return attn__round_up(parts > 1 ? attn__ceil_div(n, parts) : n, unit);
}

/* Chooses the sizes of blocks. Forward, the scores of a block fill half of the L2 cache, and panels fill the rest. */
static void choose_wide_blocks(blocked_plan *p, const attn__canonical *canonical)
{
    enum { KEYS = 512, AMX_KEYS = 256, UNIT = 8, FEW_ITEMS = 8 };
    bool stream = p->kernels.terms == TERMS;
    int64_t keys = canonical->key.size, queries = p->segment;
    if (canonical->backward) {
        p->pairs = part_of(keys, WIDE_BLOCK, 1);
        p->queries = part_of(queries, WIDE_BLOCK, 1);
    } else {
        p->pairs = part_of(keys, stream ? AMX_KEYS : KEYS, p->kernels.amx ? DEPTH : UNIT);
        int64_t most = (int64_t)canonical->caches.l2 / 2 / (int64_t)sizeof(float) / p->pairs;
        int64_t pieces = attn__ceil_div(queries, attn__min(attn__max(most, 2 * SIDE), WIDE_QUERIES));
        /* Block sizes must not depend on the number of threads, because an AMX block with NaN or infinity is rounded
         * differently. */
        int64_t items = stream ? FEW_ITEMS : canonical->threads;
        if (canonical->batch.size < items)
            pieces = attn__max(pieces, items);
        p->queries = attn__round_up(attn__ceil_div(queries, pieces), UNIT);
    }
    p->pairs = attn__min(p->pairs, keys);
    p->columns = p->pairs;
    p->ld_s = attn__round_up(p->columns, SIDE);
    if (p->ld_s * (int64_t)sizeof(float) % 128 == 0) /* avoids a stride that maps columns to few cache sets */
        p->ld_s += SIDE;
}

/* Reports whether the softmax runs in f32, which takes a third of the time. Before the softmax, scores may only be
 * masked: by ranges of keys or, in the forward pass, by a mask. */
static bool is_single(const attn__canonical *canonical, const attn__visible *visible)
{
    const attn_problem *p = &canonical->problem;
    return p->softcap == 0 && p->mask_fill == 0 && !canonical->has_bias && !canonical->has_dropout &&
           !(canonical->extras & ATTN__SINKS) && !(p->flags & (ATTN_WANT_DBIAS | ATTN_WITH_SINKS)) &&
           (!canonical->backward || (visible->ranges && !visible->mask && !visible->blocks));
}

static void choose_wide_kernels(blocked_plan *p, const attn__canonical *canonical)
{
    wide_kernels *k = &p->kernels;
    k->tile = attn__gemm_tile_for(canonical->isa);
    k->lanes = attn__online_softmax_for(canonical->isa);
    k->store = attn__softmax_backward_for(canonical->isa);
    k->channels = attn__additive_for(canonical->isa);
    k->terms = wide_uses_bf16(canonical) ? 1 : wide_uses_amx(canonical) ? TERMS : 0;
    k->amx = k->terms ? attn__bf16x3_for(canonical->isa) : NULL;
    k->chunk = k->terms == 1 ? WIDE_AMX_CHUNK : WIDE_CHUNK;
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
    p->wide = is_wide(canonical);
    p->segment = blocked_segment(p, canonical);
    p->single = p->wide && is_single(canonical, &p->tiles.visible);
    p->hides = attn__visible_masks(&p->tiles.visible) || canonical->has_bias || canonical->has_dropout;
    if (p->wide) {
        choose_wide_kernels(p, canonical);
        choose_wide_blocks(p, canonical);
    } else {
        choose_blocks(p, canonical);
    }
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
    if (is_wide(canonical))
        return p->dtype == ATTN_BF16 && channels * WIDE_QUERIES > MOST_NUMBERS;
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
    unsigned shared = canonical->backward ? blocked_broadcast(canonical) : 0;
    if (shared && ((p->accumulate && !is_wide(canonical)) || p->dtype == ATTN_BF16))
        return "does not support broadcast gradients in bf16 or with accumulate";
    if (packed && (shared & ATTN_WANT_DQ))
        return "does not support dq of broadcast packed queries";
    if (is_large(canonical))
        return "needs many gigabytes of workspace";
    return NULL;
}

/* Estimates the time of a wide problem. The time is longer with bands, because bands leave large blocks half empty.
 * Without AMX it is short only if a head fills the L2 cache, because scores are stored after each chunk. On AMX it is
 * short for smaller heads too, because the vector units store scores during the products. */
static double wide_cost(const attn__canonical *canonical)
{
    enum { PLAIN = 641, PLAIN_BACKWARD = 512, STREAM = 512, STREAM_BACKWARD = 320, ONE = 256, SHORT = 128 };
    double pairs = (double)canonical->batch.size * (double)canonical->query.size * (double)canonical->key.size;
    int64_t channels = canonical->contract.size + canonical->value.size, least;
    int64_t queries = canonical->query.size, keys = canonical->key.size;
    bool back = canonical->backward, stream = wide_uses_amx(canonical);
    bool one = attn__max(queries, keys) <= WIDE_BLOCK && attn__min(queries, keys) >= SHORT;
    if (stream)
        least = one ? ONE : back ? STREAM_BACKWARD : STREAM;
    else
        least = back ? PLAIN_BACKWARD : PLAIN;
    double each = back && stream && channels >= STREAM_BACKWARD ? 0.8 : channels >= least ? 0.98 : 1.1;
    return pairs * (double)channels * each * (canonical->problem.nbands ? 1.2 : 1);
}

/* Estimates the time in f32 multiply-adds: 2.5 for a float64 multiply-add, 60 for exp, 50 for tanh, 10 for a gather. */
static double cost(const attn__canonical *canonical)
{
    blocked_plan p = {0};
    if (is_wide(canonical))
        return wide_cost(canonical);
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
    if (p->wide) {
        const char *terms = p->kernels.terms == 1 ? ", 1 bf16 term" : p->kernels.terms ? ", 3 bf16 terms" : "";
        snprintf(recipe->text, sizeof recipe->text, "%s%s, blocks of %d queries x %d keys, %d channels a step",
                 attn__isa_text(*terms ? canonical->isa : p->kernels.tile->isa), terms, (int)p->queries,
                 (int)p->columns, (int)p->kernels.chunk);
        return ATTN_OK;
    }
    snprintf(recipe->text, sizeof recipe->text, "%s in f64, blocks of %d queries x %d keys",
             attn__isa_text(p->kernel->isa), (int)p->queries, (int)p->columns);
    return ATTN_OK;
}

static void apply(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
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
    j.broadcast = blocked_broadcast(canonical);
    j.adds = canonical->problem.accumulate ? ATTN__WANT_OWN : j.broadcast;
    j.slots = attn__slots_make(canonical, j.workspace + (size_t)canonical->threads * plan->bytes);
    attn__parallel_items(canonical->threads, j.slots.n, run_slot, &j);
    attn__slots_store(&j.slots, arrays);
}

/* Returns the gradients to which several blocks of queries (dk, dv), blocks of keys (dq) or batch indices add. */
static unsigned adds_often(const attn__canonical *canonical)
{
    if (!is_wide(canonical))
        return 0;
    return blocked_broadcast(canonical) | (canonical->query.size > WIDE_BLOCK ? ATTN_WANT_DK | ATTN_WANT_DV : 0u) |
           (canonical->key.size > WIDE_BLOCK ? ATTN_WANT_DQ : 0u);
}

const attn__solver attn__solver_blocked = {.name = "blocked",
                                           .refuse = refuse,
                                           .cost = cost,
                                           .adds_often = adds_often,
                                           .plan = plan,
                                           .apply = apply,
                                           .extras = ATTN__PACKED | ATTN__SOFTCAP | ATTN__SINKS | ATTN__DLSE |
                                                     ATTN__BIAS_MEETS | ATTN__BLOCKS | ATTN__TOP_K |
                                                     ATTN__BATCH_INVARIANT};
