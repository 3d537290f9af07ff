/* SPDX-License-Identifier: MIT
 * Computes the rows of sliced.h that slices compute.  A work item is some rows of A times some groups of panels of W.
 * During a stretch of k, the tiles of A stay in L2. Each panel of W stays in L1 until all rows have used it.  A C tile
 * of 16 rows by 16 columns is summed over a K block.  While AMX multiplies, the thread converts the previous C tile to
 * floats and stores the previous group of panels with its epilogue. This work is divided into small portions that do
 * not delay AMX's instructions. */
#include "gemm/sliced.h"

#include <string.h>

enum { SIDE = ATTN__SLICES_SIDE, DEPTH = ATTN__SLICES_DEPTH, LINE = 64 /* bytes */ };
enum { GROUP = ATTN__SLICED_GROUP, WIDTH = ATTN__SLICED_WIDTH };
enum { STORED = WIDTH / 2 }; /* columns of a row that are stored per portion */

/* Progress of adding a group's sums to C, row by row. */
typedef struct storing {
    const float *sums;                  /* [height][WIDTH]: sums of the group */
    int64_t row, column, height, width; /* row: index in the part's order; height, width: size of the group */
    int64_t stored, at;                 /* stored: number of finished rows; at: next column of the current row */
} storing;

/* A side task of `due` portions that is spread evenly over `of` calls of a kernel. */
typedef struct chore {
    int64_t due, of, at_once, count;
} chore;

typedef struct worker {
    attn__slices_hook hook; /* must be the first member */
    attn__sliced_part *t;
    float *sums;
    int64_t tile, tiles;       /* first tile and number of tiles of the item's rows */
    int64_t group, groups_end; /* the item's groups of panels are [group, groups_end) */
    int64_t panel, chunk, end; /* current panel of W; K blocks [chunk, end) of the current stretch */
    attn__slices_state state;
    storing before; /* the previous group, whose sums are being stored */
    int64_t turn;   /* which of two buffers of sums the current group uses */
    chore store;
    const int8_t *fetched, *fetch_end; /* the part of the next panel of W that is not prefetched yet */
    int64_t fetches;                   /* cache lines per prefetch portion */
} worker;

/* --------------------------------------------------------------------------------------------------- to C */

void attn__sliced_store(const attn__sliced_part *t, const float *x, int64_t place, int64_t column, int64_t width)
{
    const attn__gemm_problem *g = &t->p->g;
    const bool *skipped = t->p->w.multiply_adds;
    int64_t row = t->first + t->order[place];
    float *y = (float *)g->c + row * g->ldc + column;
    for (int64_t i = 0, end; i < width; i = end) {
        bool skips = skipped[(column + i) / SIDE];
        for (end = i; end < width && skipped[(column + end) / SIDE] == skips;)
            end = attn__min(width, attn__round_up(column + end + 1, SIDE) - column);
        if (skips)
            continue;
        t->p->kernel->store(x + i, y + i, end - i, g->add);
        if (g->finish)
            g->finish(g->user, y + i, row, column + i, end - i);
    }
}

/* Stores a portion of a group. It also prefetches the lines of C for the next portions, because C is not in a cache and
 * a store would wait for its line. */
static void store_some(const attn__sliced_part *t, storing *s)
{
    enum { AHEAD = 2, EACH = LINE / sizeof(float) };
    int64_t n = attn__min(s->width - s->at, STORED);
    if (s->stored + AHEAD < s->height) {
        int64_t row = t->first + t->order[s->row + s->stored + AHEAD];
        const float *next = (const float *)t->p->g.c + row * t->p->g.ldc + s->column + s->at;
        for (int64_t i = 0; i < n; i += EACH)
            __builtin_prefetch(next + i, 1, 3);
    }
    attn__sliced_store(t, s->sums + s->stored * WIDTH + s->at, s->row + s->stored, s->column + s->at, n);
    s->at += n;
    if (s->at == s->width) {
        s->at = 0;
        s->stored++;
    }
}

static void finish_storing(const attn__sliced_part *t, storing *s)
{
    while (s->stored < s->height)
        store_some(t, s);
}

