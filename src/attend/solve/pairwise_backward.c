/* SPDX-License-Identifier: MIT
 *
 * The rows solver backward.  Gradients of q, k, v and bias are added to in place; batch indices that share none
 * of them are parallel.  Those of tables and of w are shared by all: they are summed apart in a number of slots
 * that depends on the problem only, and then slot after slot, so that threads do not show in the bits.
 */
#include "attend/solve/pairwise_rows.h"

#include "attend/problem/extent.h"
#include "attend/block/slots.h"
#include "attend/block/weight.h"
#include "base/normal.h"
#include "base/parallel.h"

#include <math.h>

enum { MOST_KEYS = 4096, BLOCK = 64 };

typedef struct job {
    const attn__canonical *canonical;
    const attn__pairwise_plan *plan;
    const attn_arrays *arrays;
    char *scratch;
    attn__slots slots;
} job;

typedef struct work {
    const job *job;
    attn__pairwise r;
    attn__sums sums; /* this slot's */
    float *dk, *dv;  /* while adding to gradients: those of the batch item's keys, rounded into them at its end */
    const float *o, *dout;
    double normalizer; /* log of the row's sum, or of its number of keys */
    double inverse;    /* of that sum or number */
    float max;         /* a part of the normalizer kept apart, 0 unless scores are filled */
    float delta;
    double of_gates; /* sum of the gradients of concat scores whose gates are open */
} work;

/* ------------------------------------------------------------------------------------------- shared sums */

/* Broadcast gradients are the planner's business, see private_gradients.h. */
const char *attn__pairwise_refuse_adding(const attn__canonical *canonical)
{
    return canonical->problem.nwindows || canonical->key.size > MOST_KEYS
               ? "adds to the gradients of windows or of many keys"
               : NULL;
}

/* Bytes of a thread's rows: scratch, and the gradients of the keys where these are kept apart. */
static size_t thread_share(const attn__canonical *canonical, const attn__pairwise_plan *plan)
{
    size_t channels = (size_t)(canonical->contract.size + canonical->value.size);
    size_t keys = canonical->problem.accumulate ? attn__size_mul((size_t)canonical->key.size, channels) : 0;
    return attn__size_add(plan->share, attn__size_add(attn__size_mul(keys, sizeof(float)), 63) & ~(size_t)63);
}

size_t attn__pairwise_backward_size(const attn__canonical *canonical, const attn__pairwise_plan *plan)
{
    size_t scratch = attn__size_mul(thread_share(canonical, plan), (size_t)canonical->threads);
    return attn__size_add(scratch, attn__slots_size(canonical));
}

static void add_to_sums(const work *w, int which, int side_of, int64_t offset, double a, const float *row)
{
    double *sums = w->sums.at[which];
    const attn__side *side = &w->r.plan->side[side_of];
    if (sums && side->direct)
        w->r.plan->kernel->axpy_f64(a, row, sums + offset, side->n);
    for (int64_t c = 0; sums && !side->direct && c < side->n; c++)
        if (side->offset[c] != ATTN__NOWHERE)
            sums[offset + side->offset[c]] += a * (double)row[c];
}

static void add_to_table(const work *w, int i, const attn__spot *spot, float a, const float *row)
{
    add_to_sums(w, ATTN__SUM_TABLE + i, ATTN__SIDE_TABLE + i, spot->table[i], (double)a, row);
}

static void add_to_w(const work *w, int which, double a, const float *row)
{
    add_to_sums(w, which, ATTN__SIDE_W, w->r.row.offset[ATTN__OP_W], a, row);
}

/* --------------------------------------------------------------------------------------------- one pair */

