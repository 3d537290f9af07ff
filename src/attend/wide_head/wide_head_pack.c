/* SPDX-License-Identifier: MIT
 *
 * wide_head_pack.c - chunks of channels between the caller's arrays and panels, run by run.
 */
#include "attend/wide_head/wide_head.h"

#include "attend/canonical/offsets.h"
#include "base/integers.h"

#include <string.h>

enum { LINE = 64 };

static int64_t stride_of(const attn__axis *axis, size_t stride)
{
    return *(const int64_t *)(const void *)((const char *)axis + stride);
}

attn__wide_head_operand attn__wide_head_operand_of(const attn__group *channels, size_t stride, attn_dtype dtype)
{
    attn__wide_head_operand x = {channels, stride, dtype, 1};
    for (int a = channels->n - 1; a >= 0; a--) {
        const attn__axis *axis = &channels->axis[a];
        if (axis->dim.n > 1 && stride_of(axis, stride) != x.run)
            break;
        x.run *= axis->dim.n;
    }
    return x;
}

/* How many channels from `c` on, at most `most`, are adjacent. */
static int64_t run_from(const attn__wide_head_operand *x, int64_t c, int64_t most)
{
    return attn__least(x->run - c % x->run, most);
}

const void *attn__wide_head_at(const attn__wide_head_operand *x, const void *base, int64_t channel)
{
    int64_t offset = x->channels ? attn__offsets_one(x->channels, x->stride, channel) : channel;
    return (const char *)base + offset * (int64_t)attn_dtype_size(x->dtype);
}

bool attn__wide_head_copy(const attn__wide_head_operand *x, const attn__online_softmax_kernel *lanes, const void *base,
                          const int64_t *at, int64_t rows, int64_t first, int64_t n, float *out, int64_t ld,
                          int64_t *table)
{
    bool finite = true;
    int64_t padded = attn__least(ld, (n + lanes->lanes - 1) / lanes->lanes * lanes->lanes);
    for (int64_t r = 0; r < rows && padded > n; r++)
        memset(out + r * ld + n, 0, (size_t)(padded - n) * sizeof *out);
    if (x->run == 1 && n > 1) {
        attn__offsets_fill(x->channels, x->stride, first, n, table);
        return lanes->copy(base, x->dtype, at, table, rows, n, out, ld);
    }
    for (int64_t c = 0, run; c < n; c += run) {
        run = run_from(x, first + c, n - c);
        finite =
            lanes->copy(attn__wide_head_at(x, base, first + c), x->dtype, at, NULL, rows, run, out + c, ld) && finite;
    }
    return finite;
}

/* Runs that begin where tiles do are split from where they lie, others by way of the panel. */
static bool splits_in_place(const attn__wide_head_operand *x, int64_t first, int64_t n, int64_t unit)
{
    return run_from(x, first, n) == n || (x->run % unit == 0 && first % unit == 0);
}

typedef struct split_args {
    const attn__wide_head_operand *x;
    const attn__flash *flash;
    const void *base;
    const int64_t *at;
    int64_t rows, first, n;
    float *panel;
    int64_t ld, *table;
} split_args;

typedef bool split_fn(const attn__bf16x3_rows *rows, const attn__bf16x3_side *to);

/* Tiles are `unit` channels wide, and `next` numbers apart. */
static bool split(const split_args *s, split_fn *fn, attn__bf16x3_side to, int64_t unit, int64_t next)
{
    attn__bf16x3_rows rows = {
        .dtype = s->x->dtype, .row_at = s->at, .rows = s->rows, .factor = 1.0f, .parts = s->flash->nparts};
    if (!splits_in_place(s->x, s->first, s->n, unit)) {
        attn__wide_head_copy(s->x, s->flash->lanes, s->base, s->at, s->rows, s->first, s->n, s->panel, s->ld, s->table);
        rows.data = s->panel;
        rows.dtype = ATTN_F32;
        rows.row_at = NULL;
        rows.ld = s->ld;
        rows.columns = s->n;
        return fn(&rows, &to);
    }
    bool finite = true;
    uint16_t *start = to.data;
    for (int64_t c = 0; c < s->n; c += rows.columns) {
        rows.columns = run_from(s->x, s->first + c, s->n - c);
        rows.data = attn__wide_head_at(s->x, s->base, s->first + c);
        to.data = start + c / unit * next;
        finite = fn(&rows, &to) && finite;
    }
    return finite;
}