/* ----------------------------------------------------------------------------------------- between products */

static chore chore_of(int64_t due, int64_t calls)
{
    return (chore){due, calls, attn__ceil_div(due, attn__max(calls, 1)), 0};
}

/* Returns how many portions of a chore this call must do: 0 or `at_once`. The portions are spread evenly over the
 * calls. */
static int64_t now_due(chore *c)
{
    c->count += c->due;
    if (c->count < c->of)
        return 0;
    c->count -= c->of * c->at_once;
    return c->at_once;
}

/* Prefetches a part of the next panel of W, because W is not in a cache. */
static void fetch_some(worker *w)
{
    int64_t n = attn__min(w->fetch_end - w->fetched, w->fetches * LINE);
    for (int64_t i = 0; i < n; i += LINE)
        __builtin_prefetch(w->fetched + i, 0, 2);
    w->fetched += n;
}

static void do_some(attn__slices_hook *hook)
{
    worker *w = (worker *)hook;
    fetch_some(w);
    for (int64_t i = now_due(&w->store); i > 0 && w->before.stored < w->before.height; i--)
        store_some(w->t, &w->before);
}

/* Returns the next panel from `panel` on that slices compute. Returns weights->panels after the item's last panel. */
static int64_t panel_from(const worker *w, int64_t panel)
{
    const attn__sliced_weights *weights = &w->t->p->w;
    int64_t end = attn__min(w->groups_end * GROUP, weights->panels);
    while (panel < end && weights->multiply_adds[panel])
        panel++;
    return panel < end ? panel : weights->panels;
}

/* Sets the first tiles of the next run in `args`, and the panel of W that fetch_some prefetches. */
static void look_ahead(worker *w, int64_t c, attn__slices_args *args)
{
    const attn__sliced_weights *weights = &w->t->p->w;
    w->fetched = w->fetch_end = NULL;
    bool more = c + 1 < w->end;
    int64_t panel = more ? w->panel : panel_from(w, w->panel + 1), chunk = more ? c + 1 : w->chunk;
    if (panel == weights->panels)
        return;
    args->next_a = attn__sliced_tiles_of_a(w->t, w->tile, chunk);
    args->next_b = attn__sliced_tiles_of_w(weights, panel, chunk);
    w->fetched = args->next_b;
    w->fetch_end = w->fetched + args->steps * ATTN__SLICES_STEP;
    w->fetches = attn__ceil_div(ATTN__SLICES_STEP / LINE, args->m);
}

/* ---------------------------------------------------------------------------------------------------- sums */

/* Returns the sums of a group, [height][WIDTH]. */
static float *sums_of(const worker *w, int64_t group)
{
    int64_t at = w->t->p->once ? w->turn : group - w->group;
    return w->sums + at * ATTN__SLICED_BLOCK_ROWS * WIDTH;
}

static void sum_panel(worker *w, int64_t c, float *sums)
{
    const attn__sliced_part *t = w->t;
    const attn__sliced_weights *weights = &t->p->w;
    int64_t depth = attn__sliced_depth(weights, c);
    attn__slices_args args = {.m = w->tiles,
                              .steps = attn__ceil_div(depth, DEPTH),
                              .a = attn__sliced_tiles_of_a(t, w->tile, c),
                              .b = attn__sliced_tiles_of_w(weights, w->panel, c),
                              .block = attn__sliced_tiles(SIDE, depth),
                              .rows = attn__sliced_measures(t, w->tile, c),
                              .panel = weights->bounds + c * weights->panels + w->panel,
                              .limit = t->p->limit,
                              .add = c > 0,
                              .to = sums + w->panel % GROUP * SIDE,
                              .ld = WIDTH};
    look_ahead(w, c, &args);
    t->p->kernel->run(&args, &w->state, &w->hook);
}

/* Begins to store a group whose sums are complete. The rows are stored later, between the products of the next
 * group. */