static void add_tables(work *w, const attn__spot *spot, float gradient, float *dk)
{
    const attn_problem *p = &w->job->canonical->problem;
    for (int i = 0; i < p->nrelatives; i++) {
        const attn_relative *t = &p->relatives[i];
        if (t->kind == ATTN_RELATIVE_VALUE)
            continue;
        bool of_query = t->kind == ATTN_RELATIVE_QUERY;
        add_to_table(w, i, spot, gradient, of_query ? w->r.q : w->r.k);
        w->r.plan->kernel->axpy(gradient, w->r.table[i], of_query ? w->r.sum : dk, w->job->canonical->contract.size);
    }
}

/* What the keys have in common, g w and g q, waits for the end of their block. */
static void add_concat(work *w, float gradient, float *dk)
{
    attn__pairwise *r = &w->r;
    int64_t n = r->canonical->contract.size;
    if (!(r->gate > 0))
        return;
    w->of_gates += (double)gradient;
    r->plan->kernel->axpy(gradient, r->w2, dk, n);
    r->plan->kernel->axpy(gradient, r->k, r->dw, n);
}

/* Where to add the gradient of a key: to its channels in place, or to zeros. */
static float *key_gradient(work *w, const attn__spot *spot, int64_t key)
{
    attn__pairwise *r = &w->r;
    int64_t n = r->canonical->contract.size;
    if (w->dk)
        return w->dk + key * n;
    if ((r->canonical->problem.flags & ATTN_WANT_DK) && r->plan->side[ATTN__SIDE_DK].direct && !spot->outside)
        return (float *)r->arrays->dk + spot->offset[ATTN__OP_DK];
    return memset(r->dk, 0, (size_t)n * sizeof(float));
}

/* `gradient` is that of score + tables: dq is summed over the row's keys. */
static void add_score(work *w, const attn__spot *spot, int64_t key, float gradient)
{
    attn__pairwise *r = &w->r;
    const attn__pairwise_kernel *kernel = r->plan->kernel;
    int64_t n = r->canonical->contract.size;
    float *dk = key_gradient(w, spot, key);
    switch (r->canonical->problem.score) {
    case ATTN_SCORE_ADDITIVE:
        kernel->additive_gradient(gradient, r->w, r->tanh, r->sum, dk, r->dw, n);
        break;
    case ATTN_SCORE_CONCAT:
        add_concat(w, gradient, dk);
        break;
    default:
        kernel->axpy(gradient, r->k, r->sum, n);
        kernel->axpy(gradient, r->q, dk, n);
    }
    add_tables(w, spot, gradient, dk);
    if (dk == r->dk && (r->canonical->problem.flags & ATTN_WANT_DK) && !spot->outside)
        attn__side_add(r, &r->plan->side[ATTN__SIDE_DK], r->arrays->dk, spot->offset[ATTN__OP_DK], 1, dk);
}

static void add_value(work *w, const attn__spot *spot, int64_t key, float kept)
{
    attn__pairwise *r = &w->r;
    const attn_problem *p = &r->canonical->problem;
    if (w->dv)
        r->plan->kernel->axpy(kept, w->dout, w->dv + key * r->canonical->value.size, r->canonical->value.size);
    else if ((p->flags & ATTN_WANT_DV) && !spot->outside)
        attn__side_add(r, &r->plan->side[ATTN__SIDE_DV], r->arrays->dv, spot->offset[ATTN__OP_DV], kept, w->dout);
    for (int i = 0; i < p->nrelatives; i++)
        if (p->relatives[i].kind == ATTN_RELATIVE_VALUE)
            add_to_table(w, i, spot, kept, w->dout);
}

