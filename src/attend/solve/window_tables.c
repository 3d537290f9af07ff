/* SPDX-License-Identifier: MIT
 *
 * window_tables.c - relative tables of windows.  A tap has one relative position whatever the query, so a table's
 * terms are a product of few rows with the lanes or with a strip; tables along several axes add up.
 */
#include "attend/solve/window_solver.h"

#include <math.h>

static int lane_axis(const attn__window *plan)
{
    return plan->naxes - 1;
}

static int64_t channels_of(const attn__window *plan, attn_relative_kind kind)
{
    return kind == ATTN_RELATIVE_VALUE ? plan->values : plan->channels;
}

static float *rows_of(const attn__window_work *work, attn_relative_kind kind, int axis)
{
    return work->s.table + work->plan->table_at[kind][axis];
}

/* Offset of the table's row for the first virtual tap of its axis; *next is what one tap adds, in rows. */
static int64_t first_row(const attn__window_work *work, int i, const attn__window_axis **axis)
{
    const attn_relative *r = &work->canonical->problem.relatives[i];
    *axis = &work->plan->axis[0];
    for (int a = 1; a < work->plan->naxes; a++)
        if (work->plan->axis[a].key == r->key_dim)
            *axis = &work->plan->axis[a];
    return (*axis)->window.offset + (*axis)->first * (*axis)->window.dilation + r->offset;
}

static int64_t batch_offset(const attn__window_work *work, int i)
{
    int64_t index[ATTN_MAX_DIMS], offset = 0;
    attn__split(&work->canonical->batch, work->batch, index);
    for (int a = 0; a < work->canonical->batch.n; a++)
        offset += index[a] * work->canonical->batch.axis[a].table[i];
    return offset;
}

static void read_table(attn__window_work *work, int i)
{
    const attn_relative *r = &work->canonical->problem.relatives[i];
    const attn__window_axis *axis = NULL;
    int64_t row = first_row(work, i, &axis), batch = work->table_at[i], n = channels_of(work->plan, r->kind);
    const int64_t *channel = work->plan->table_channel[i];
    float *out = rows_of(work, r->kind, (int)(axis - work->plan->axis));
    for (int64_t tap = axis->first; tap < axis->last; tap++, row += axis->window.dilation, out += n)
        for (int64_t c = 0; c < n; c++)
            if (channel[c] != INT64_MIN)
                out[c] += ((const float *)work->arrays->table[i])[batch + row * r->row_stride + channel[c]];
}

/* Tables stay, and their gradients go on growing, while the batch indices do not move them. */
void attn__window_tables_read(attn__window_work *work)
{
    int64_t at[ATTN_MAX_RELATIVE] = {0};
    bool same = work->tables_read;
    for (int i = 0; i < work->canonical->problem.nrelatives; i++) {
        at[i] = batch_offset(work, i);
        same = same && at[i] == work->table_at[i];
    }
    if (same)
        return;
    attn__window_tables_store(work);
    memcpy(work->table_at, at, sizeof at);
    work->tables_read = true;
    memset(work->s.table, 0, (size_t)work->plan->table_floats * sizeof(float));
    if (work->canonical->backward)
        memset(work->s.table_sums, 0, (size_t)work->plan->table_floats * sizeof(double));
    for (int i = 0; i < work->canonical->problem.nrelatives; i++)
        read_table(work, i);
    work->tables_finite = true;
    for (int64_t i = 0; i < work->plan->table_floats; i++)
        work->tables_finite = work->tables_finite && isfinite(work->s.table[i]);
}

/* ------------------------------------------------------------------------------------------------ terms */

void attn__window_tables_of_pairs(attn__window_work *work)
{
    const attn__window *plan = work->plan;
    for (attn_relative_kind kind = 0; kind < ATTN__WINDOW_KINDS; kind++) {
        int64_t n = channels_of(plan, kind);
        if (!attn__window_has_outer(plan, kind))
            continue;
        float *out = work->s.pair_table[kind];
        memset(out, 0, (size_t)(work->pairs * n) * sizeof(float));
        for (int64_t p = 0; p < work->pairs; p++, out += n)
            for (int a = 0; a < lane_axis(plan); a++) {
                const float *row = rows_of(work, kind, a) + (work->s.pair[p].tap[a] - plan->axis[a].first) * n;
                for (int64_t c = 0; plan->has_table[kind][a] && c < n; c++)
                    out[c] += row[c];
            }
    }
}

