/* SPDX-License-Identifier: MIT
 *
 * wide_head_pack.c - chunks of channels between the caller's arrays and panels, run by run.
 */
#include "attend/solve/wide_head.h"

#include "attend/block/rows.h"
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

static const void *chunk_at(const attn__wide_head_chunk *x, int64_t channel)
{
    return attn__wide_head_at(x->of.operand, x->of.base, x->first + channel);
}

/* Adjacent channels of the chunk from its channel `c` on. */
static int64_t chunk_run(const attn__wide_head_chunk *x, int64_t c)
{
    return run_from(x->of.operand, x->first + c, x->n - c);
}

/* Channels that are not adjacent are reached by a table of offsets. */
static bool needs_table(const attn__wide_head_chunk *x)
{
    return x->of.operand->run == 1 && x->n > 1;
}

static const int64_t *fill_table(const attn__wide_head_chunk *x, int64_t *table)
{
    attn__offsets_fill(x->of.operand->channels, x->of.operand->stride, x->first, x->n, table);
    return table;
}

bool attn__wide_head_copy(const attn__wide_head_chunk *x, const attn__online_softmax_kernel *lanes,
                          const attn__wide_head_panel *to)
{
    const attn__wide_head_rows *of = &x->of;
    attn_dtype dtype = of->operand->dtype;
    int64_t padded = attn__least(to->ld, attn__round_up(x->n, lanes->lanes));
    for (int64_t r = 0; r < of->rows && padded > x->n; r++)
        memset(to->data + r * to->ld + x->n, 0, (size_t)(padded - x->n) * sizeof(float));
    if (needs_table(x))
        return lanes->copy(of->base, dtype, of->at, fill_table(x, to->table), of->rows, x->n, to->data, to->ld);
    bool finite = true;
    for (int64_t c = 0, run; c < x->n; c += run) {
        run = chunk_run(x, c);
        finite = lanes->copy(chunk_at(x, c), dtype, of->at, NULL, of->rows, run, to->data + c, to->ld) && finite;
    }
    return finite;
}

void attn__wide_head_gather(const attn__wide_head_chunk *x, const attn__online_softmax_kernel *lanes,
                            const attn__wide_head_panel *to, float factor)
{
    const attn__wide_head_rows *of = &x->of;
    attn__lane_view view = {(void *)(uintptr_t)of->base, of->operand->dtype, of->at, NULL, x->n, of->rows};
    if (needs_table(x)) {
        view.row_offset = fill_table(x, to->table);
        lanes->gather(&view, to->data, to->ld, factor);
        return;
    }
    for (int64_t c = 0; c < x->n; c += view.rows) {
        view.rows = chunk_run(x, c);
        view.base = (void *)(uintptr_t)chunk_at(x, c);
        lanes->gather(&view, to->data + c * to->ld, to->ld, factor);
    }
}

/* Runs that begin where tiles do are split from where they lie, others by way of the panel. */
static bool splits_in_place(const attn__wide_head_chunk *x, int64_t unit)
{
    return chunk_run(x, 0) == x->n || (x->of.operand->run % unit == 0 && x->first % unit == 0);
}

/* How a chunk becomes tiles, `unit` channels wide and `next` numbers apart. */
typedef struct tiling {
    bool (*split)(const attn__bf16x3_rows *rows, const attn__bf16x3_side *to);
    int64_t unit, next;
} tiling;

static bool split(const attn__wide_head_chunk *x, const attn__flash *flash, const attn__wide_head_panel *between,
                  attn__bf16x3_side to, tiling how)
{
    attn__bf16x3_rows rows = {
        .dtype = x->of.operand->dtype, .row_at = x->of.at, .rows = x->of.rows, .factor = 1.0f, .parts = flash->terms};
    if (!splits_in_place(x, how.unit)) {
        attn__wide_head_copy(x, flash->lanes, between);
        rows.data = between->data;
        rows.dtype = ATTN_F32;
        rows.row_at = NULL;
        rows.ld = between->ld;
        rows.columns = x->n;
        return how.split(&rows, &to);
    }
    bool finite = true;
    uint16_t *start = to.data;
    for (int64_t c = 0; c < x->n; c += rows.columns) {
        rows.columns = chunk_run(x, c);
        rows.data = chunk_at(x, c);
        to.data = start + c / how.unit * how.next;
        finite = how.split(&rows, &to) && finite;
    }
    return finite;
}

void attn__wide_head_split(const attn__wide_head_chunk *x, const attn__flash *flash,
                           const attn__wide_head_panel *between, const attn__bf16x3_side *to)
{
    split(x, flash, between, *to, (tiling){flash->amx->split_rows, ATTN__BF16X3_DEPTH, to->step});
}

bool attn__wide_head_split_pairs(const attn__wide_head_chunk *x, const attn__flash *flash,
                                 const attn__wide_head_panel *between, const attn__bf16x3_side *to)
{
    return split(x, flash, between, *to, (tiling){flash->amx->split_pairs, ATTN__BF16X3_SIDE, to->block});
}

/* Channels [c, c + n) of the chunk, which are adjacent. */
static void store_run(const attn__wide_head_chunk *x, const attn__wide_head_sum *sum, int64_t c, int64_t n,
                      const float *tile, int64_t ld)
{
    void *base = (void *)(uintptr_t)chunk_at(x, c);
    for (int64_t r = 0; r < x->of.rows; r++, tile += ld) {
        if (x->of.operand->dtype == ATTN_BF16) {
            sum->store->store_bf16((uint16_t *)base + x->of.at[r], tile, n, sum->factor[r], sum->was != NULL);
            continue;
        }
        float *out = (float *)base + x->of.at[r];
        if (sum->was && sum->was[r] != 1.0f)
            sum->channels->scale(sum->was[r], out, n);
        sum->store->store(out, tile, n, sum->factor[r], sum->was != NULL);
    }
}

void attn__wide_head_store(const attn__wide_head_chunk *x, const attn__wide_head_sum *sum, const float *tile,
                           int64_t ld)
{
    for (int64_t c = 0, run; c < x->n; c += run) {
        run = chunk_run(x, c);
        store_run(x, sum, c, run, tile + c, ld);
    }
}

/* Chunks of runs of unlike lengths, or of single channels, are left to the machine. */
void attn__wide_head_prefetch(attn__prefetch *prefetch, const attn__wide_head_chunk *x)
{
    int64_t size = (int64_t)attn_dtype_size(x->of.operand->dtype);
    if (x->n <= 0 || prefetch->streams >= ATTN__PREFETCH_STREAMS)
        return;
    int64_t run = chunk_run(x, 0);
    const char *start = chunk_at(x, 0);
    if (run * size >= LINE)
        attn__prefetch_add_runs(prefetch, start, size, x->of.at, x->of.rows, x->n / run,
                                x->n > run ? (const char *)chunk_at(x, run) - start : 0, run * size);
}