static void begin_storing(worker *w, int64_t group, const float *sums)
{
    const attn__sliced_part *t = w->t;
    finish_storing(t, &w->before);
    int64_t row = w->tile * SIDE, column = group * WIDTH;
    int64_t height = attn__min(t->proved - row, w->tiles * SIDE), width = attn__min(t->p->g.n - column, WIDTH);
    w->before = (storing){sums, row, column, height, width, 0, 0};
    int64_t depth = attn__sliced_k(&t->p->w, w->end) - attn__sliced_k(&t->p->w, w->chunk);
    w->store = chore_of(height * attn__ceil_div(width, STORED), attn__ceil_div(depth, DEPTH) * w->tiles * GROUP);
    w->turn ^= 1;
}

static void sum_group(worker *w, int64_t group)
{
    const attn__sliced_plan *p = w->t->p;
    float *sums = sums_of(w, group);
    int64_t end = attn__min((group + 1) * GROUP, p->w.panels);
    if (w->before.sums == sums)
        finish_storing(w->t, &w->before);
    for (w->panel = panel_from(w, group * GROUP); w->panel < end; w->panel = panel_from(w, w->panel + 1))
        for (int64_t c = w->chunk; c < w->end; c++)
            sum_panel(w, c, sums);
    p->kernel->finish(&w->state);
    if (w->end == p->w.blocks)
        begin_storing(w, group, sums);
}

/* Returns the index at which part `i` of `n` begins, if `all` elements are divided. Larger parts come first. */
static int64_t begin_of(int64_t all, int64_t n, int64_t i)
{
    return i * (all / n) + attn__min(i, all % n);
}

static void sum_item(worker *w, int64_t item)
{
    const attn__sliced_part *t = w->t;
    const attn__sliced_weights *weights = &t->p->w;
    int64_t tiles = attn__ceil_div(t->proved, SIDE), groups = attn__ceil_div(weights->panels, GROUP);
    int64_t block = item / t->column_parts, part = item % t->column_parts;
    w->tile = begin_of(tiles, t->row_blocks, block);
    w->tiles = begin_of(tiles, t->row_blocks, block + 1) - w->tile;
    w->group = begin_of(groups, t->column_parts, part);
    w->groups_end = begin_of(groups, t->column_parts, part + 1);
    for (w->chunk = 0; w->chunk < weights->blocks; w->chunk = w->end) {
        w->end = attn__min(w->chunk + ATTN__SLICED_STRETCH, weights->blocks);
        for (int64_t group = w->group; group < w->groups_end; group++)
            sum_group(w, group);
    }
}

/* Runs items of the part on one thread until no item is left. */
static void work(void *user, int64_t index, int thread)
{
    attn__sliced_part *t = user;
    worker w = {.hook = {do_some}, .t = t};
    (void)thread;
    w.sums = t->sums + index * t->p->kept * ATTN__SLICED_BLOCK_ROWS * WIDTH;
    t->p->kernel->begin();
    for (int64_t item; (item = attn__share_take(&t->shares, (int)index)) >= 0;)
        sum_item(&w, item);
    finish_storing(t, &w.before);
    t->p->kernel->end();
}

/* Each thread gets the same number of row blocks, whose sizes differ by at most one tile. If there are few rows,
 * columns are divided too. */
void attn__sliced_divide(const attn__sliced_plan *p, int64_t rows, int64_t *row_blocks, int64_t *column_parts)
{
    int64_t tiles = attn__ceil_div(rows, SIDE), most = ATTN__SLICED_BLOCK_ROWS / SIDE;
    *row_blocks = attn__min(p->threads * attn__ceil_div(attn__ceil_div(tiles, p->threads), most), tiles);
    *column_parts = attn__min(attn__ceil_div(p->threads, *row_blocks), attn__ceil_div(p->w.panels, GROUP));
}

void attn__sliced_multiply(attn__sliced_part *t)
{
    if (t->proved == 0)
        return;
    attn__sliced_divide(t->p, t->proved, &t->row_blocks, &t->column_parts);
    attn__share_out(&t->shares, t->p->threads, t->row_blocks * t->column_parts);
    attn__parallel_items(t->p->threads, t->p->threads, work, t);
}
