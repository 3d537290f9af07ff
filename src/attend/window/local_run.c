/* SPDX-License-Identifier: MIT
 * The window solver's blocks, forward and both passes backward, and how items are handed to threads. */
#include "attend/window/local.h"

#include "attend/task/extent.h"
#include "base/parallel.h"

#include <math.h>

static const float log2_e = 1.44269504f;
static const double ln_2 = 0.69314718055994530942;

static int64_t padded(const attn__local_work *w, int64_t channels)
{
    return channels * w->local->taps->width;
}

static int64_t entries_of(const attn__local_work *w)
{
    return w->pairs * w->now.n;
}

/* --------------------------------------------------------------------------------------------- a block */

static void list_taps(attn__local_work *w)
{
    const attn__local_axis *axis = &w->local->axis[w->local->naxes - 1];
    int64_t low = attn__local_cell(axis, axis->first), high = attn__local_cell(axis, axis->last - 1);
    for (int64_t k = 0; k < w->now.n; k++) {
        int64_t tap = w->now.first + k * w->stride, cell = attn__local_cell(axis, tap);
        w->s.shift[k] = (w->pass->by_key ? high - cell : cell - low) * w->local->woven;
        w->s.phase[k] = w->pass->by_key ? 0 : attn__local_phase(axis, tap);
    }
}

static void list_entries(attn__local_work *w)
{
    int64_t ld = w->pass->ld, phases = w->pass->strip_phases, e = 0;
    list_taps(w);
    for (int64_t p = 0; p < w->pairs; p++) {
        int64_t slot = w->s.pair[p].slot;
        for (int64_t k = 0; k < w->now.n; k++, e++) {
            int64_t row = slot * phases + w->s.phase[k], shift = w->s.shift[k];
            w->s.number[e] = (int32_t)(w->now.first + k * w->stride);
            w->s.a_at[e] = row * w->local->channels * w->local->heads * ld + shift;
            w->s.b_at[e] = row * w->local->values * w->local->heads * ld + shift;
            w->s.row_at[e] = w->pass->by_key ? shift : 0;
            w->s.rows_at[e] = w->pass->by_key ? slot * 2 * ld + shift : 0;
            if (w->local->masked)
                w->s.flag_at[e] = row * ld + shift;
        }
    }
    if (w->task->has_dropout)
        attn__local_drop_of_entries(w);
}

/* Lists stay as they are while the line and the taps do; all heads have the same ones. */
static void block_start(attn__local_work *w, int64_t cell)
{
    attn__local_block next = w->s.block[cell / w->local->taps->width];
    bool same = cell > 0 && next.first == w->now.first && next.n == w->now.n;
    w->now = next;
    w->cell = cell;
    w->lanes = w->live - cell < w->local->taps->width ? w->live - cell : w->local->taps->width;
    if (!same && w->head == 0)
        list_entries(w);
}

/* Taps of a pair are a run unless the lanes' axis has a step. */
static int64_t run_of(const attn__local_work *w)
{
    return w->local->axis[w->local->naxes - 1].window.step == 1 ? w->now.n : 1;
}

static bool has_marks(const attn__local_work *w)
{
    return w->now.ragged || w->task->has_bias || w->local->masked || w->task->has_dropout;
}

/* The strip of keys or values at the cell. */
static attn__taps_block block_of(const attn__local_work *w, bool values)
{
    int64_t width = w->local->taps->width;
    return (attn__taps_block){.taps = entries_of(w),
                              .channels = values ? w->local->values : w->local->channels,
                              .run = run_of(w),
                              .unit = w->local->unit,
                              .down = w->pass->by_key,
                              .tile_ld = width,
                              .s_ld = width,
                              .strip = (values ? w->s.b : w->s.a) + w->cell,
                              .offset = values ? w->s.b_at : w->s.a_at,
                              .ld = w->pass->ld};
}

static void add_scores(attn__local_work *w, bool values, const float *tile, float factor, float *s)
{
    attn__taps_block b = block_of(w, values);
    b.tile = (float *)(uintptr_t)tile;
    b.s = s;
    b.factor = factor;
    w->local->taps->scores(&b);
}

static void mix(attn__local_work *w, bool values, float *weights, float *out)
{
    attn__taps_block b = block_of(w, values);
    int64_t channels = b.channels;
    b.tile = out;
    b.s = weights;
    memset(out, 0, (size_t)padded(w, channels) * sizeof *out);
    w->local->taps->mix(&b);
    if (!has_marks(w) || w->local->taps->finite(out, padded(w, channels)))
        return;
    b.marked = true; /* zero times something infinite, perhaps of a tap that takes no part */
    memset(out, 0, (size_t)padded(w, channels) * sizeof *out);
    w->local->taps->mix(&b);
}