static void run_key(work *w, int64_t key)
{
    attn__pairwise *r = &w->r;
    const attn_problem *p = &r->canonical->problem;
    attn__spot spot;
    attn__spot_at(&spot, &r->row, key);
    float score = spot.kind == ATTN__SPOT_OUT ? -INFINITY : attn__pairwise_score(r, &spot);
    if (score == -INFINITY)
        return;
    double log_weight = (double)score - (double)w->max - w->normalizer;
    float weight = p->normalization == ATTN_NORMALIZATION_SOFTMAX
                       ? attn__normal((float)exp(attn__log_weight(log_weight)))
                       : (float)((double)score * w->inverse);
    float keep = (float)attn__row_keep(&r->row, &spot), by_weight = 0;
    if (keep != 0 && (weight != 0 || spot.kind != ATTN__SPOT_FILL)) {
        const float *v = attn__pairwise_value(r, &spot);
        by_weight = v ? keep * r->plan->kernel->dot(w->dout, v, r->canonical->value.size) : 0;
        add_value(w, &spot, key, weight * keep);
    }
    if (spot.kind == ATTN__SPOT_FILL)
        return;
    float gradient = p->normalization == ATTN_NORMALIZATION_SOFTMAX
                         ? attn__normal((float)((double)weight * ((double)by_weight - (double)w->delta)))
                     : p->normalization == ATTN_NORMALIZATION_SUM ? (float)((double)(by_weight - w->delta) * w->inverse)
                                                                  : (float)((double)by_weight * w->inverse);
    if (p->flags & ATTN_WANT_DBIAS)
        ((float *)r->arrays->dbias)[spot.offset[ATTN__OP_DBIAS]] += gradient;
    add_score(w, &spot, key, gradient * (float)p->scale);
}

/* ------------------------------------------------------------------------------------------------- rows */

/* A block of keys of the row: so few that f32 holds the sums for w or w2, which are then added to those in double. */
static void run_keys(work *w, int64_t begin, int64_t end)
{
    attn__pairwise *r = &w->r;
    int64_t n = r->canonical->contract.size;
    bool concat = r->canonical->problem.score == ATTN_SCORE_CONCAT;
    memset(r->dw, 0, (size_t)n * sizeof(float));
    w->of_gates = 0;
    for (int64_t key = begin; key < end; key++)
        run_key(w, key);
    if (concat && w->of_gates != 0) { /* 0 times infinity would be NaN */
        r->plan->kernel->axpy((float)w->of_gates, r->w, r->sum, n);
        add_to_w(w, ATTN__SUM_W, w->of_gates, r->q);
    }
    add_to_w(w, concat ? ATTN__SUM_W2 : ATTN__SUM_W, 1, r->dw);
}

/* With a fill of -1e6 the log-sum-exp in f32 has no digits left: it is computed again, as two numbers. */
static void normalizer_again(work *w)
{
    float max = -INFINITY;
    double sum = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t key = 0; key < w->r.canonical->key.size; key++) {
            attn__spot spot;
            attn__spot_at(&spot, &w->r.row, key);
            float score = spot.kind == ATTN__SPOT_OUT ? -INFINITY : attn__pairwise_score(&w->r, &spot);
            if (pass == 0)
                max = score > max ? score : max;
            else if (score != -INFINITY)
                sum += exp((double)score - (double)max);
        }
    }
    w->max = max;
    w->normalizer = log(sum);
}

static void run_row(work *w, int64_t batch, int64_t query)
{
    attn__pairwise *r = &w->r;
    const attn__pairwise_plan *plan = r->plan;
    const attn_arrays *a = r->arrays;
    attn__pairwise_at(r, batch, query);
    float lse = ((const float *)a->lse)[r->row.offset[ATTN__OP_LSE]];
    if (lse == -INFINITY)
        return;
    w->max = 0;
    w->normalizer = (double)lse;
    if (r->canonical->problem.mask_fill != 0 && r->canonical->problem.normalization == ATTN_NORMALIZATION_SOFTMAX &&
        fabsf(lse) > 1000)
        normalizer_again(w);
    w->o = attn__side_read(&plan->side[ATTN__SIDE_O], a->o, r->row.offset[ATTN__OP_O], r->scratch[ATTN__SIDE_O]);
    w->dout = attn__side_read(&plan->side[ATTN__SIDE_DOUT], a->dout, r->row.offset[ATTN__OP_DOUT],
                              r->scratch[ATTN__SIDE_DOUT]);
    /* In double: differences from it cancel where all keys are alike. */
    w->delta = (float)plan->kernel->dot_f64(w->o, w->dout, r->canonical->value.size);
    w->inverse = exp(-w->normalizer);
    memset(r->sum, 0, (size_t)r->canonical->contract.size * sizeof(float));
    for (int64_t key = 0; key < r->canonical->key.size; key += BLOCK)
        run_keys(w, key, key + BLOCK < r->canonical->key.size ? key + BLOCK : r->canonical->key.size);
    if (r->canonical->problem.flags & ATTN_WANT_DQ)
        attn__side_add(r, &plan->side[ATTN__SIDE_DQ], a->dq, r->row.offset[ATTN__OP_DQ], 1, r->sum);
}

