/* SPDX-License-Identifier: MIT
 * Backward: an item is a batch index, or several of them that share gradients.
 *
 *     P = exp(S - lse)    dP = dO V^T    dS = scale P (dP - sum of O dO)
 *     dQ = dS K           dK = dS^T Q    dV = P^T dO */
#include "attend/solve/blocked.h"

#include "attend/block/element.h"
#include "attend/block/rows.h"
#include "attend/block/packed_sequences.h"
#include "attend/block/slots.h"
#include "attend/block/table.h"
#include "base/integers.h"
#include "base/parallel.h"

#include <math.h>

typedef struct job {
    const attn__canonical *canonical;
    const attn__blocked_plan *plan;
    const attn_arrays *arrays;
    double *workspace;
    attn__slots slots;
    unsigned broadcast; /* gradients where several batch indices or pairs add to one element */
    unsigned adds;      /* those that hold something already */
} job;

/* ------------------------------------------------------------------------------------------------- a row */

/* Row i of the bias's gradient, which is that of the scores. */
static void store_bias(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, unsigned adds, const double *ds)
{
    attn_dtype dtype = attn__operand_dtype(&b->canonical->problem, ATTN__OP_DBIAS);
    const int64_t *key = attn__blocked_integers(b, b->plan->at.dbias_at);
    int64_t row = attn__blocked_offset(b, ATTN__STRIDE(dim.dbias), t->query + i);
    for (int64_t j = 0; j < t->pairs; j++) {
        double before = adds & ATTN_WANT_DBIAS ? attn__load(dtype, b->arrays->dbias, row + key[j]) : 0;
        attn__store(dtype, b->arrays->dbias, row + key[j], before + (ds ? ds[j] : 0));
    }
}

/* From the gradient of what the softmax sees to that of the scores without their scale. */
static void scale_row(const attn__blocked *b, const attn__blocked_tile *t, double *ds)
{
    const attn_problem *p = &b->canonical->problem;
    const double *slope = attn__blocked_at(b, b->plan->at.slope);
    for (int64_t j = 0; j < t->pairs && p->softcap != 0; j++)
        ds[j] = ds[j] == 0 ? 0 : ds[j] * slope[j]; /* a pair that is masked may have any slope */
    b->plan->kernel->scale(ds, t->pairs, p->scale);
}

static double delta_of(const attn__blocked *b, const attn__blocked_tile *t, int64_t i)
{
    const attn__canonical *canonical = b->canonical;
    int64_t values = canonical->value.size;
    const double *o = b->o + i * values;
    const double *dout = b->dout + i * values;
    double delta = 0;
    for (int64_t c = 0; c < values; c++)
        delta += o[c] * dout[c];
    if (canonical->extras & ATTN__DLSE)
        delta -= attn__load(attn__operand_dtype(&canonical->problem, ATTN__OP_LSE), b->arrays->dlse,
                            attn__blocked_offset(b, ATTN__STRIDE(dim.lse), t->query + i));
    return delta;
}

/* Whether log-sum-exps are computed again, since f32 and sums next to a fill of -1e6 leave too few of their digits.
 * Backward nobody has the sinks, which are in them. */
static bool normalizes_again(const attn_problem *p)
{
    return p->normalization == ATTN_NORMALIZATION_SOFTMAX && !(p->flags & ATTN_WITH_SINKS) &&
           (p->dtype != ATTN_F64 || p->mask_fill != 0);
}

/* The logarithm of what the weights are divided by; where it is computed again, less the row's maximum, as s is then. */
static double normalizer_of(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, double *s)
{
    const attn_problem *p = &b->canonical->problem;
    if (!normalizes_again(p))
        return attn__load(attn__operand_dtype(p, ATTN__OP_LSE), b->arrays->lse,
                          attn__blocked_offset(b, ATTN__STRIDE(dim.lse), t->query + i));
    double max = attn__blocked_at(b, b->plan->at.max)[i];
    for (int64_t j = 0; j < t->pairs && isfinite(max); j++)
        s[j] -= max;
    return max == -(double)INFINITY ? max : log(attn__blocked_at(b, b->plan->at.sum)[i]);
}

/* From scores s and gradients of weights dp to weights and gradients of scores. */
static void weigh(const attn__blocked *b, const attn__blocked_tile *t, double lse, double delta, double *s, double *dp)
{
    const uint8_t *seen = (const uint8_t *)attn__blocked_at(b, b->plan->at.seen);
    const attn_problem *p = &b->canonical->problem;
    if (p->normalization == ATTN_NORMALIZATION_SOFTMAX) {
        b->plan->kernel->gradients(s, dp, t->pairs, lse, delta);
        for (int64_t j = 0; j < t->pairs && p->mask_fill != 0; j++)
            dp[j] = seen[j] == ATTN__BLOCKED_FILL ? 0 : dp[j];
        return;
    }
    double inverse = exp(-lse), less = p->normalization == ATTN_NORMALIZATION_SUM ? delta : 0;
    for (int64_t j = 0; j < t->pairs; j++) {
        bool sees = seen[j] == ATTN__BLOCKED_KEY; /* the others stay 0, even if the sum is NaN */
        s[j] = sees ? s[j] * inverse : 0;
        dp[j] = sees ? (dp[j] - less) * inverse : 0;
    }
}