/* Scores in powers of two, -infinity where a lane takes no part. */
static void find_scores(attn__local_work *w)
{
    float factor = (float)(w->task->problem.scale * (double)log2_e);
    add_scores(w, false, w->s.lane_a, factor, w->s.s);
    attn__local_lane_terms(w, attn__local_lane_kind(w->pass), w->s.lane_a, w->s.s, factor);
    attn__local_strip_terms(w, attn__local_strip_kind(w->pass), w->s.s, factor);
    if (w->task->has_bias)
        attn__local_bias_add(w, w->s.s);
    if (w->local->masked)
        attn__local_mask(w, w->s.s);
    if (!w->now.ragged)
        return;
    attn__taps_limit limit = {.taps = entries_of(w),
                              .number = w->s.number,
                              .shift = w->s.row_at,
                              .from = w->s.from + w->cell,
                              .to = w->s.to + w->cell};
    w->local->taps->limit(w->s.s, &limit);
}

/* --------------------------------------------------------------------------------------------- forward */

static void store_lse(attn__local_work *w)
{
    float *lse = w->arrays->lse;
    for (int64_t i = 0; i < w->lanes; i++) {
        float l = w->s.l[i];
        lse[attn__local_lane_offset(w, ATTN__OP_LSE, i)] =
            l == 0 ? -INFINITY : (float)((double)w->s.m[i] * ln_2 + log((double)l));
    }
}

static void drop(attn__local_work *w, float *s)
{
    if (w->task->has_dropout)
        attn__local_drop(w, s);
}

/* Of the queries in the lanes. */
static void start_lanes(attn__local_work *w)
{
    if (w->task->has_dropout)
        attn__local_drop_of_lanes(w);
}

static void forward_block(attn__local_work *w)
{
    attn__local_read(w, ATTN__OP_Q, w->arrays->q, w->s.lane_a);
    start_lanes(w);
    find_scores(w);
    w->local->taps->softmax(w->s.s, entries_of(w), w->s.m, w->s.l);
    drop(w, w->s.s);
    mix(w, true, w->s.s, w->s.out_b);
    attn__local_margins(w, ATTN_RELATIVE_VALUE, w->s.s);
    attn__local_table_mix(w, ATTN_RELATIVE_VALUE, w->s.out_b);
    for (int64_t i = 0; i < w->local->taps->width; i++)
        w->s.factor[i] = w->s.l[i] == 0 ? 0 : w->local->kept / w->s.l[i];
    attn__local_write(w, ATTN__OP_O, w->arrays->o, w->s.out_b, w->s.factor);
    if (w->task->problem.with & ATTN_WANT_LSE)
        store_lse(w);
}

/* -------------------------------------------------------------------------------------------- backward */

static bool wants(const attn__local_work *w, unsigned bit)
{
    return w->task->problem.with & bit;
}

static void read_lse(attn__local_work *w)
{
    for (int64_t i = 0; i < w->local->taps->width; i++) {
        float lse = -INFINITY;
        if (i < w->lanes)
            lse = ((const float *)w->arrays->lse)[attn__local_lane_offset(w, ATTN__OP_LSE, i)];
        w->s.lse[i] = lse == -INFINITY ? INFINITY : lse * log2_e;
    }
}

static void write_gradient(attn__local_work *w, attn__operand op, void *to, float *tile, double factor)
{
    for (int64_t i = 0; i < w->local->taps->width; i++)
        w->s.factor[i] = (float)factor;
    attn__local_write(w, op, to, tile, w->s.factor);
}

/* Weights and gradients of scores, in place. */
static void find_gradients(attn__local_work *w, const float *lse, const float *delta)
{
    attn__taps_gradient g = {.taps = entries_of(w),
                             .s = w->s.s,
                             .dp = w->s.dp,
                             .shift = w->s.rows_at,
                             .lse = lse,
                             .delta = delta,
                             .p = w->s.s,
                             .ds = w->s.dp,
                             .ld = w->local->taps->width,
                             .marked = has_marks(w)};
    w->local->taps->gradient(&g);
}