/* Without windows a key lies at one place for every query: that of query 0. */
static void store_keys(work *w, int64_t batch)
{
    const attn__canonical *canonical = w->job->canonical;
    const attn_arrays *a = w->job->arrays;
    attn__row_at(&w->r.row, canonical, a, batch, 0);
    for (int64_t key = 0; key < canonical->key.size; key++) {
        attn__spot spot;
        attn__spot_offsets(&spot, &w->r.row, key);
        if (canonical->problem.flags & ATTN_WANT_DK)
            attn__side_add(&w->r, &w->r.plan->side[ATTN__SIDE_DK], a->dk, spot.offset[ATTN__OP_DK], 1,
                           w->dk + key * canonical->contract.size);
        if (canonical->problem.flags & ATTN_WANT_DV)
            attn__side_add(&w->r, &w->r.plan->side[ATTN__SIDE_DV], a->dv, spot.offset[ATTN__OP_DV], 1,
                           w->dv + key * canonical->value.size);
    }
}

static void run_batch(work *w, int64_t batch)
{
    const attn__canonical *canonical = w->job->canonical;
    if (w->dk) {
        memset(w->dk, 0, (size_t)(canonical->key.size * canonical->contract.size) * sizeof(float));
        memset(w->dv, 0, (size_t)(canonical->key.size * canonical->value.size) * sizeof(float));
    }
    for (int64_t query = 0; query < canonical->query.size; query++)
        run_row(w, batch, query);
    if (w->dk)
        store_keys(w, batch);
}

static void run_slot(void *user, int64_t slot, int thread)
{
    const job *j = user;
    const attn__slots *slots = &j->slots;
    work w = {.job = j};
    int64_t item, end;
    char *memory = j->scratch + (size_t)thread * thread_share(j->canonical, j->plan);
    attn__pairwise_start(&w.r, j->canonical, j->plan, j->arrays, memory);
    if (j->canonical->problem.accumulate) {
        w.dk = (float *)(void *)(memory + j->plan->share);
        w.dv = w.dk + j->canonical->key.size * j->canonical->contract.size;
    }
    for (attn__slots_start(slots, slot, &w.sums, &item, &end); item < end; item++) {
        if (!j->canonical->problem.accumulate) /* before its sums, so that they find the zeros in the cache */
            attn__slots_clear(slots, j->arrays, ATTN__WANT_OWN, item);
        for (int64_t rest = 0; rest < slots->split.rest; rest++)
            run_batch(&w, attn__batch_split_index(&slots->split, j->canonical, item, rest));
    }
}

/* ------------------------------------------------------------------------------------------------ whole */

void attn__pairwise_backward(const attn__canonical *canonical, const attn__pairwise_plan *plan,
                             const attn_arrays *arrays, void *workspace)
{
    job j = {.canonical = canonical, .plan = plan, .arrays = arrays, .scratch = workspace};
    attn__slots_make(&j.slots, canonical, j.scratch + (size_t)canonical->threads * thread_share(canonical, plan));
    attn__parallel_items(canonical->threads, j.slots.n, run_slot, &j);
    attn__slots_store(&j.slots, arrays);
}