/* A normalizer that is NaN shows in every key that the row sees; a masked one that scores has no gradient. */
static void spread_nan(const attn__blocked *b, const attn__blocked_tile *t, double nan, double *s, double *dp)
{
    const uint8_t *seen = (const uint8_t *)attn__blocked_at(b, b->plan->at.seen);
    const attn_problem *p = &b->canonical->problem;
    bool counted = p->normalization != ATTN_NORMALIZATION_SOFTMAX || p->mask_fill != 0;
    for (int64_t j = 0; j < t->pairs; j++) {
        bool out = counted ? seen[j] == ATTN__BLOCKED_OUT : s[j] == -(double)INFINITY;
        s[j] = out ? 0 : nan;
        dp[j] = out || (counted && seen[j] == ATTN__BLOCKED_FILL) ? 0 : nan;
    }
}

static void weigh_row(const attn__blocked *b, const attn__blocked_tile *t, int64_t i, double *s, double *dp)
{
    double lse = normalizer_of(b, t, i, s);
    if (lse == -(double)INFINITY) { /* no keys */
        memset(s, 0, (size_t)t->pairs * sizeof *s);
        memset(dp, 0, (size_t)t->pairs * sizeof *dp);
        return;
    }
    if (lse != lse) {
        spread_nan(b, t, lse, s, dp);
        return;
    }
    attn__blocked_drop(b, t, i, dp);
    weigh(b, t, lse, delta_of(b, t, i), s, dp);
    attn__blocked_drop(b, t, i, s);
}

/* ------------------------------------------------------------------------------------------------ a tile */

static void run_row(attn__blocked *b, const attn__blocked_tile *t, int64_t i, unsigned adds)
{
    const attn__blocked_places *at = &b->plan->at;
    double *s = attn__blocked_finish_scores(b, t, i), *dp = attn__blocked_gather_pairs(b, t, at->dp, i);
    attn__blocked_add_tables(b, t, i, true, dp);
    weigh_row(b, t, i, s, dp);
    attn__blocked_sum_tables(b, t, i, true, s);
    if (b->canonical->problem.flags & ATTN_WANT_DBIAS)
        store_bias(b, t, i, adds, dp);
    scale_row(b, t, dp);
    attn__blocked_sum_tables(b, t, i, false, dp);
    attn__blocked_scatter_pairs(b, t, at->s, i);
    attn__blocked_scatter_pairs(b, t, at->dp, i);
}

static void run_tile(attn__blocked *b, const attn__blocked_tile *t, unsigned adds)
{
    const attn__blocked_places *at = &b->plan->at;
    int64_t values = b->canonical->value.size;
    attn__blocked_product p = {.a = b->dout,
                               .lda = values,
                               .b = t->v_t,
                               .ldb = b->plan->ld,
                               .c = attn__blocked_at(b, at->dp),
                               .ldc = b->plan->ld_s,
                               .m = t->queries,
                               .n = t->columns,
                               .k = values};
    attn__blocked_scores(b, t);
    attn__blocked_multiply_tables(b, t);
    attn__blocked_multiply(b, &p);
    for (int64_t i = 0; i < t->queries; i++)
        run_row(b, t, i, adds);
    p = (attn__blocked_product){.a = attn__blocked_at(b, at->s),
                                .lda = b->plan->ld_s,
                                .b = b->dout,
                                .ldb = values,
                                .c = t->dv,
                                .ldc = values,
                                .m = t->columns,
                                .n = values,
                                .k = t->queries,
                                .transposed = true,
                                .add = true};
    attn__blocked_multiply_masked(b, &p);
    attn__blocked_score_gradients(b, t);
    attn__blocked_apply_score_tables(b, t);
    attn__blocked_sum_table_gradients(b, t);
}

/* The gradient of the bias in a tile whose pairs are all masked is 0. */
static void clear_bias(attn__blocked *b, const attn__blocked_tile *t)
{
    for (int64_t i = 0; i < t->queries; i++)
        store_bias(b, t, i, 0, NULL);
}

/* ----------------------------------------------------------------------------------------------- a block */

