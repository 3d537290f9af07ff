/* SPDX-License-Identifier: MIT
 * The window solver's blocks, forward and both passes backward, and how items are handed to threads. */
#include "attend/solve/window_solver.h"

#include "attend/problem/extent.h"
#include "base/parallel.h"
#include "base/constants.h"

#include <math.h>

static const double ln_2 = 0.69314718055994530942;

static int64_t padded(const attn__window_work *w, int64_t channels)
{
    return channels * w->plan->taps->width;
}

static int64_t entries_of(const attn__window_work *w)
{
    return w->pairs * w->now.n;
}

/* --------------------------------------------------------------------------------------------- a block */

static void list_taps(attn__window_work *w)
{
    const attn__window_axis *axis = &w->plan->axis[w->plan->naxes - 1];
    int64_t low = attn__window_cell(axis, axis->first), high = attn__window_cell(axis, axis->last - 1);
    for (int64_t k = 0; k < w->now.n; k++) {
        int64_t tap = w->now.first + k * w->stride, cell = attn__window_cell(axis, tap);
        w->s.shift[k] = (w->pass->by_key ? high - cell : cell - low) * w->plan->woven;
        w->s.phase[k] = w->pass->by_key ? 0 : attn__window_phase(axis, tap);
    }
}

static void list_entries(attn__window_work *w)
{
    int64_t ld = w->pass->ld, phases = w->pass->strip_phases, e = 0;
    list_taps(w);
    for (int64_t p = 0; p < w->pairs; p++) {
        int64_t slot = w->s.pair[p].slot;
        for (int64_t k = 0; k < w->now.n; k++, e++) {
            int64_t row = slot * phases + w->s.phase[k], shift = w->s.shift[k];
            w->s.entries.number[e] = (int32_t)(w->now.first + k * w->stride);
            w->s.entries.a[e] = row * w->plan->channels * w->plan->heads * ld + shift;
            w->s.entries.b[e] = row * w->plan->values * w->plan->heads * ld + shift;
            w->s.entries.range[e] = w->pass->by_key ? shift : 0;
            w->s.entries.state[e] = w->pass->by_key ? slot * 2 * ld + shift : 0;
            if (w->plan->masked)
                w->s.entries.flag[e] = row * ld + shift;
        }
    }
    if (w->canonical->has_dropout)
        attn__window_drop_of_entries(w);
}

/* Lists stay as they are while the line and the taps do; all heads have the same ones. */
static void block_start(attn__window_work *w, int64_t cell)
{
    attn__window_block next = w->s.block[cell / w->plan->taps->width];
    bool same = cell > 0 && next.first == w->now.first && next.n == w->now.n;
    w->now = next;
    w->cell = cell;
    w->lanes = w->live - cell < w->plan->taps->width ? w->live - cell : w->plan->taps->width;
    if (!same && w->head == 0)
        list_entries(w);
}

/* Taps of a pair are a run unless the lanes' axis has a step. */
static int64_t run_of(const attn__window_work *w)
{
    return w->plan->axis[w->plan->naxes - 1].window.step == 1 ? w->now.n : 1;
}

static bool has_marks(const attn__window_work *w)
{
    return w->now.ragged || w->canonical->has_bias || w->plan->masked || w->canonical->has_dropout;
}

/* The strip of keys or values at the cell. */
static attn__tap_block block_of(const attn__window_work *w, bool values)
{
    int64_t width = w->plan->taps->width;
    return (attn__tap_block){.taps = entries_of(w),
                             .channels = values ? w->plan->values : w->plan->channels,
                             .run = run_of(w),
                             .unit = w->plan->unit,
                             .down = w->pass->by_key,
                             .tile_ld = width,
                             .s_ld = width,
                             .strip = (values ? w->s.b : w->s.a) + w->cell,
                             .offset = values ? w->s.entries.b : w->s.entries.a,
                             .ld = w->pass->ld};
}

