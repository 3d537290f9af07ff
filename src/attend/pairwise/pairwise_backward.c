/* SPDX-License-Identifier: MIT
 *
 * The rows solver backward.  Gradients of q, k, v and bias are added to in place; batch indices that share none
 * of them are parallel.  Those of tables and of w are shared by all: they are summed apart in a number of slots
 * that depends on the problem only, and then slot after slot, so that threads do not show in the bits.
 */
#include "attend/pairwise/pairwise_rows.h"

#include "attend/canonical/extent.h"
#include "attend/canonical/gradient_sums.h"
#include "attend/canonical/weight.h"
#include "base/parallel.h"

#include <math.h>

enum { SLOTS = 16, MOST_KEYS = 4096 };

typedef struct job {
    const attn__canonical *canonical;
    attn__canonical shared; /* the same with only the shared gradients wanted */
    const attn__pairwise_plan *plan;
    const attn_arrays *arrays;
    char *scratch, *sums;
    size_t sums_share;
    bool apart[ATTN_MAX_DIMS];
    int64_t items, rest;
    int64_t slots;
} job;

typedef struct work {
    const job *job;
    attn__pairwise r;
    attn__sums sums; /* this slot's */
    float *dk, *dv;  /* while adding to gradients: those of the batch item's keys, rounded into them at its end */
    const float *o, *dout;
    double normalizer; /* log of the row's sum, or of its number of keys */
    float max;         /* a part of it kept apart, 0 unless scores are filled */
    float delta;
} work;

/* ------------------------------------------------------------------------------------------- shared sums */

static const unsigned SHARED = ATTN_WANT_DW | ATTN_WANT_DTABLES;
static const unsigned OWN = ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV | ATTN_WANT_DBIAS;

static attn__canonical keep_wanted(const attn__canonical *canonical, unsigned wanted)
{
    attn__canonical copy = *canonical;
    copy.problem.flags &= ~(SHARED | OWN) | wanted;
    return copy;
}

static size_t aligned(size_t size)
{
    return attn__size_add(size, 63) & ~(size_t)63;
}

/* Broadcast gradients are the planner's business, see private_gradients.h. */
const char *attn__pairwise_refuse_adding(const attn__canonical *canonical)
{
    return canonical->problem.nwindows || canonical->key.size > MOST_KEYS
               ? "adds to the gradients of windows or of many keys"
               : NULL;
}

/* Bytes of a slot's rows: scratch, and the gradients of the keys where these are kept apart. */
static size_t slot_share(const attn__canonical *canonical, const attn__pairwise_plan *plan)
{
    size_t channels = (size_t)(canonical->contract.size + canonical->value.size);
    size_t keys = canonical->problem.accumulate ? attn__size_mul((size_t)canonical->key.size, channels) : 0;
    return attn__size_add(plan->share, aligned(attn__size_mul(keys, sizeof(float))));
}

size_t attn__pairwise_backward_size(const attn__canonical *canonical, const attn__pairwise_plan *plan)
{
    attn__canonical shared = keep_wanted(canonical, SHARED);
    size_t scratch = attn__size_mul(slot_share(canonical, plan), SLOTS); /* one for each slot */
    return attn__size_add(scratch, attn__size_mul(aligned(attn__sums_size(&shared)), SLOTS));
}

static void add_to_sums(double *sums, const attn__side *side, int64_t offset, float a, const float *row)
{
    for (int64_t c = 0; sums && c < side->n; c++) {
        int64_t at = side->direct ? c : side->offset[c];
        if (at != ATTN__NOWHERE)
            sums[offset + at] += (double)a * (double)row[c];
    }
}

/* --------------------------------------------------------------------------------------------- one pair */

static void add_tables(work *w, const attn__spot *spot, float gradient)
{
    const attn_problem *p = &w->job->canonical->problem;
    for (int i = 0; i < p->nrelatives; i++) {
        const attn_relative *t = &p->relatives[i];
        if (t->kind == ATTN_RELATIVE_VALUE)
            continue;
        add_to_sums(w->sums.at[ATTN__SUM_TABLE + i], &w->r.plan->side[ATTN__SIDE_TABLE + i], spot->table[i], gradient,
                    t->kind == ATTN_RELATIVE_QUERY ? w->r.q : w->r.k);
        float *to = t->kind == ATTN_RELATIVE_QUERY ? w->r.sum : w->r.dk;
        w->r.plan->kernel->axpy(gradient, w->r.table[i], to, w->job->canonical->contract.size);
    }
}