/* With windows: the gradients of the block's columns go to their positions. */
static void add_columns(const attn__blocked *b, const attn__blocked_tile *t, int64_t to, const double *from,
                        int64_t channels)
{
    const int64_t *place = attn__blocked_integers(b, b->plan->at.position_of);
    for (int64_t c = 0; c < t->columns; c++)
        for (int64_t j = 0; j < channels && place[c] >= 0; j++)
            attn__blocked_at(b, to)[place[c] * channels + j] += from[c * channels + j];
}

/* The maxima and sums of the block's rows, as forward. */
static void normalize_again(attn__blocked *b, attn__blocked_tile *t)
{
    attn__blocked_reset_softmax(b, t);
    for (t->pair = 0; t->pair < b->canonical->key.size; t->pair += b->plan->pairs) {
        (void)attn__blocked_start_tile(b, t);
        attn__blocked_scores(b, t);
        attn__blocked_multiply_tables(b, t);
        for (int64_t i = 0; i < t->queries; i++)
            attn__blocked_softmax_step(b, t, i, attn__blocked_finish_scores(b, t, i), NULL);
    }
}

/* Rows [first, first + n) of a gradient, where it is wanted. */
static void store(const attn__blocked *b, unsigned want, attn__operand op, unsigned adds, int64_t first, int64_t n,
                  const double *rows)
{
    const attn__canonical *canonical = b->canonical;
    const attn__group *group = op == ATTN__OP_DQ                 ? &canonical->query
                               : canonical->problem.nwindows > 0 ? &b->plan->positions
                                                                 : &canonical->key;
    const attn__group *channels = op == ATTN__OP_DV ? &canonical->value : &canonical->contract;
    void *to = op == ATTN__OP_DQ ? b->arrays->dq : op == ATTN__OP_DK ? b->arrays->dk : b->arrays->dv;
    size_t stride = offsetof(attn__axis, dim) + attn__operand_table[op].offset;
    attn__strides strides = attn__operand_strides(channels, op);
    int64_t base = attn__offsets_one(&canonical->batch, stride, b->batch);
    for (int64_t i = 0; i < n && (canonical->problem.flags & want); i++) {
        int64_t offset = base + attn__offsets_one(group, stride, first + i);
        (adds & want ? attn__accumulate : attn__scatter)(channels, &strides, canonical->problem.dtype, to, offset,
                                                         rows + i * channels->size);
    }
}

static void run_block(attn__blocked *b, attn__blocked_tile *t, unsigned adds)
{
    const attn__canonical *canonical = b->canonical;
    const attn__blocked_places *at = &b->plan->at;
    int64_t channels = canonical->contract.size, values = canonical->value.size;
    attn__blocked_gather_queries(b, t);
    if (b->plan->linear) {
        attn__blocked_linear_query_gradients(b, t);
        store(b, ATTN_WANT_DQ, ATTN__OP_DQ, adds, t->query, t->queries, attn__blocked_at(b, at->dq));
        return;
    }
    attn__blocked_start_block(b, t);
    memset(attn__blocked_at(b, at->dq), 0, (size_t)(t->queries * channels) * sizeof(double));
    if (canonical->problem.nwindows) {
        memset(t->dk, 0, (size_t)(t->columns * channels) * sizeof *t->dk);
        memset(t->dv, 0, (size_t)(t->columns * values) * sizeof *t->dv);
    }
    if (normalizes_again(&canonical->problem))
        normalize_again(b, t);
    for (t->pair = 0; t->pair < canonical->key.size; t->pair += b->plan->pairs) {
        if (attn__blocked_start_tile(b, t))
            run_tile(b, t, adds);
        else if (canonical->problem.flags & ~adds & ATTN_WANT_DBIAS)
            clear_bias(b, t);
    }
    if (canonical->problem.nwindows) {
        add_columns(b, t, at->dk, t->dk, channels);
        add_columns(b, t, at->dv, t->dv, values);
    }
    store(b, ATTN_WANT_DQ, ATTN__OP_DQ, adds, t->query, t->queries, attn__blocked_at(b, at->dq));
}

/* ----------------------------------------------------------------------------------------- a batch index */

/* The gradients of the batch index's tables go to the sums that all share. */
static void store_tables(const attn__blocked *b)
{
    const attn__canonical *canonical = b->canonical;
    for (int i = 0; i < canonical->problem.nrelatives; i++) {
        const attn__blocked_table *table = &b->plan->table[i];
        double *sums = b->sums->at[ATTN__SUM_TABLE + i], *rows = attn__blocked_at(b, table->dt);
        int64_t channels = attn__table_channels(canonical, i)->size, row = canonical->problem.relatives[i].row_stride;
        attn__strides strides = attn__table_strides(canonical, i);
        for (int64_t d = 0; sums && d < table->rows; d++)
            attn__table_add(canonical, i, &strides, sums, attn__blocked_table_at(b, i) + d * row, 1,
                            rows + d * channels, attn__blocked_at(b, b->plan->at.offsets));
    }
}