/* out = rows x strip */
static void multiply(const attn__window_work *work, const float *rows, int64_t m, int64_t channels, const float *strip,
                     int64_t ld, float *out)
{
    work->plan->tile->run(&(attn__gemm_tile_args){.m = m,
                                                  .n = ld,
                                                  .k = channels,
                                                  .a = rows,
                                                  .am = channels,
                                                  .ak = 1,
                                                  .b = strip,
                                                  .ldb = ld,
                                                  .c = out,
                                                  .ldc = ld});
}

void attn__window_tables_of_strip(attn__window_work *work, int64_t slot)
{
    const attn__window *plan = work->plan;
    const attn__window_axis *axis = &plan->axis[lane_axis(plan)];
    attn_relative_kind kinds[2] = {attn__window_strip_kind(work->pass), ATTN_RELATIVE_VALUE};
    int64_t ld = work->pass->ld, taps = axis->last - axis->first;
    for (int i = 0; i < 1 + work->pass->by_key; i++) {
        int64_t n = channels_of(plan, kinds[i]);
        if (!plan->has_table[kinds[i]][lane_axis(plan)])
            continue;
        int64_t rows = work->pass->strip_phases == 1 ? taps : 1; /* taps that read the same strip go together */
        for (int64_t t = 0; t < taps; t += rows) {
            int64_t phase = work->pass->by_key ? 0 : attn__window_phase(axis, axis->first + t);
            multiply(work, rows_of(work, kinds[i], lane_axis(plan)) + t * n, rows, n,
                     attn__window_strip(work, i, slot, phase), ld, work->s.terms[i] + (slot * taps + t) * ld);
        }
    }
}

void attn__window_tables_of_pair_strips(attn__window_work *work)
{
    const attn__window *plan = work->plan;
    attn_relative_kind kinds[2] = {attn__window_strip_kind(work->pass), ATTN_RELATIVE_VALUE};
    int64_t ld = work->pass->ld, phases = work->pass->strip_phases;
    for (int i = 0; i < 1 + work->pass->by_key; i++) {
        int64_t n = channels_of(plan, kinds[i]);
        for (int64_t p = 0; attn__window_has_outer(plan, kinds[i]) && p < work->pairs; p++)
            for (int64_t phase = 0; phase < phases; phase++)
                multiply(work, work->s.pair_table[kinds[i]] + p * n, 1, n,
                         attn__window_strip(work, i, work->s.pair[p].slot, phase), ld,
                         work->s.pair_rows[i] + (p * phases + phase) * ld);
    }
}

void attn__window_lane_terms(attn__window_work *work, attn_relative_kind kind, const float *tile, float *s,
                             float factor)
{
    const attn__window *plan = work->plan;
    int64_t n = channels_of(plan, kind), width = plan->taps->width, taps = work->now.n;
    const attn__window_axis *axis = &plan->axis[lane_axis(plan)];
    float *out = work->s.lanes.terms;
    attn__gemm_tile_args t = {.n = width, .k = n, .ak = 1, .b = tile, .ldb = width, .c = out, .ldc = width};
    if (plan->has_table[kind][lane_axis(plan)]) {
        t.a = rows_of(work, kind, lane_axis(plan)) + (work->now.first - axis->first) * n;
        t.am = work->stride * n;
        t.m = taps;
        plan->tile->run(&t);
        for (int64_t p = 0; p < work->pairs; p++)
            plan->lanes->add(s + p * taps * width, out, taps * width, factor);
    }
    if (!attn__window_has_outer(plan, kind))
        return;
    t.a = work->s.pair_table[kind];
    t.am = n;
    t.m = work->pairs;
    plan->tile->run(&t);
    for (int64_t p = 0; p < work->pairs; p++)
        plan->taps->add_rows(s + p * taps * width, taps, out + p * width, 0, factor);
}

void attn__window_strip_terms(attn__window_work *work, attn_relative_kind kind, float *s, float factor)
{
    const attn__window *plan = work->plan;
    const attn__window_axis *axis = &plan->axis[lane_axis(plan)];
    int64_t width = plan->taps->width, ld = work->pass->ld, all = axis->last - axis->first;
    int which = kind == ATTN_RELATIVE_VALUE;
    bool own = plan->has_table[kind][lane_axis(plan)], outer = attn__window_has_outer(plan, kind);
    for (int64_t p = 0; (own || outer) && p < work->pairs; p++)
        for (int64_t k = 0; k < work->now.n; k++, s += width) {
            int64_t at = work->s.shift[k] + work->cell;
            int64_t tap = work->now.first + k * work->stride - axis->first;
            if (own)
                plan->taps->add_rows(s, 1, work->s.terms[which] + (work->s.pair[p].slot * all + tap) * ld + at, 0,
                                     factor);
            if (outer)
                plan->taps->add_rows(
                    s, 1, work->s.pair_rows[which] + (p * work->pass->strip_phases + work->s.phase[k]) * ld + at, 0,
                    factor);
        }
}

