/* SPDX-License-Identifier: MIT
 * Packs weights as tiles of slices. */
#include "base/rng.h"
#include "gemm/sliced.h"

#include <math.h>
#include <string.h>

enum { SIDE = ATTN__SLICES_SIDE, DEPTH = ATTN__SLICES_DEPTH, LINE = 64 /* bytes */ };
enum { TOGETHER = 8 }; /* panels per work item */

bool attn__sliced_serves(const attn__slices_kernel *kernel, int64_t n, int64_t k)
{
    return kernel && n > 0 && k >= DEPTH; /* if k were below DEPTH, most of a tile would be zeros */
}

attn__sliced_weights attn__sliced_weights_in(void *data, int64_t n, int64_t k)
{
    attn__sliced_weights w = {.n = n, .k = k};
    w.panels = attn__ceil_div(n, SIDE);
    w.blocks = attn__ceil_div(k, ATTN__SLICES_K_BLOCK);
    w.panel = attn__sliced_tiles(SIDE, k);
    w.tiles = data;
    w.bounds = (attn__slices_panel *)(void *)((char *)data + w.panels * w.panel);
    w.joined = w.bounds + w.blocks * w.panels;
    w.multiply_adds = (bool *)(w.joined + w.blocks);
    return w;
}

size_t attn__sliced_bytes(int64_t n, int64_t k)
{
    int64_t panels = attn__ceil_div(n, SIDE), blocks = attn__ceil_div(k, ATTN__SLICES_K_BLOCK);
    return (size_t)(panels * attn__sliced_tiles(SIDE, k)) +
           (size_t)(blocks * (panels + 1)) * sizeof(attn__slices_panel) + (size_t)panels * sizeof(bool);
}

/* ------------------------------------------------------------------------------------------------- tiles */

/* Prefetches a row of weights, because weights are not in a cache. */
static void fetch(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += LINE / (int64_t)sizeof(float))
        __builtin_prefetch(x + i, 0, 3);
}

static void fetch_to_write(int8_t *data, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += LINE)
        __builtin_prefetch(data + i, 1, 3);
}

/* Packs up to 16 rows along k as one panel. If there are fewer than 16 rows, the other lanes have undefined values. The
 * function prefetches the next rows and, if `next` is not NULL, the tiles of the next panel. Weights are not in a
 * cache, and their rows are too short for the hardware prefetcher. */
static void pack_panel(const attn__slices_kernel *kernel, const float *x, int64_t ld, int64_t rows, int64_t depth,
                       int8_t *tiles, int8_t *next, attn__slices_panel *panel)
{
    enum { AHEAD = 2 };
    int64_t bytes = attn__sliced_tiles(SIDE, depth);
    attn__slices_rows columns;
    for (int64_t i = 0; i < SIDE; i++) {
        const float *row = x + (i < rows ? i : 0) * ld;
        if (i + AHEAD < rows)
            fetch(row + AHEAD * ld, depth);
        if (next)
            fetch_to_write(next + i * bytes / SIDE, bytes / SIDE);
        attn__slices_scale scale = kernel->scale(row, depth);
        kernel->quantize(row, scale.scale, depth, tiles + i * DEPTH);
        if (i < rows)
            kernel->measure(tiles + i * DEPTH, depth, scale, &columns, i);
        else
            attn__slices_note_none(&columns, i);
    }
    kernel->transpose(tiles, attn__ceil_div(depth, DEPTH) * ATTN__SLICES);
    attn__slices_panel_of(&columns, panel);
}

typedef struct packing {
    const attn__slices_kernel *kernel;
    const attn__gemm_operand *x;
    attn__sliced_weights w;
} packing;

static void pack_item(void *user, int64_t item, int thread)
{
    (void)thread;
    const packing *t = user;
    const attn__sliced_weights *w = &t->w;
    int64_t end = attn__min((item + 1) * TOGETHER, w->panels);
    for (int64_t c = 0; c < w->blocks; c++) {
        for (int64_t panel = item * TOGETHER; panel < end; panel++) {
            int8_t *tiles = attn__sliced_tiles_of_w(w, panel, c);
            const float *x = (const float *)t->x->data + panel * SIDE * t->x->outer + attn__sliced_k(w, c);
            pack_panel(t->kernel, x, t->x->outer, w->n - panel * SIDE, attn__sliced_depth(w, c), tiles,
                       panel + 1 < end ? tiles + w->panel : NULL, w->bounds + c * w->panels + panel);
        }
    }
}

/* ------------------------------------------------------------------------------------------------ judging */

/* Measures a row of normally distributed random numbers as an example of an ordinary row of A. The row is in lane 0.
 * The other lanes pass every test. */
static void measure_ordinary(const attn__slices_kernel *kernel, int64_t depth, attn__slices_rows *rows)
{
    attn__rng rng = {.seed = 1};
    float x[ATTN__SLICES_K_BLOCK];
    int8_t _Alignas(LINE) tiles[ATTN__SLICES_K_BLOCK / DEPTH * ATTN__SLICES_STEP];
    for (int64_t i = 0; i < depth; i++)
        x[i] = (float)attn__rng_normal(&rng);
    attn__slices_scale scale = kernel->scale(x, depth);
    kernel->quantize(x, scale.scale, depth, tiles);
    for (int64_t i = 0; i < SIDE; i++)
        attn__slices_note_none(rows, i);
    kernel->measure(tiles, depth, scale, rows, 0);
}

/* Sets w->multiply_adds for the panels for which an ordinary row fails the test. Returns the number of these panels. */
static int64_t judge_panels(const attn__slices_kernel *kernel, const attn__sliced_weights *w)
{
    attn__slices_rows rows;
    int64_t count = 0;
    memset(w->multiply_adds, 0, (size_t)w->panels * sizeof(bool));
    for (int64_t c = 0; c < w->blocks; c++) {
        if (c == 0 || c + 1 == w->blocks)
            measure_ordinary(kernel, attn__sliced_depth(w, c), &rows);
        for (int64_t i = 0; i < w->panels; i++)
            w->multiply_adds[i] |=
                kernel->decide(&rows, w->bounds + c * w->panels + i, attn__slices_limit(w->k)).multiply_adds != 0;
    }
    for (int64_t i = 0; i < w->panels; i++)
        count += w->multiply_adds[i];
    return count;
}

static void join_panels(const attn__sliced_weights *w)
{
    for (int64_t c = 0; c < w->blocks; c++) {
        const attn__slices_panel *first = NULL;
        for (int64_t i = 0; i < w->panels; i++) {
            const attn__slices_panel *panel = w->bounds + c * w->panels + i;
            if (w->multiply_adds[i])
                continue;
            if (!first)
                w->joined[c] = *(first = panel);
            attn__slices_panel_join(w->joined + c, panel);
        }
    }
}

bool attn__sliced_pack(const attn__slices_kernel *kernel, const attn__gemm_operand *x, int64_t n, int64_t k,
                       int threads, void *data)
{
    enum { WORTH = 4 }; /* slices are faster if at most 1/WORTH of the panels need multiply-adds */
    packing t = {kernel, x, attn__sliced_weights_in(data, n, k)};
    attn__parallel_items(threads, attn__ceil_div(t.w.panels, TOGETHER), pack_item, &t);
    if (WORTH * judge_panels(kernel, &t.w) > t.w.panels)
        return false;
    join_panels(&t.w);
    return true;
}
