/* SPDX-License-Identifier: MIT
 * The sums of gemm_slices.h.  A thread takes block after block: some rows of A, packed so that they stay in the second
 * cache, by panels of B, which stream past and stay in the first while all rows meet them.  A C tile of 16 rows by 16
 * columns is summed over a K block.  Between its products, while AMX works, the C tile before it becomes floats and
 * is stored, with the activation, and the next block's rows are quantized and measured, in portions so small that they
 * do not keep AMX's instructions out of the processor's window. */
#include "tensor/gemm_slices_work.h"

#include <math.h>
#include <string.h>

enum { STORED = WIDTH / 2, CUT = 2 * DEPTH, LINE = 64 }; /* columns of portions; bytes */

/* A group of panels on its way to C, row after row. */
typedef struct storing {
    const float *sums;                  /* [height][WIDTH] */
    int64_t row, column, height, width; /* its place in C */
    int64_t stored, at;                 /* rows; columns of the next */
} storing;

/* Some rows of A, and some chunks of k. */
typedef struct block {
    int64_t item, row, height; /* height 0: none is left */
    int64_t chunk, end;
    int8_t *tiles;             /* of 16 rows after 16 rows, and that for each K block */
    attn__slices_rows *rows;   /* [K block - first][C tiles of an item] */
    int64_t count, packed, at; /* rows to be packed; done; the K block of the next that is: */
    int64_t column;            /* how much of it; nothing has a scale below 0 */
    attn__slices_scale scale;
} block;

/* How a chore is spread over calls. */
typedef struct chore {
    int64_t due, of, at_once, count;
} chore;

/* A thread's work.  `next` is packed beside the products of `now`. */
typedef struct worker {
    attn__slices_hook hook; /* the first member */
    attn__slices_product *p;
    int thread;
    float *sums;
    block now, next;
    attn__slices_state state;
    storing group; /* the group before */
    int64_t panel, chunk;
    int64_t turn; /* of the groups' sums */
    chore store, pack;
    const int8_t *fetched, *fetch_end; /* of the panel that is next */
    int64_t fetches;                   /* lines in a portion */
} worker;

/* --------------------------------------------------------------------------------------------------- to C */

/* Whether a row's columns of a panel are to stay as they are now. */
static bool goes_again(const attn__slices_product *p, int64_t row, int64_t column)
{
    return p->again[row / SIDE * p->panels + column / SIDE] >> row % SIDE & 1;
}

/* Columns of a row, all but those that go to multiply-adds. */
static void store_columns(const attn__slices_product *p, const float *x, int64_t row, int64_t column, int64_t width)
{
    const attn__gemm_args *g = p->g;
    float *y = (float *)g->c + row * g->ldc + column;
    for (int64_t i = 0, n; i < width; i += n) {
        for (n = 0; i + n < width && !goes_again(p, row, column + i + n);)
            n += attn__least(width - i - n, SIDE);
        if (g->activation == ATTN_ACTIVATION_IDENTITY)
            p->kernel->store(x + i, y + i, n, g->add);
        else
            p->rows->run[ATTN__ELEMENTWISE_ACTIVATE](
                &(attn__elementwise_args){.x = x + i, .y = y + i, .kind = (int)g->activation}, 0, n);
        if (i + n < width)
            n += SIDE;
    }
}

/* Lines of C are far away, and a store waits for its line: they are asked for meanwhile. */
static void store_some(const attn__slices_product *p, storing *t)
{
    enum { AHEAD = 2, EACH = LINE / sizeof(float) };
    int64_t n = attn__least(t->width - t->at, STORED);
    if (t->stored + AHEAD < t->height)
        for (int64_t i = 0; i < n; i += EACH)
            __builtin_prefetch((float *)p->g->c + (t->row + t->stored + AHEAD) * p->g->ldc + t->column + t->at + i, 1,
                               3);
    store_columns(p, t->sums + t->stored * WIDTH + t->at, t->row + t->stored, t->column + t->at, n);
    t->at += n;
    if (t->at == t->width) {
        t->at = 0;
        t->stored++;
    }
}

static void finish_group(const attn__slices_product *p, storing *t)
{
    while (t->stored < t->height)
        store_some(p, t);
}

/* -------------------------------------------------------------------------------------------------- from A */

static int64_t k_of(const attn__slices_product *p, int64_t chunk)
{
    return attn__gemm_slices_k(&p->blocks, chunk);
}

static int8_t *tiles_of(const attn__slices_product *p, const block *t, int64_t chunk)
{
    return t->tiles + attn__gemm_slices_bytes(p->height, k_of(p, chunk) - k_of(p, t->chunk));
}

static attn__slices_rows *rows_of(const attn__slices_product *p, const block *t, int64_t chunk)
{
    return t->rows + (chunk - t->chunk) * (p->height / SIDE);
}