static void add_scores(attn__window_work *w, bool values, const float *tile, float factor, float *s)
{
    attn__tap_block b = block_of(w, values);
    b.tile = (float *)(uintptr_t)tile;
    b.s = s;
    b.factor = factor;
    w->plan->taps->scores(&b);
}

static void mix(attn__window_work *w, bool values, float *weights, float *out)
{
    attn__tap_block b = block_of(w, values);
    int64_t channels = b.channels;
    b.tile = out;
    b.s = weights;
    memset(out, 0, (size_t)padded(w, channels) * sizeof *out);
    w->plan->taps->mix(&b);
    if (!has_marks(w) || w->plan->taps->finite(out, padded(w, channels)))
        return;
    b.marked = true; /* zero times something infinite, perhaps of a tap that takes no part */
    memset(out, 0, (size_t)padded(w, channels) * sizeof *out);
    w->plan->taps->mix(&b);
}

/* Scores in powers of two, -infinity where a lane takes no part. */
static void find_scores(attn__window_work *w)
{
    float factor = (float)(w->canonical->problem.scale * (double)(float)ATTN__LOG2E);
    add_scores(w, false, w->s.lanes.a, factor, w->s.s);
    attn__window_lane_terms(w, attn__window_lane_kind(w->pass), w->s.lanes.a, w->s.s, factor);
    attn__window_strip_terms(w, attn__window_strip_kind(w->pass), w->s.s, factor);
    if (w->canonical->has_bias)
        attn__window_bias_add(w, w->s.s);
    if (w->plan->masked)
        attn__window_mask(w, w->s.s);
    if (!w->now.ragged)
        return;
    attn__tap_limit limit = {.taps = entries_of(w),
                             .number = w->s.entries.number,
                             .shift = w->s.entries.range,
                             .from = w->s.ranges.from + w->cell,
                             .to = w->s.ranges.to + w->cell};
    w->plan->taps->limit(w->s.s, &limit);
}

/* --------------------------------------------------------------------------------------------- forward */

static void store_lse(attn__window_work *w)
{
    float *lse = w->arrays->lse;
    for (int64_t i = 0; i < w->lanes; i++) {
        float l = w->s.softmax.l[i];
        lse[attn__window_lane_offset(w, ATTN__OP_LSE, i)] =
            l == 0 ? -INFINITY : (float)((double)w->s.softmax.m[i] * ln_2 + log((double)l));
    }
}

static void drop(attn__window_work *w, float *s)
{
    if (w->canonical->has_dropout)
        attn__window_drop(w, s);
}

/* Of the queries in the lanes. */
static void start_lanes(attn__window_work *w)
{
    if (w->canonical->has_dropout)
        attn__window_drop_of_lanes(w);
}

static void forward_block(attn__window_work *w)
{
    attn__window_read(w, ATTN__OP_Q, w->arrays->q, w->s.lanes.a);
    start_lanes(w);
    find_scores(w);
    w->plan->taps->softmax(w->s.s, entries_of(w), w->s.softmax.m, w->s.softmax.l);
    drop(w, w->s.s);
    mix(w, true, w->s.s, w->s.lanes.out_b);
    attn__window_margins(w, ATTN_RELATIVE_VALUE, w->s.s);
    attn__window_table_mix(w, ATTN_RELATIVE_VALUE, w->s.lanes.out_b);
    for (int64_t i = 0; i < w->plan->taps->width; i++)
        w->s.softmax.factor[i] = w->s.softmax.l[i] == 0 ? 0 : w->plan->kept / w->s.softmax.l[i];
    attn__window_write(w, ATTN__OP_O, w->arrays->o, w->s.lanes.out_b, w->s.softmax.factor);
    if (w->canonical->problem.flags & ATTN_WANT_LSE)
        store_lse(w);
}

/* -------------------------------------------------------------------------------------------- backward */

static bool wants(const attn__window_work *w, unsigned bit)
{
    return w->canonical->problem.flags & bit;
}