/* -------------------------------------------------------------------------------------------- gradients */

static void clear_dead(const attn__window_work *work, float *rows, int64_t n)
{
    int64_t width = work->plan->taps->width;
    for (int64_t r = 0; r < n; r++)
        for (int64_t w = work->lanes; w < width; w++)
            rows[r * width + w] = 0;
}

void attn__window_margins(attn__window_work *work, attn_relative_kind kind, const float *weights)
{
    const attn__window *plan = work->plan;
    int64_t width = plan->taps->width, taps = work->now.n;
    if (plan->has_table[kind][lane_axis(plan)]) {
        memset(work->s.margin, 0, (size_t)(taps * width) * sizeof(float));
        for (int64_t p = 0; p < work->pairs; p++)
            plan->lanes->add(work->s.margin, weights + p * taps * width, taps * width, 1);
        clear_dead(work, work->s.margin, taps);
    }
    if (!attn__window_has_outer(plan, kind))
        return;
    memset(work->s.pair_margin, 0, (size_t)(work->pairs * width) * sizeof(float));
    for (int64_t p = 0; p < work->pairs; p++)
        plan->taps->sum_rows(weights + p * taps * width, taps, work->s.pair_margin + p * width);
    clear_dead(work, work->s.pair_margin, work->pairs);
}

/* C += A B for rows A of tables and weights B: a weight of 0 hides what is not finite. */
static void add_rows(const attn__window_work *work, const attn__gemm_tile_args *t)
{
    if (work->tables_finite) {
        work->plan->tile->run(t);
        return;
    }
    for (int64_t c = 0; c < t->m; c++)
        for (int64_t k = 0; k < t->k; k++)
            for (int64_t w = 0; w < t->n; w++) {
                float weight = t->b[k * t->ldb + w];
                t->c[c * t->ldc + w] += weight == 0 ? 0 : weight * t->a[c * t->am + k * t->ak];
            }
}

void attn__window_table_mix(attn__window_work *work, attn_relative_kind kind, float *out)
{
    const attn__window *plan = work->plan;
    int64_t n = channels_of(plan, kind), width = plan->taps->width;
    const attn__window_axis *axis = &plan->axis[lane_axis(plan)];
    attn__gemm_tile_args t = {.m = n, .n = width, .am = 1, .ldb = width, .c = out, .ldc = width, .accumulate = true};
    if (plan->has_table[kind][lane_axis(plan)]) {
        t.a = rows_of(work, kind, lane_axis(plan)) + (work->now.first - axis->first) * n;
        t.ak = work->stride * n;
        t.k = work->now.n;
        t.b = work->s.margin;
        add_rows(work, &t);
    }
    if (!attn__window_has_outer(plan, kind))
        return;
    t.a = work->s.pair_table[kind];
    t.ak = n;
    t.k = work->pairs;
    t.b = work->s.pair_margin;
    add_rows(work, &t);
}

/* How many pairs from p on have taps of the axis that follow each other. */
static int64_t neighbours(const attn__window_work *work, int64_t p, int axis)
{
    int64_t n = 1;
    while (p + n < work->pairs && work->s.pair[p + n].tap[axis] == work->s.pair[p].tap[axis] + n)
        n++;
    return n;
}

static void outer(const attn__window_work *work, const float *rows, int64_t count, const float *tile, int64_t channels,
                  double *sums)
{
    int64_t width = work->plan->taps->width;
    work->plan->taps->outer(&(attn__tap_outer){.count = count,
                                               .channels = channels,
                                               .rows = rows,
                                               .tile = tile,
                                               .rows_ld = width,
                                               .tile_ld = width,
                                               .sums = sums});
}

void attn__window_table_gradient(attn__window_work *work, attn_relative_kind kind, const float *tile)
{
    const attn__window *plan = work->plan;
    int64_t n = channels_of(plan, kind), width = plan->taps->width;
    for (int a = 0; a < plan->naxes; a++) {
        double *sums = work->s.table_sums + plan->table_at[kind][a];
        if (!plan->has_table[kind][a])
            continue;
        int64_t together = work->stride == 1 ? work->now.n : 1;
        for (int64_t k = 0; a == lane_axis(plan) && k < work->now.n; k += together)
            outer(work, work->s.margin + k * width, together, tile, n,
                  sums + (work->now.first + k * work->stride - plan->axis[a].first) * n);
        for (int64_t p = 0; a < lane_axis(plan) && p < work->pairs; p += together) {
            together = neighbours(work, p, a);
            outer(work, work->s.pair_margin + p * width, together, tile, n,
                  sums + (work->s.pair[p].tap[a] - plan->axis[a].first) * n);
        }
    }
}