/* The first row of an item, those with a square more first; m where there is none. */
static int64_t row_of(const attn__slices_product *p, int64_t item)
{
    int64_t squares = attn__pieces(p->g->m, SIDE), square = item * (squares / p->items);
    return attn__least((square + attn__least(item, squares % p->items)) * SIDE, p->g->m);
}

/* What comes after a block: more of k, or the rows that are next in turn. */
static block block_after(worker *w, const block *t)
{
    attn__slices_product *p = w->p;
    const attn__gemm_args *g = p->g;
    block next = {.item = t->item, .chunk = t->end, .column = -1};
    if (next.chunk >= p->end) {
        next.item = attn__share_take(&p->shares, w->thread);
        next.item = next.item < 0 ? p->items : next.item;
        next.chunk = p->begin;
    }
    next.end = attn__least(next.chunk + STRETCH, p->end);
    next.at = next.chunk;
    next.row = row_of(p, next.item);
    next.height = row_of(p, next.item + 1) - next.row;
    int8_t *one = p->a + (size_t)(2 * w->thread) * p->a_step;
    next.tiles = t->tiles == one ? one + p->a_step : one;
    next.rows = (attn__slices_rows *)(void *)tiles_of(p, &next, next.end);
    next.count = g->transpose_a ? 0 : next.height;
    for (int64_t c = next.chunk; c < next.end; c++)
        for (int64_t i = next.height; i < attn__round_up(next.height, SIDE); i++)
            attn__slices_note_none(rows_of(p, &next, c) + i / SIDE, i % SIDE);
    return next;
}

/* Then the next K block of the same row, or the next row. */
static void next_row(block *t)
{
    t->column = -1;
    if (++t->at == t->end) {
        t->at = t->chunk;
        t->packed++;
    }
}

/* For the row and the K block that are next: the scale, or some columns (those of a later row are prefetched), or the
 * bounds. */
static void pack_some(const attn__slices_product *p, block *t)
{
    enum { AHEAD = 2, EACH = LINE / sizeof(float) };
    int64_t k = k_of(p, t->at), depth = k_of(p, t->at + 1) - k;
    const float *x = (const float *)p->g->a + (t->row + t->packed) * p->g->lda + k;
    int8_t *tiles = tiles_of(p, t, t->at) + t->packed / SIDE * attn__gemm_slices_bytes(SIDE, depth);
    tiles += t->packed % SIDE * DEPTH;
    if (t->column < 0) {
        t->scale = p->kernel->scale(x, depth);
        t->column = 0;
        return;
    }
    if (t->column >= depth) {
        p->kernel->measure(tiles, depth, t->scale, rows_of(p, t, t->at) + t->packed / SIDE, t->packed % SIDE);
        next_row(t);
        return;
    }
    int64_t n = attn__least(depth - t->column, CUT);
    x += t->column;
    for (int64_t i = 0; i < n && t->packed + AHEAD < t->count; i += EACH)
        __builtin_prefetch(x + AHEAD * p->g->lda + i, 0, 3);
    p->kernel->quantize(x, t->scale.scale, n, tiles + attn__gemm_slices_bytes(SIDE, t->column));
    t->column += n;
}

/* Columns of A are packed at once, as they must be transposed. */
static void finish_rows(const attn__slices_product *p, block *t, int thread)
{
    for (int64_t c = t->chunk; c < t->end && p->g->transpose_a; c++)
        attn__gemm_slices_transpose_a(p, t->row, t->height, c, thread, tiles_of(p, t, c), rows_of(p, t, c));
    while (t->packed < t->count)
        pack_some(p, t);
}

/* ------------------------------------------------------------------------------------------------- squares */

static chore chore_of(int64_t due, int64_t calls)
{
    return (chore){due, calls, attn__pieces(due, attn__most(calls, 1)), 0};
}

/* How much of it a call does, so that it is spread evenly. */
static int64_t now_due(chore *c)
{
    c->count += c->due;
    if (c->count < c->of)
        return 0;
    c->count -= c->of * c->at_once;
    return c->at_once;
}

/* A panel of B is far away when its turn comes; it is asked for meanwhile. */
static void fetch_some(worker *w)
{
    int64_t n = attn__least(w->fetch_end - w->fetched, w->fetches * LINE);
    for (int64_t i = 0; i < n; i += LINE)
        __builtin_prefetch(w->fetched + i, 0, 2);
    w->fetched += n;
}

static void do_some(attn__slices_hook *hook)
{
    worker *w = (worker *)hook;
    fetch_some(w);
    for (int64_t i = now_due(&w->store); i > 0 && w->group.stored < w->group.height; i--)
        store_some(w->p, &w->group);
    for (int64_t i = now_due(&w->pack); i > 0 && w->next.packed < w->next.count; i--)
        pack_some(w->p, &w->next);
}