void attn__wide_head_split(const attn__wide_head_operand *x, const attn__flash *flash, const void *base,
                           const int64_t *at, int64_t rows, int64_t first, int64_t n, const attn__bf16x3_side *to,
                           float *panel, int64_t ld, int64_t *table)
{
    split_args args = {x, flash, base, at, rows, first, n, panel, ld, table};
    split(&args, flash->parts->split_rows, *to, ATTN__BF16X3_DEPTH, to->step);
}

bool attn__wide_head_split_pairs(const attn__wide_head_operand *x, const attn__flash *flash, const void *base,
                                 const int64_t *at, int64_t rows, int64_t first, int64_t n, const attn__bf16x3_side *to,
                                 float *panel, int64_t ld, int64_t *table)
{
    split_args args = {x, flash, base, at, rows, first, n, panel, ld, table};
    return split(&args, flash->parts->split_pairs, *to, ATTN__BF16X3_SIDE, to->block);
}

void attn__wide_head_gather(const attn__wide_head_operand *x, const attn__online_softmax_kernel *lanes,
                            const void *base, const int64_t *at, int64_t count, int64_t first, int64_t n, float *tile,
                            int64_t width, float factor, int64_t *table)
{
    attn__lane_view view = {(void *)(uintptr_t)base, x->dtype, at, NULL, n, count};
    if (x->run == 1 && n > 1) {
        attn__offsets_fill(x->channels, x->stride, first, n, table);
        view.row_offset = table;
        lanes->gather(&view, tile, width, factor);
        return;
    }
    for (int64_t c = 0; c < n; c += view.rows) {
        view.rows = run_from(x, first + c, n - c);
        view.base = (void *)(uintptr_t)attn__wide_head_at(x, base, first + c);
        lanes->gather(&view, tile + c * width, width, factor);
    }
}

static void store_run(const attn__wide_head_operand *x, const attn__wide_head_sum *sum, void *base, const int64_t *at,
                      int64_t rows, int64_t n, const float *tile, int64_t ld)
{
    for (int64_t r = 0; r < rows; r++, tile += ld) {
        if (x->dtype == ATTN_BF16) {
            sum->store->store_bf16((uint16_t *)base + at[r], tile, n, sum->factor[r], sum->was != NULL);
            continue;
        }
        float *out = (float *)base + at[r];
        if (sum->was && sum->was[r] != 1.0f)
            sum->channels->scale(sum->was[r], out, n);
        sum->store->store(out, tile, n, sum->factor[r], sum->was != NULL);
    }
}

void attn__wide_head_store(const attn__wide_head_operand *x, const attn__wide_head_sum *sum, void *base,
                           const int64_t *at, int64_t rows, int64_t first, int64_t n, const float *tile, int64_t ld)
{
    for (int64_t c = 0, run; c < n; c += run) {
        run = run_from(x, first + c, n - c);
        store_run(x, sum, (void *)(uintptr_t)attn__wide_head_at(x, base, first + c), at, rows, run, tile + c, ld);
    }
}

/* Chunks of runs of unlike lengths, or of single channels, are left to the machine. */
void attn__wide_head_prefetch(attn__prefetch *prefetch, const attn__wide_head_operand *x, const void *base,
                              const int64_t *at, int64_t rows, int64_t first, int64_t n)
{
    int64_t run = run_from(x, first, n), size = (int64_t)attn_dtype_size(x->dtype);
    const char *start = n > 0 ? attn__wide_head_at(x, base, first) : base;
    if (n > 0 && run * size >= LINE && prefetch->streams < ATTN__PREFETCH_STREAMS)
        attn__prefetch_add_runs(prefetch, start, size, at, rows, n / run,
                                n > run ? (const char *)attn__wide_head_at(x, base, first + run) - start : 0,
                                run * size);
}