static void read_lse(attn__window_work *w)
{
    for (int64_t i = 0; i < w->plan->taps->width; i++) {
        float lse = -INFINITY;
        if (i < w->lanes)
            lse = ((const float *)w->arrays->lse)[attn__window_lane_offset(w, ATTN__OP_LSE, i)];
        w->s.softmax.lse[i] = lse == -INFINITY ? INFINITY : lse * (float)ATTN__LOG2E;
    }
}

static void write_gradient(attn__window_work *w, attn__operand op, void *to, float *tile, double factor)
{
    for (int64_t i = 0; i < w->plan->taps->width; i++)
        w->s.softmax.factor[i] = (float)factor;
    attn__window_write(w, op, to, tile, w->s.softmax.factor);
}

/* Weights and gradients of scores, in place. */
static void find_gradients(attn__window_work *w, const float *lse, const float *delta)
{
    attn__tap_gradient g = {.taps = entries_of(w),
                            .s = w->s.s,
                            .dp = w->s.dp,
                            .shift = w->s.entries.state,
                            .lse = lse,
                            .delta = delta,
                            .p = w->s.s,
                            .ds = w->s.dp,
                            .ld = w->plan->taps->width,
                            .marked = has_marks(w)};
    w->plan->taps->gradient(&g);
}

static void query_block(attn__window_work *w)
{
    const attn_arrays *a = w->arrays;
    const attn__window_kernel *taps = w->plan->taps;
    attn__window_read(w, ATTN__OP_Q, a->q, w->s.lanes.a);
    attn__window_read(w, ATTN__OP_DOUT, a->dout, w->s.lanes.b);
    attn__window_read(w, ATTN__OP_O, a->o, w->s.lanes.o);
    taps->dot(w->s.lanes.o, w->s.lanes.b, w->plan->values, taps->width, taps->width, w->s.softmax.delta);
    read_lse(w);
    start_lanes(w);
    find_scores(w);
    add_scores(w, true, w->s.lanes.b, w->plan->kept, w->s.dp);
    attn__window_lane_terms(w, ATTN_RELATIVE_VALUE, w->s.lanes.b, w->s.dp, w->plan->kept);
    drop(w, w->s.dp);
    find_gradients(w, w->s.softmax.lse, w->s.softmax.delta);
    attn__window_margins(w, ATTN_RELATIVE_QUERY, w->s.dp);
    if (wants(w, ATTN_WANT_DQ)) {
        mix(w, false, w->s.dp, w->s.lanes.out_a);
        attn__window_table_mix(w, ATTN_RELATIVE_QUERY, w->s.lanes.out_a);
        write_gradient(w, ATTN__OP_DQ, a->dq, w->s.lanes.out_a, w->canonical->problem.scale);
    }
    if (wants(w, ATTN_WANT_DTABLES)) {
        attn__window_table_gradient(w, ATTN_RELATIVE_QUERY, w->s.lanes.a);
        drop(w, w->s.s);
        attn__window_margins(w, ATTN_RELATIVE_VALUE, w->s.s);
        attn__window_table_gradient(w, ATTN_RELATIVE_VALUE, w->s.lanes.b);
    }
    if (wants(w, ATTN_WANT_DBIAS))
        attn__window_bias_gradient(w, w->s.dp);
}

static void key_block(attn__window_work *w)
{
    const attn_arrays *a = w->arrays;
    attn__window_read(w, ATTN__OP_K, a->k, w->s.lanes.a);
    attn__window_read(w, ATTN__OP_V, a->v, w->s.lanes.b);
    find_scores(w);
    add_scores(w, true, w->s.lanes.b, w->plan->kept, w->s.dp);
    attn__window_strip_terms(w, ATTN_RELATIVE_VALUE, w->s.dp, w->plan->kept);
    drop(w, w->s.dp);
    find_gradients(w, w->s.rows + w->cell, w->s.rows + w->pass->ld + w->cell);
    attn__window_margins(w, ATTN_RELATIVE_KEY, w->s.dp);
    if (wants(w, ATTN_WANT_DK)) {
        mix(w, false, w->s.dp, w->s.lanes.out_a);
        attn__window_table_mix(w, ATTN_RELATIVE_KEY, w->s.lanes.out_a);
        write_gradient(w, ATTN__OP_DK, a->dk, w->s.lanes.out_a, w->canonical->problem.scale);
    }
    if (wants(w, ATTN_WANT_DV)) {
        drop(w, w->s.s);
        mix(w, true, w->s.s, w->s.lanes.out_b);
        write_gradient(w, ATTN__OP_DV, a->dv, w->s.lanes.out_b, (double)w->plan->kept);
    }
    if (wants(w, ATTN_WANT_DTABLES))
        attn__window_table_gradient(w, ATTN_RELATIVE_KEY, w->s.lanes.a);
}