/* Those of a block are spread over the block before. */
static void spread_packing(worker *w)
{
    const attn__slices_product *p = w->p;
    int64_t steps = attn__pieces(k_of(p, w->now.end) - k_of(p, w->now.chunk), DEPTH);
    int64_t parts = 0;
    for (int64_t c = w->next.chunk; c < w->next.end; c++)
        parts += 2 + attn__pieces(k_of(p, c + 1) - k_of(p, c), CUT);
    w->pack = chore_of(w->next.count * parts, steps * attn__pieces(w->now.height, SIDE) * p->panels);
}

/* [height][WIDTH] of the group of this panel. */
static float *sums_of(const worker *w)
{
    const attn__slices_product *p = w->p;
    int64_t item = p->of_items ? w->now.item : 0, group = p->once ? w->turn : w->panel / GROUP;
    return w->sums + (item * p->kept + group) * p->height * WIDTH;
}

/* What the run after this one needs: its first tiles, and to have its panel of B near. */
static void look_ahead(worker *w, attn__slices_args *args)
{
    w->fetched = w->fetch_end = NULL;
    bool more = w->chunk + 1 < w->now.end;
    int64_t panel = more ? w->panel : w->panel + 1, chunk = more ? w->chunk + 1 : w->now.chunk;
    if (panel == w->p->panels)
        return;
    args->next_a = tiles_of(w->p, &w->now, chunk);
    args->next_b = attn__gemm_slices_tiles_of_b(w->p, panel, chunk);
    w->fetched = args->next_b;
    w->fetch_end = w->fetched + args->steps * ATTN__SLICES_STEP;
    w->fetches = attn__pieces(ATTN__SLICES_STEP / LINE, args->m);
}

static void sum_panel(worker *w)
{
    const attn__slices_product *p = w->p;
    const block *t = &w->now;
    int64_t depth = k_of(p, w->chunk + 1) - k_of(p, w->chunk), column = w->panel * SIDE;
    float *sums = sums_of(w) + w->panel % GROUP * SIDE;
    bool first = w->chunk == 0;
    attn__slices_args args = {.m = attn__pieces(t->height, SIDE),
                              .steps = attn__pieces(depth, DEPTH),
                              .a = tiles_of(p, t, w->chunk),
                              .b = attn__gemm_slices_tiles_of_b(p, w->panel, w->chunk),
                              .block = attn__gemm_slices_bytes(SIDE, depth),
                              .rows = rows_of(p, t, w->chunk),
                              .panel = p->b.panels + (w->chunk - p->begin) * p->b.columns / SIDE + w->panel,
                              .limit = p->limit,
                              .before = !first       ? sums
                                        : p->g->bias ? p->padded + column
                                                     : NULL,
                              .before_ld = first ? 0 : WIDTH,
                              .to = sums,
                              .ld = WIDTH,
                              .again = p->again + t->row / SIDE * p->panels + w->panel,
                              .again_step = p->panels};
    look_ahead(w, &args);
    p->kernel->run(&args, &w->state, &w->hook);
}

/* The group of panels from w->panel on, whose sums are complete, goes to C beside the next one's products. */
static void begin_storing(worker *w, int64_t group)
{
    const attn__slices_product *p = w->p;
    finish_group(p, &w->group);
    int64_t column = group * WIDTH;
    w->group = (storing){sums_of(w), w->now.row, column, w->now.height, attn__least(p->g->n - column, WIDTH), 0, 0};
    int64_t steps = attn__pieces(k_of(p, w->now.end) - k_of(p, w->now.chunk), DEPTH);
    w->store = chore_of(w->now.height * attn__pieces(w->group.width, STORED),
                        steps * attn__pieces(w->now.height, SIDE) * GROUP);
    w->turn ^= 1;
}

static void sum_block(worker *w)
{
    const attn__slices_product *p = w->p;
    spread_packing(w);
    for (int64_t group = 0; group * GROUP < p->panels; group++) {
        int64_t end = attn__least((group + 1) * GROUP, p->panels);
        w->panel = group * GROUP;
        if (w->group.sums == sums_of(w))
            finish_group(p, &w->group);
        for (; w->panel < end; w->panel++)
            for (w->chunk = w->now.chunk; w->chunk < w->now.end; w->chunk++)
                sum_panel(w);
        w->panel = group * GROUP;
        p->kernel->finish(&w->state);
        if (w->now.end == p->blocks.count)
            begin_storing(w, group);
    }
}

void attn__gemm_slices_work(void *product, int64_t index, int thread)
{
    attn__slices_product *p = product;
    worker w = {.hook = {do_some}, .p = p, .thread = (int)index};
    (void)thread;
    w.sums = p->sums + (p->of_items ? 0 : index * p->kept * p->height * WIDTH);
    w.next = block_after(&w, &(block){.end = p->end});
    p->kernel->begin();
    for (finish_rows(p, &w.next, w.thread); w.next.height > 0; finish_rows(p, &w.next, w.thread)) {
        w.now = w.next;
        w.next = block_after(&w, &w.now);
        sum_block(&w);
    }
    finish_group(p, &w.group);
    p->kernel->end();
}