/* `clear`: gradients of packed keys that are zeroed first. */
static void run_batch(attn__blocked *b, int64_t batch, unsigned adds, unsigned clear)
{
    const attn__canonical *canonical = b->canonical;
    const attn__blocked_plan *plan = b->plan;
    const attn__blocked_places *at = &plan->at;
    int64_t channels = canonical->contract.size, values = canonical->value.size;
    int64_t keys = canonical->problem.nwindows ? plan->positions.size : canonical->key.size;
    int64_t segment = attn__blocked_segment(canonical);
    attn__blocked_gather_batch(b, batch);
    memset(attn__blocked_at(b, at->dk), 0, (size_t)(keys * channels) * sizeof(double));
    memset(attn__blocked_at(b, at->dv), 0, (size_t)(keys * values) * sizeof(double));
    store(b, ATTN_WANT_DK & clear, ATTN__OP_DK, 0, 0, keys, attn__blocked_at(b, at->dk));
    store(b, ATTN_WANT_DV & clear, ATTN__OP_DV, 0, 0, keys, attn__blocked_at(b, at->dv));
    for (int i = 0; i < canonical->problem.nrelatives; i++)
        memset(attn__blocked_at(b, plan->table[i].dt), 0,
               (size_t)(plan->table[i].rows * attn__table_channels(canonical, i)->size) * sizeof(double));
    if (plan->linear)
        memset(attn__blocked_at(b, at->dm), 0, (size_t)(channels * values) * sizeof(double));
    for (int64_t first = 0; first < canonical->query.size; first += segment)
        for (int64_t i = 0; i < segment; i += plan->queries) {
            attn__blocked_tile t = {.query = first + i, .queries = attn__least(segment - i, plan->queries)};
            run_block(b, &t, adds);
        }
    if (plan->linear)
        attn__blocked_linear_key_gradients(b);
    store(b, ATTN_WANT_DK, ATTN__OP_DK, adds, 0, keys, attn__blocked_at(b, at->dk));
    store(b, ATTN_WANT_DV, ATTN__OP_DV, adds, 0, keys, attn__blocked_at(b, at->dv));
    store_tables(b);
}

/* Whether no BATCH index of the packed sequence before this one adds to the same elements of a gradient. */
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

/* A packed sequence zeroes only the gradients of its own keys: the first batch index that adds to them does so. */
static void run_one(const job *j, attn__sums *sums, int64_t batch, int thread)
{
    attn__sequence one;
    attn__blocked b = {.canonical = j->canonical,
                       .plan = j->plan,
                       .arrays = j->arrays,
                       .memory = j->workspace + (int64_t)thread * j->plan->at.all,
                       .sums = sums};
    bool packed = attn__is_packed(j->canonical);
    if (packed) {
        attn__sequence_at(&one, j->canonical, j->arrays, attn__packed_sequence(j->canonical, batch));
        b.canonical = &one.canonical;
        b.arrays = &one.arrays;
    }
    unsigned clear = (comes_first(j->canonical, ATTN__OP_DK, batch) ? ATTN_WANT_DK : 0u) |
                     (comes_first(j->canonical, ATTN__OP_DV, batch) ? ATTN_WANT_DV : 0u);
    run_batch(&b, batch, j->adds, packed ? j->broadcast & clear : 0);
}

static void run_slot(void *user, int64_t slot, int thread)
{
    const job *j = user;
    const attn__slots *slots = &j->slots;
    attn__sums sums;
    int64_t item, end;
    bool packed = attn__is_packed(j->canonical);
    unsigned clear = packed ? ATTN_WANT_DBIAS : j->broadcast; /* packed: of pairs that do not exist, too */
    if (j->canonical->problem.accumulate)
        clear = 0;
    for (attn__slots_start(slots, slot, &sums, &item, &end); item < end; item++) {
        attn__slots_clear(slots, j->arrays, clear, item);
        for (int64_t rest = 0; rest < slots->split.rest; rest++)
            run_one(j, &sums, attn__batch_split_index(&slots->split, j->canonical, item, rest), thread);
    }
}

void attn__blocked_backward(const attn__canonical *canonical, const attn__recipe *recipe, const attn_arrays *arrays,
                            void *workspace)
{
    const attn__blocked_plan *plan = recipe->data;
    job j = {.canonical = canonical,
             .plan = plan,
             .arrays = arrays,
             .workspace = workspace,
             .broadcast = attn__blocked_broadcast(canonical)};
    j.adds = canonical->problem.accumulate ? ATTN__WANT_OWN : j.broadcast;
    attn__slots_make(&j.slots, canonical, j.workspace + canonical->threads * plan->at.all);
    attn__parallel_items(canonical->threads, j.slots.n, run_slot, &j);
    attn__slots_store(&j.slots, arrays);
}