static void add_concat(work *w, float gradient)
{
    attn__pairwise *r = &w->r;
    const attn__pairwise_kernel *kernel = r->plan->kernel;
    int64_t n = r->canonical->contract.size, offset = r->row.offset[ATTN__OP_W];
    if (!(kernel->dot(r->w, r->q, n) + kernel->dot(r->w2, r->k, n) > 0))
        return;
    kernel->axpy(gradient, r->w, r->sum, n);
    kernel->axpy(gradient, r->w2, r->dk, n);
    add_to_sums(w->sums.at[ATTN__SUM_W], &r->plan->side[ATTN__SIDE_W], offset, gradient, r->q);
    add_to_sums(w->sums.at[ATTN__SUM_W2], &r->plan->side[ATTN__SIDE_W], offset, gradient, r->k);
}

/* `gradient` is that of score + tables: dq is summed over the row's keys, dk is this key's. */
static void add_score(work *w, const attn__spot *spot, int64_t key, float gradient)
{
    attn__pairwise *r = &w->r;
    const attn__pairwise_kernel *kernel = r->plan->kernel;
    int64_t n = r->canonical->contract.size;
    memset(r->dk, 0, (size_t)n * sizeof(float));
    switch (r->canonical->problem.score) {
    case ATTN_SCORE_ADDITIVE:
        memset(r->spare, 0, (size_t)n * sizeof(float));
        kernel->additive_gradient(gradient, r->q, r->k, r->w, r->sum, r->dk, r->spare, n);
        add_to_sums(w->sums.at[ATTN__SUM_W], &r->plan->side[ATTN__SIDE_W], r->row.offset[ATTN__OP_W], 1, r->spare);
        break;
    case ATTN_SCORE_CONCAT:
        add_concat(w, gradient);
        break;
    default:
        kernel->axpy(gradient, r->k, r->sum, n);
        kernel->axpy(gradient, r->q, r->dk, n);
    }
    add_tables(w, spot, gradient);
    if (w->dk)
        kernel->axpy(1, r->dk, w->dk + key * n, n);
    else if ((r->canonical->problem.flags & ATTN_WANT_DK) && !spot->outside)
        attn__side_add(r, &r->plan->side[ATTN__SIDE_DK], r->arrays->dk, spot->offset[ATTN__OP_DK], 1, r->dk);
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
            add_to_sums(w->sums.at[ATTN__SUM_TABLE + i], &r->plan->side[ATTN__SIDE_TABLE + i], spot->table[i], kept,
                        w->dout);
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
    double inverse = exp(-w->normalizer), log_weight = (double)score - (double)w->max - w->normalizer;
    float weight = p->normalization == ATTN_NORMALIZATION_SOFTMAX ? (float)exp(attn__log_weight(log_weight))
                                                                  : (float)((double)score * inverse);
    float keep = (float)attn__row_keep(&r->row, &spot), by_weight = 0;
    if (keep != 0 && (weight != 0 || spot.kind != ATTN__SPOT_FILL)) {
        const float *v = attn__pairwise_value(r, &spot);
        by_weight = v ? keep * r->plan->kernel->dot(w->dout, v, r->canonical->value.size) : 0;
        add_value(w, &spot, key, weight * keep);
    }
    if (spot.kind == ATTN__SPOT_FILL)
        return;
    float gradient = p->normalization == ATTN_NORMALIZATION_SOFTMAX
                         ? (float)((double)weight * ((double)by_weight - (double)w->delta))
                     : p->normalization == ATTN_NORMALIZATION_SUM ? (float)((double)(by_weight - w->delta) * inverse)
                                                                  : (float)((double)by_weight * inverse);
    if (p->flags & ATTN_WANT_DBIAS)
        ((float *)r->arrays->dbias)[spot.offset[ATTN__OP_DBIAS]] += gradient;
    add_score(w, &spot, key, gradient * (float)p->scale);
}

/* ------------------------------------------------------------------------------------------------- rows */

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
    double delta = 0; /* in double: differences from it cancel where all keys are alike */
    for (int64_t c = 0; c < r->canonical->value.size; c++)
        delta += (double)w->o[c] * (double)w->dout[c];
    w->delta = (float)delta;
    memset(r->sum, 0, (size_t)r->canonical->contract.size * sizeof(float));
    for (int64_t key = 0; key < r->canonical->key.size; key++)
        run_key(w, key);
    if (r->canonical->problem.flags & ATTN_WANT_DQ)
        attn__side_add(r, &plan->side[ATTN__SIDE_DQ], a->dq, r->row.offset[ATTN__OP_DQ], 1, r->sum);
}