/* ----------------------------------------------------------------------------------------------- items */

typedef struct job {
    const attn__canonical *canonical;
    attn__canonical shared; /* the same, reduced to the gradients that several items add to */
    const attn__window *plan;
    const attn_arrays *arrays;
    char *scratch, *sums;
    int64_t slots;
    bool runs[ATTN__WINDOW_PASSES];
} job;

typedef void block_function(attn__window_work *work);

static void batch_start(attn__window_work *w)
{
    int64_t index[ATTN_MAX_DIMS];
    attn__split(&w->canonical->batch, w->batch, index);
    memset(w->batch_at, 0, sizeof w->batch_at);
    w->batch_row = 0;
    for (int i = 0; i < w->canonical->batch.n; i++) {
        w->batch_row += (uint64_t)index[i] * (uint64_t)w->canonical->batch.axis[i].drop;
        for (attn__operand op = 0; op < ATTN__OPERANDS; op++)
            w->batch_at[op] += index[i] * attn__stride(&w->canonical->batch.axis[i].dim, op);
    }
    attn__window_tables_read(w);
}

static void run_line(attn__window_work *heads, block_function *block, int64_t line)
{
    const attn__window *plan = heads->plan;
    int count = plan->heads;
    for (int h = 0; h < count; h++)
        attn__window_line_start(heads + h, line);
    for (int64_t cell = 0; cell < heads->live; cell += plan->taps->width)
        for (attn__window_work *w = heads; w < heads + count; w++) {
            block_start(w, cell);
            attn__window_prefetch(w);
            block(w);
        }
}

static void run_item(attn__window_work *heads, block_function *block, int64_t item)
{
    const attn__window_pass *pass = heads->pass;
    int64_t count = heads->plan->heads, members = count * heads->plan->woven;
    int64_t groups = heads->canonical->batch.size / members, group = item % groups;
    item /= groups;
    for (int64_t h = 0; h < count; h++) {
        heads[h].batch = group * members + h;
        batch_start(heads + h);
        attn__window_tile_start(heads + h, item);
    }
    int64_t line = item / (pass->tiles * pass->phases) * pass->band;
    int64_t end = line + pass->band < pass->lines ? line + pass->band : pass->lines;
    if (pass->once)
        attn__window_once_band(heads, line, end);
    for (; line < end && !pass->once; line++)
        run_line(heads, block, line);
}

static int64_t items_of(const job *j, int which)
{
    return j->canonical->batch.size / (j->plan->heads * j->plan->woven) * j->plan->pass[which].items;
}

static void run_share(const job *j, int which, int64_t slot, int thread)
{
    attn__window_scratch scratch[ATTN__WINDOW_HEADS];
    attn__window_work heads[ATTN__WINDOW_HEADS];
    const attn__window_pass *pass = &j->plan->pass[which];
    block_function *block = !j->canonical->backward ? forward_block : pass->by_key ? key_block : query_block;
    attn__window_divide(j->plan, j->canonical, pass, j->scratch + (size_t)thread * j->plan->share, scratch);
    int h = 0;
    do { /* there is one head at least */
        heads[h] = (attn__window_work){
            .head = h, .canonical = j->canonical, .plan = j->plan, .pass = pass, .arrays = j->arrays, .s = scratch[h]};
        if (j->plan->slot_share)
            attn__sums_address(&heads[h].sums, &j->shared, j->sums + (size_t)slot * j->plan->slot_share);
    } while (++h < j->plan->heads);
    for (int i = 0; i < j->plan->taps->width; i++)
        scratch[0].softmax.ones[i] = 1;
    int64_t items = items_of(j, which);
    for (int64_t item = slot * items / j->slots; item < (slot + 1) * items / j->slots; item++)
        run_item(heads, block, item);
    for (h = 0; h < j->plan->heads; h++)
        attn__window_tables_store(heads + h);
}

