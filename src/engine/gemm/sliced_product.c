/* SPDX-License-Identifier: MIT
 * Runs the products of sliced.h. It decides which rows are computed by slices. It computes the other rows by
 * multiply-adds. */
#include "gemm/sliced.h"

#include <string.h>

enum { SIDE = ATTN__SLICES_SIDE, DEPTH = ATTN__SLICES_DEPTH, TILE = ATTN__SLICES_TILE, LINE = 64 /* bytes */ };

/* ---------------------------------------------------------------------------------------------------- plan */

static size_t lines(int64_t count, size_t each)
{
    return (size_t)attn__round_up(count * (int64_t)each, LINE);
}

/* Gathers the rows of A that multiply-adds compute. */
static void gather_rows(const void *source, int64_t batch, int64_t row, int64_t rows, int64_t column, int64_t columns,
                        int64_t ld, void *to)
{
    const attn__sliced_part *t = source;
    const attn__gemm_operand *a = &t->p->g.a;
    int64_t end = attn__round_up(columns, SIDE);
    (void)batch;
    for (int64_t i = 0; i < rows; i++) {
        float *y = (float *)to + i * ld;
        memcpy(y, (const float *)a->data + (t->first + t->order[t->proved + row + i]) * a->outer + column,
               (size_t)columns * sizeof *y);
        memset(y + columns, 0, (size_t)(end - columns) * sizeof *y);
    }
}

/* Finds the next range of columns [*first, *end) that multiply-adds compute for all rows. Returns false if there is
 * none. */
static bool next_columns(const attn__sliced_weights *w, int64_t *first, int64_t *end)
{
    int64_t panel = *end / SIDE + (*end % SIDE != 0);
    while (panel < w->panels && !w->multiply_adds[panel])
        panel++;
    *first = panel * SIDE;
    while (panel < w->panels && w->multiply_adds[panel])
        panel++;
    *end = attn__min(panel * SIDE, w->n);
    return *first < w->n;
}

/* Plans the product of columns [first, end) for all rows by multiply-adds. */
static attn__gemm_plan plan_columns(const attn__sliced_plan *p, int64_t first, int64_t end)
{
    attn__gemm_plan plan;
    attn__gemm_problem g = p->g;
    g.n = end - first;
    g.b.data = (const float *)g.b.data + first * g.b.outer;
    g.c = (float *)g.c + first;
    attn__gemm_plan_make(&plan, &g, p->isa, p->threads);
    return plan;
}

/* Returns how many rows are processed at a time. Their slices must fit in L3. The number is large, because W is packed
 * again for the rows that multiply-adds compute. */
static int64_t rows_at_once(int64_t m, int threads)
{
    enum { ROWS = 1024 };
    int64_t most = attn__max(ROWS, threads * (int64_t)ATTN__SLICED_BLOCK_ROWS);
    return attn__round_up(attn__ceil_div(m, attn__ceil_div(m, most)), SIDE);
}

static void size_workspace(attn__sliced_plan *p)
{
    const attn__sliced_weights *w = &p->w;
    int64_t blocks, parts, tiles = p->rows / SIDE, groups = attn__ceil_div(w->panels, ATTN__SLICED_GROUP);
    attn__sliced_divide(p, p->rows, &blocks, &parts);
    p->once = w->blocks <= ATTN__SLICED_STRETCH;
    p->kept = p->once ? 2 : attn__ceil_div(groups, parts);
    p->index = lines(p->rows, sizeof(int32_t)) + lines(tiles, sizeof(uint16_t));
    p->a = lines(attn__sliced_tiles(p->rows, w->k), 1);
    p->measures = lines(w->blocks * tiles, sizeof(attn__slices_rows));
    p->sums = lines(p->threads * p->kept * ATTN__SLICED_BLOCK_ROWS * ATTN__SLICED_WIDTH, sizeof(float));
    p->redone = lines(attn__min(p->rows, p->g.m) * w->n, sizeof(float)) + attn__gemm_workspace(&p->rest);
    for (int64_t first, end = 0; next_columns(w, &first, &end);) {
        attn__gemm_plan columns = plan_columns(p, first, end);
        p->columns = (size_t)attn__max((int64_t)p->columns, (int64_t)attn__gemm_workspace(&columns));
    }
}