/* The batch index of the `item`-th combination of apart axes and the `rest`-th of the others. */
static int64_t batch_index(const job *j, int64_t item, int64_t rest)
{
    int64_t index[ATTN_MAX_DIMS], linear = 0;
    for (int i = j->canonical->batch.n - 1; i >= 0; i--) {
        int64_t n = j->canonical->batch.axis[i].dim.n, *from = j->apart[i] ? &item : &rest;
        index[i] = *from % n;
        *from /= n;
    }
    for (int i = 0; i < j->canonical->batch.n; i++)
        linear = linear * j->canonical->batch.axis[i].dim.n + index[i];
    return linear;
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
    if (w->dk && canonical->query.size > 0)
        store_keys(w, batch);
}

static void run_slot(void *user, int64_t slot, int thread)
{
    (void)thread;
    const job *j = user;
    work w = {.job = j};
    char *memory = j->scratch + (size_t)slot * slot_share(j->canonical, j->plan);
    attn__pairwise_start(&w.r, j->canonical, j->plan, j->arrays, memory);
    if (j->canonical->problem.accumulate) {
        w.dk = (float *)(void *)(memory + j->plan->share);
        w.dv = w.dk + j->canonical->key.size * j->canonical->contract.size;
    }
    attn__sums_start(&w.sums, &j->shared, j->sums + (size_t)slot * j->sums_share);
    for (int64_t item = slot * j->items / j->slots; item < (slot + 1) * j->items / j->slots; item++)
        for (int64_t rest = 0; rest < j->rest; rest++)
            run_batch(&w, batch_index(j, item, rest));
}

/* ------------------------------------------------------------------------------------------------ whole */

static void zero_gradients(const attn__canonical *canonical, const attn_arrays *a)
{
    const struct {
        unsigned bit;
        attn__operand op;
        void *array;
    } own[] = {{ATTN_WANT_DQ, ATTN__OP_DQ, a->dq},
               {ATTN_WANT_DK, ATTN__OP_DK, a->dk},
               {ATTN_WANT_DV, ATTN__OP_DV, a->dv},
               {ATTN_WANT_DBIAS, ATTN__OP_DBIAS, a->dbias}};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (canonical->problem.flags & own[i].bit)
            attn__operand_zero(canonical, own[i].op, own[i].array);
}

static void divide_batch(job *j)
{
    attn__canonical own = keep_wanted(j->canonical, OWN);
    j->items = j->rest = 1;
    for (int i = 0; i < own.batch.n; i++) {
        j->apart[i] = attn__sums_disjoint(&own, i);
        *(j->apart[i] ? &j->items : &j->rest) *= own.batch.axis[i].dim.n;
    }
    j->slots = j->items < SLOTS ? j->items : SLOTS;
    j->slots = j->slots > 0 ? j->slots : 1; /* an empty batch still stores its zeros */
}

static void add_slots(const job *j)
{
    size_t n = attn__sums_size(&j->shared) / sizeof(double);
    double *total = (double *)(void *)j->sums;
    for (int64_t slot = 1; slot < j->slots; slot++) {
        const double *part = (const double *)(const void *)(j->sums + (size_t)slot * j->sums_share);
        for (size_t i = 0; i < n; i++)
            total[i] += part[i];
    }
}

void attn__pairwise_backward(const attn__canonical *canonical, const attn__pairwise_plan *plan,
                             const attn_arrays *arrays, void *workspace)
{
    job j = {.canonical = canonical,
             .shared = keep_wanted(canonical, SHARED),
             .plan = plan,
             .arrays = arrays,
             .scratch = workspace};
    j.sums = j.scratch + SLOTS * slot_share(canonical, plan);
    j.sums_share = aligned(attn__sums_size(&j.shared));
    divide_batch(&j);
    if (!canonical->problem.accumulate)
        zero_gradients(canonical, arrays);
    attn__parallel_items(canonical->threads, j.slots, run_slot, &j);
    add_slots(&j);
    if (attn__sums_size(&j.shared) == 0)
        return;
    attn__sums first;
    attn__sums_address(&first, &j.shared, j.sums);
    attn__sums_store(&first, &j.shared, arrays);
}