/* Both passes over one part of the arrays follow each other: what the first one read is near for the second. */
static void run_slot(void *user, int64_t slot, int thread)
{
    const job *j = user;
    for (int which = 0; which < ATTN__WINDOW_PASSES; which++)
        if (j->runs[which])
            run_share(j, which, slot, thread);
}

/* Items of one slot describe their tile and read their tables once; sums of tables need memory for every slot. */
static void run_passes(job *j)
{
    int64_t items = items_of(j, j->runs[0] ? 0 : j->runs[1] ? 1 : 2);
    int64_t most = j->plan->slot_share ? ATTN__WINDOW_SLOTS : 64;
    j->slots = items < most ? items : most;
    attn__parallel_items(j->canonical->threads, j->slots, run_slot, j);
}

/* Slot after slot, whoever filled them. */
static void store_shared(const job *j)
{
    size_t n = j->plan->slot_share / sizeof(double);
    double *total = (double *)(void *)j->sums;
    for (int64_t slot = 1; slot < ATTN__WINDOW_SLOTS; slot++)
        for (size_t i = 0; i < n; i++)
            total[i] += total[(size_t)slot * n + i];
    attn__sums sums;
    attn__sums_address(&sums, &j->shared, j->sums);
    attn__sums_store(&sums, &j->shared, j->arrays);
}

/* Shared gradients are those that no pass writes by itself. */
static unsigned shared_wishes(const attn__canonical *canonical)
{
    unsigned bits = ATTN_WANT_DTABLES | (attn__window_bias_shared(canonical) ? ATTN_WANT_DBIAS : 0);
    return canonical->problem.flags & bits;
}

attn__canonical attn__window_shared(const attn__canonical *canonical)
{
    attn__canonical shared = *canonical;
    shared.problem.flags = canonical->backward ? shared_wishes(canonical) : 0;
    return shared;
}

void attn__window_run(const attn__canonical *canonical, const attn__window *plan, const attn_arrays *arrays,
                      void *workspace)
{
    job j = {.canonical = canonical,
             .shared = attn__window_shared(canonical),
             .plan = plan,
             .arrays = arrays,
             .scratch = workspace};
    unsigned with = canonical->problem.flags;
    j.sums = j.scratch + (size_t)canonical->threads * plan->share;
    j.runs[0] = !canonical->backward || (with & (ATTN_WANT_DQ | ATTN_WANT_DBIAS | ATTN_WANT_DTABLES));
    j.runs[1] = canonical->backward && (with & (ATTN_WANT_DK | ATTN_WANT_DV | ATTN_WANT_DTABLES));
    if (!canonical->backward) {
        run_passes(&j);
        return;
    }
    memset(j.sums, 0, ATTN__WINDOW_SLOTS * plan->slot_share);
    if ((with & ATTN_WANT_DBIAS) && !canonical->problem.accumulate && !attn__window_bias_shared(canonical)) {
        attn__extent dbias = attn__operand_extent(canonical, ATTN__OP_DBIAS);
        attn__extent_zero(&dbias, sizeof(float), arrays->dbias);
    }
    if (plan->once && (with & ATTN_WANT_DQ) && (with & (ATTN_WANT_DK | ATTN_WANT_DV)))
        memcpy(j.runs, (bool[ATTN__WINDOW_PASSES]){false, false, true}, sizeof j.runs);
    if (j.runs[0] || j.runs[1] || j.runs[2])
        run_passes(&j);
    if (plan->slot_share)
        store_shared(&j);
}