void attn__sliced_plan_make(attn__sliced_plan *p, const attn__gemm_problem *problem, const attn__slices_kernel *kernel,
                            const void *weights, attn__isa isa, int threads)
{
    *p = (attn__sliced_plan){.g = *problem,
                             .kernel = kernel,
                             .w = attn__sliced_weights_in((void *)(uintptr_t)weights, problem->n, problem->k),
                             .isa = isa,
                             .threads = threads,
                             .limit = attn__slices_limit(problem->k)};
    p->rows = rows_at_once(problem->m, threads);
    attn__gemm_problem rest = *problem;
    rest.m = attn__min(p->rows, problem->m);
    rest.a = (attn__gemm_operand){.inner = 1, .gather = gather_rows};
    rest.ldc = problem->n;
    rest.add = false;
    attn__gemm_plan_make(&p->rest, &rest, isa, threads);
    size_workspace(p);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t attn__sliced_workspace(const attn__sliced_plan *p)
{
    return larger(p->index + larger(p->a + p->measures + p->sums, p->redone), p->columns);
}

/* ------------------------------------------------------------------------------------------------ deciding */

/* Returns the rows of a tile that need multiply-adds in K block c, as a bit mask. Panels that multiply-adds compute for
 * all rows are not tested. */
static uint16_t unproved(const attn__sliced_plan *p, const attn__slices_rows *rows, int64_t c)
{
    const attn__sliced_weights *w = &p->w;
    uint16_t all = p->kernel->decide(rows, w->joined + c, p->limit).multiply_adds, some = 0;
    for (int64_t i = 0; i < w->panels && all; i++)
        if (!w->multiply_adds[i])
            some |= p->kernel->decide(rows, w->bounds + c * w->panels + i, p->limit).multiply_adds;
    return some;
}

typedef struct quantizing {
    attn__sliced_part *t;
    uint16_t *unproved; /* [tiles of 16 rows]: bit mask of the rows that need multiply-adds */
} quantizing;

static void quantize_tile(void *user, int64_t tile, int thread)
{
    const quantizing *q = user;
    const attn__sliced_part *t = q->t;
    const attn__sliced_plan *p = t->p;
    int64_t rows = attn__min(t->m - tile * SIDE, SIDE);
    (void)thread;
    q->unproved[tile] = 0;
    for (int64_t c = 0; c < p->w.blocks; c++) {
        int64_t depth = attn__sliced_depth(&p->w, c);
        int8_t *tiles = attn__sliced_tiles_of_a(t, tile, c);
        attn__slices_rows *measures = attn__sliced_measures(t, tile, c);
        const float *x =
            (const float *)p->g.a.data + (t->first + tile * SIDE) * p->g.a.outer + attn__sliced_k(&p->w, c);
        for (int64_t i = 0; i < rows; i++, x += p->g.a.outer) {
            attn__slices_scale scale = p->kernel->scale(x, depth);
            p->kernel->quantize(x, scale.scale, depth, tiles + i * DEPTH);
            p->kernel->measure(tiles + i * DEPTH, depth, scale, measures, i);
        }
        for (int64_t i = rows; i < SIDE; i++)
            attn__slices_note_none(measures, i);
        q->unproved[tile] |= unproved(p, measures, c);
    }
}

/* Copies row `from` of A's tiles to row `to` in block c of K: its slices and its measures. */
static void move_row(const attn__sliced_part *t, int64_t c, int64_t from, int64_t to)
{
    const int8_t *x = attn__sliced_tiles_of_a(t, from / SIDE, c) + from % SIDE * DEPTH;
    int8_t *y = attn__sliced_tiles_of_a(t, to / SIDE, c) + to % SIDE * DEPTH;
    int64_t tiles = attn__ceil_div(attn__sliced_depth(&t->p->w, c), DEPTH) * ATTN__SLICES;
    for (int64_t i = 0; i < tiles; i++)
        memcpy(y + i * TILE, x + i * TILE, DEPTH);
    attn__slices_copy_lane(attn__sliced_measures(t, to / SIDE, c), to % SIDE, attn__sliced_measures(t, from / SIDE, c),
                           from % SIDE);
}

/* Moves the rows that slices compute to the front in K block c, so that they fill whole tiles of 16 rows. */
static void compact_block(void *user, int64_t c, int thread)
{
    const attn__sliced_part *t = user;
    (void)thread;
    for (int64_t i = 0; i < t->proved; i++)
        if (t->order[i] != i)
            move_row(t, c, t->order[i], i);
    for (int64_t i = t->proved; i % SIDE != 0; i++)
        attn__slices_note_none(attn__sliced_measures(t, i / SIDE, c), i % SIDE);
}

static void decide(attn__sliced_part *t, uint16_t *unproved)
{
    int64_t at = 0;
    attn__parallel_items(t->p->threads, attn__ceil_div(t->m, SIDE), quantize_tile, &(quantizing){t, unproved});
    for (int proved = 1; proved >= 0; proved--) {
        for (int64_t i = 0; i < t->m; i++)
            if ((unproved[i / SIDE] >> i % SIDE & 1) != proved)
                t->order[at++] = (int32_t)i;
        t->proved = proved ? at : t->proved;
    }
    if (t->proved < t->m)
        attn__parallel_items(t->p->threads, t->p->w.blocks, compact_block, t);
}

/* ------------------------------------------------------------------------------------------- multiply-adds */

static void place_rows(const void *user, void *c, int64_t row, int64_t column, int64_t n)
{
    const attn__sliced_part *t = user;
    attn__sliced_store(t, c, t->proved + row, column, n);
}

static void multiply_rest(attn__sliced_part *t, char *workspace)
{
    attn__gemm_plan plan = t->p->rest;
    if (t->proved == t->m)
        return;
    attn__gemm_plan_shorten(&plan, t->m - t->proved);
    plan.g.a.source = t;
    plan.g.c = workspace;
    plan.g.finish = place_rows;
    plan.g.user = t;
    attn__gemm_run(&plan, workspace + lines(attn__min(t->p->rows, t->p->g.m) * t->p->w.n, sizeof(float)));
}

typedef struct columns_finish {
    const attn__gemm_problem *g;
    int64_t first;
} columns_finish;

static void finish_columns(const void *user, void *c, int64_t row, int64_t column, int64_t n)
{
    const columns_finish *f = user;
    f->g->finish(f->g->user, c, row, f->first + column, n);
}

static void multiply_columns(const attn__sliced_plan *p, void *workspace)
{
    for (int64_t first, end = 0; next_columns(&p->w, &first, &end);) {
        attn__gemm_plan plan = plan_columns(p, first, end);
        columns_finish after = {&p->g, first};
        if (p->g.finish) {
            plan.g.finish = finish_columns;
            plan.g.user = &after;
        }
        attn__gemm_run(&plan, workspace);
    }
}

void attn__sliced_run(const attn__sliced_plan *p, void *workspace)
{
    attn__sliced_part t = {.p = p, .order = workspace};
    uint16_t *unproved = (uint16_t *)(void *)((char *)workspace + lines(p->rows, sizeof(int32_t)));
    char *rest = (char *)workspace + p->index;
    t.a = (int8_t *)rest;
    t.measures = (attn__slices_rows *)(void *)(rest + p->a);
    t.sums = (float *)(void *)(rest + p->a + p->measures);
    for (; t.first < p->g.m; t.first += p->rows) {
        t.m = attn__min(p->g.m - t.first, p->rows);
        decide(&t, unproved);
        attn__sliced_multiply(&t);
        multiply_rest(&t, rest);
    }
    multiply_columns(p, workspace);
}