static void query_block(attn__local_work *w)
{
    const attn_arrays *a = w->arrays;
    const attn__taps_kernel *taps = w->local->taps;
    attn__local_read(w, ATTN__OP_Q, a->q, w->s.lane_a);
    attn__local_read(w, ATTN__OP_DOUT, a->dout, w->s.lane_b);
    attn__local_read(w, ATTN__OP_O, a->o, w->s.lane_o);
    taps->dot(w->s.lane_o, w->s.lane_b, w->local->values, taps->width, taps->width, w->s.delta);
    read_lse(w);
    start_lanes(w);
    find_scores(w);
    add_scores(w, true, w->s.lane_b, w->local->kept, w->s.dp);
    attn__local_lane_terms(w, ATTN_RELATIVE_VALUE, w->s.lane_b, w->s.dp, w->local->kept);
    drop(w, w->s.dp);
    find_gradients(w, w->s.lse, w->s.delta);
    attn__local_margins(w, ATTN_RELATIVE_QUERY, w->s.dp);
    if (wants(w, ATTN_WANT_DQ)) {
        mix(w, false, w->s.dp, w->s.out_a);
        attn__local_table_mix(w, ATTN_RELATIVE_QUERY, w->s.out_a);
        write_gradient(w, ATTN__OP_DQ, a->dq, w->s.out_a, w->task->problem.scale);
    }
    if (wants(w, ATTN_WANT_DTABLES)) {
        attn__local_table_gradient(w, ATTN_RELATIVE_QUERY, w->s.lane_a);
        drop(w, w->s.s);
        attn__local_margins(w, ATTN_RELATIVE_VALUE, w->s.s);
        attn__local_table_gradient(w, ATTN_RELATIVE_VALUE, w->s.lane_b);
    }
    if (wants(w, ATTN_WANT_DBIAS))
        attn__local_bias_gradient(w, w->s.dp);
}

static void key_block(attn__local_work *w)
{
    const attn_arrays *a = w->arrays;
    attn__local_read(w, ATTN__OP_K, a->k, w->s.lane_a);
    attn__local_read(w, ATTN__OP_V, a->v, w->s.lane_b);
    find_scores(w);
    add_scores(w, true, w->s.lane_b, w->local->kept, w->s.dp);
    attn__local_strip_terms(w, ATTN_RELATIVE_VALUE, w->s.dp, w->local->kept);
    drop(w, w->s.dp);
    find_gradients(w, w->s.rows + w->cell, w->s.rows + w->pass->ld + w->cell);
    attn__local_margins(w, ATTN_RELATIVE_KEY, w->s.dp);
    if (wants(w, ATTN_WANT_DK)) {
        mix(w, false, w->s.dp, w->s.out_a);
        attn__local_table_mix(w, ATTN_RELATIVE_KEY, w->s.out_a);
        write_gradient(w, ATTN__OP_DK, a->dk, w->s.out_a, w->task->problem.scale);
    }
    if (wants(w, ATTN_WANT_DV)) {
        drop(w, w->s.s);
        mix(w, true, w->s.s, w->s.out_b);
        write_gradient(w, ATTN__OP_DV, a->dv, w->s.out_b, (double)w->local->kept);
    }
    if (wants(w, ATTN_WANT_DTABLES))
        attn__local_table_gradient(w, ATTN_RELATIVE_KEY, w->s.lane_a);
}

/* ----------------------------------------------------------------------------------------------- items */

typedef struct job {
    const attn__task *task;
    attn__task shared; /* the same, reduced to the gradients that several items add to */
    const attn__local *local;
    const attn_arrays *arrays;
    char *scratch, *sums;
    int64_t slots;
    bool runs[ATTN__LOCAL_PASSES];
} job;

typedef void block_function(attn__local_work *work);

static void batch_start(attn__local_work *w)
{
    int64_t index[ATTN_MAX_DIMS];
    attn__split(&w->task->batch, w->batch, index);
    memset(w->batch_at, 0, sizeof w->batch_at);
    w->batch_row = 0;
    for (int i = 0; i < w->task->batch.n; i++) {
        w->batch_row += (uint64_t)index[i] * (uint64_t)w->task->batch.axis[i].drop;
        for (attn__operand op = 0; op < ATTN__OPERANDS; op++)
            w->batch_at[op] += index[i] * attn__stride(&w->task->batch.axis[i].dim, op);
    }
    attn__local_tables_read(w);
}

static void run_line(attn__local_work *heads, block_function *block, int64_t line)
{
    const attn__local *local = heads->local;
    int count = local->heads;
    for (int h = 0; h < count; h++)
        attn__local_line_start(heads + h, line);
    for (int64_t cell = 0; cell < heads->live; cell += local->taps->width)
        for (attn__local_work *w = heads; w < heads + count; w++) {
            block_start(w, cell);
            attn__local_fetch_ahead(w);
            block(w);
        }
}

static void run_item(attn__local_work *heads, block_function *block, int64_t item)
{
    const attn__local_pass *pass = heads->pass;
    int64_t count = heads->local->heads, members = count * heads->local->woven;
    int64_t groups = heads->task->batch.size / members, group = item % groups;
    item /= groups;
    for (int64_t h = 0; h < count; h++) {
        heads[h].batch = group * members + h;
        batch_start(heads + h);
        attn__local_tile_start(heads + h, item);
    }
    int64_t line = item / (pass->tiles * pass->phases) * pass->band;
    int64_t end = line + pass->band < pass->lines ? line + pass->band : pass->lines;
    if (pass->once)
        attn__local_once_band(heads, line, end);
    for (; line < end && !pass->once; line++)
        run_line(heads, block, line);
}