void attn__window_tables_store(attn__window_work *work)
{
    const attn_problem *p = &work->canonical->problem;
    for (int i = 0; work->tables_read && work->canonical->backward && i < p->nrelatives; i++) {
        const attn_relative *r = &p->relatives[i];
        double *to = work->sums.at[ATTN__SUM_TABLE + i], factor = p->scale;
        if (r->kind == ATTN_RELATIVE_VALUE)
            factor = (double)work->plan->kept;
        const attn__window_axis *axis = NULL;
        int64_t row = first_row(work, i, &axis), batch = work->table_at[i], n = channels_of(work->plan, r->kind);
        const int64_t *channel = work->plan->table_channel[i];
        const double *from = work->s.table_sums + work->plan->table_at[r->kind][axis - work->plan->axis];
        for (int64_t tap = axis->first; to && tap < axis->last; tap++, row += axis->window.dilation, from += n)
            for (int64_t c = 0; c < n; c++)
                if (channel[c] != INT64_MIN)
                    to[batch + row * r->row_stride + channel[c]] += factor * from[c];
    }
}

/* ---------------------------------------------------------------------------------- all gradients at once */

void attn__window_once_terms(attn__window_work *work)
{
    const attn__window *plan = work->plan;
    const attn__window_once *o = &work->s.once;
    const attn__window_axis *axis = &plan->axis[1];
    int64_t ld = work->pass->ld, n = plan->channels, taps = axis->last - axis->first;
    if (plan->has_table[ATTN_RELATIVE_QUERY][1])
        multiply(work, rows_of(work, ATTN_RELATIVE_QUERY, 1), taps, n, o->q, ld, o->terms);
    memset(o->margin, 0, (size_t)(taps * ld) * sizeof(float));
    attn__window_tables_of_pairs(work);
    if (attn__window_has_outer(plan, ATTN_RELATIVE_QUERY))
        multiply(work, work->s.pair_table[ATTN_RELATIVE_QUERY], work->pairs, n, o->q, ld, o->pair_terms);
    memset(o->pair_margin, 0, (size_t)(work->pairs * ld) * sizeof(float));
}

/* dq += margins x tables, and the tables' gradients. */
void attn__window_once_margins(attn__window_work *work)
{
    const attn__window *plan = work->plan;
    const attn__window_once *o = &work->s.once;
    int64_t ld = work->pass->ld, n = plan->channels, width = plan->taps->width, left = work->pass->left;
    int64_t lanes = work->live - left < work->pass->own ? work->live - left : work->pass->own;
    for (int a = 0; a < 2; a++) {
        const attn__window_axis *axis = &plan->axis[a];
        int64_t count = a ? axis->last - axis->first : work->pairs;
        const float *margin = (a ? o->margin : o->pair_margin) + left;
        const float *rows = a ? rows_of(work, ATTN_RELATIVE_QUERY, 1) : work->s.pair_table[ATTN_RELATIVE_QUERY];
        double *sums = work->s.table_sums + plan->table_at[ATTN_RELATIVE_QUERY][a];
        if (!plan->has_table[ATTN_RELATIVE_QUERY][a] || count == 0)
            continue;
        sums += a ? 0 : (work->s.pair[0].tap[0] - axis->first) * n;
        for (int64_t x = 0; x < lanes; x += width) {
            add_rows(work, &(attn__gemm_tile_args){.m = n,
                                                   .n = width,
                                                   .k = count,
                                                   .a = rows,
                                                   .am = 1,
                                                   .ak = n,
                                                   .b = margin + x,
                                                   .ldb = ld,
                                                   .c = o->dq + (left + x) * n,
                                                   .ldc = width,
                                                   .accumulate = true});
            if (work->canonical->problem.flags & ATTN_WANT_DTABLES)
                plan->taps->outer(&(attn__tap_outer){.count = count,
                                                     .channels = n,
                                                     .rows = margin + x,
                                                     .tile = o->q + left + x,
                                                     .rows_ld = ld,
                                                     .tile_ld = ld,
                                                     .sums = sums});
        }
    }
}