static int64_t items_of(const job *j, int which)
{
    return j->task->batch.size / (j->local->heads * j->local->woven) * j->local->pass[which].items;
}

static void run_share(const job *j, int which, int64_t slot, int thread)
{
    attn__local_scratch scratch[ATTN__LOCAL_HEADS];
    attn__local_work heads[ATTN__LOCAL_HEADS];
    const attn__local_pass *pass = &j->local->pass[which];
    block_function *block = !j->task->backward ? forward_block : pass->by_key ? key_block : query_block;
    attn__local_divide(j->local, j->task, pass, j->scratch + (size_t)thread * j->local->share, scratch);
    int h = 0;
    do { /* there is one head at least */
        heads[h] = (attn__local_work){
            .head = h, .task = j->task, .local = j->local, .pass = pass, .arrays = j->arrays, .s = scratch[h]};
        if (j->local->slot_share)
            attn__sums_address(&heads[h].sums, &j->shared, j->sums + (size_t)slot * j->local->slot_share);
    } while (++h < j->local->heads);
    for (int i = 0; i < j->local->taps->width; i++)
        scratch[0].ones[i] = 1;
    int64_t items = items_of(j, which);
    for (int64_t item = slot * items / j->slots; item < (slot + 1) * items / j->slots; item++)
        run_item(heads, block, item);
    for (h = 0; h < j->local->heads; h++)
        attn__local_tables_store(heads + h);
}

/* Both passes over one part of the arrays follow each other: what the first one read is near for the second. */
static void run_slot(void *user, int64_t slot, int thread)
{
    const job *j = user;
    for (int which = 0; which < ATTN__LOCAL_PASSES; which++)
        if (j->runs[which])
            run_share(j, which, slot, thread);
}

/* Items of one slot describe their tile and read their tables once; sums of tables need memory for every slot. */
static void run_passes(job *j)
{
    int64_t items = items_of(j, j->runs[0] ? 0 : j->runs[1] ? 1 : 2);
    int64_t most = j->local->slot_share ? ATTN__LOCAL_SLOTS : 64;
    j->slots = items < most ? items : most;
    attn__parallel_items(j->task->threads, j->slots, run_slot, j);
}

/* Slot after slot, whoever filled them. */
static void store_shared(const job *j)
{
    size_t n = j->local->slot_share / sizeof(double);
    double *total = (double *)(void *)j->sums;
    for (int64_t slot = 1; slot < ATTN__LOCAL_SLOTS; slot++)
        for (size_t i = 0; i < n; i++)
            total[i] += total[(size_t)slot * n + i];
    attn__sums sums;
    attn__sums_address(&sums, &j->shared, j->sums);
    attn__sums_store(&sums, &j->shared, j->arrays);
}

/* Shared gradients are those that no pass writes by itself. */
static unsigned shared_wishes(const attn__task *task)
{
    unsigned bits = ATTN_WANT_DTABLES | (attn__local_bias_shared(task) ? ATTN_WANT_DBIAS : 0);
    return task->problem.with & bits;
}

attn__task attn__local_shared(const attn__task *task)
{
    attn__task shared = *task;
    shared.problem.with = task->backward ? shared_wishes(task) : 0;
    return shared;
}

void attn__local_run(const attn__task *task, const attn__local *local, const attn_arrays *arrays, void *workspace)
{
    job j = {.task = task, .shared = attn__local_shared(task), .local = local, .arrays = arrays, .scratch = workspace};
    unsigned with = task->problem.with;
    j.sums = j.scratch + (size_t)task->threads * local->share;
    j.runs[0] = !task->backward || (with & (ATTN_WANT_DQ | ATTN_WANT_DBIAS | ATTN_WANT_DTABLES));
    j.runs[1] = task->backward && (with & (ATTN_WANT_DK | ATTN_WANT_DV | ATTN_WANT_DTABLES));
    if (!task->backward) {
        run_passes(&j);
        return;
    }
    memset(j.sums, 0, ATTN__LOCAL_SLOTS * local->slot_share);
    if ((with & ATTN_WANT_DBIAS) && !task->problem.accumulate && !attn__local_bias_shared(task))
        attn__operand_zero(task, ATTN__OP_DBIAS, arrays->dbias);
    if (local->once && (with & ATTN_WANT_DQ) && (with & (ATTN_WANT_DK | ATTN_WANT_DV)))
        memcpy(j.runs, (bool[ATTN__LOCAL_PASSES]){false, false, true}, sizeof j.runs);
    if (j.runs[0] || j.runs[1] || j.runs[2])
        run_passes(&j);
    if (local->slot_share)
        store_shared(&j);
}
