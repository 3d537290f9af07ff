/* SPDX-License-Identifier: MIT
 * The sums of gemm_parts.h.  A thread takes block after block: some rows of A, packed so that they stay in the second
 * cache, by panels of B, which stream past.  A square of 32 rows by 32 columns is summed over all that is packed of k.
 * Beside its products, while the matrix unit works, the square before it is stored (what is finite, with the
 * activation, to where it belongs), and the next block's rows are packed, both in portions so small that they do not
 * keep the unit's instructions out of the processor's window. */
#include "tensor/gemm_parts_work.h"

/* A square on its way to C: its rows are looked at, then stored, 16 after 16. */
typedef struct finishing {
    const attn__parts_product *p;
    float *sums;
    int64_t row, column, height, width; /* its place in C; within C */
    int64_t looked, stored;             /* rows */
    bool odd;                           /* of those looked at, some */
} finishing;

/* Rows that are looked at together; portions of all that. */
enum { LOOK = 4, PORTIONS = PANEL / LOOK + PANEL };

/* Some rows of A, and some of k. */
typedef struct block {
    int64_t item, row, height; /* height 0: none is left */
    int64_t k, depth;
    attn__parts_rows from;
    attn__parts_side a;
    int64_t rows, packed, column; /* to be packed; done; columns of the next that are */
} block;

/* A thread's work.  `next` is packed beside the products of `now`. */
typedef struct worker {
    attn__parts_beside beside; /* the first member */
    attn__parts_product *p;
    int thread;
    bool once; /* two squares of sums, in turns */
    float *sums;
    block now, next;
    finishing square;
    /* How often the unit's products leave time in a square, how many portions are stored together, columns of A
     * that are packed. */
    int64_t calls, at_once, columns;
    int64_t stores; /* see is_due */
} worker;

/* --------------------------------------------------------------------------------------------------- to C */

static float *row_of_c(const finishing *f, int64_t i)
{
    return (float *)f->p->g->c + (f->row + i) * f->p->g->ldc + f->column;
}

/* A number of A that is not finite makes all sums of its row so.  Rows are stored, or left to be done again, by 16,
 * which no number of threads changes: those beside them keep their bits.  Lines of C are far away, and a store waits
 * for its line: they are asked for meanwhile. */
static void look_at_rows(finishing *f)
{
    const attn__parts_product *p = f->p;
    for (int64_t i = f->looked; i < attn__least(f->looked + LOOK, f->height); i++) {
        __builtin_prefetch(row_of_c(f, i), 1, 3);
        __builtin_prefetch(row_of_c(f, i) + f->width - 1, 1, 3);
    }
    f->odd |= !p->kernel->finite(f->sums + f->looked * PANEL, LOOK, PANEL, attn__round_up(f->width, SIDE));
    f->looked += LOOK;
    if (f->looked % SIDE != 0)
        return;
    p->odd[(f->row + f->stored) / SIDE * p->panels + f->column / PANEL] = f->odd;
    if (f->odd)
        f->stored = attn__least(f->looked, f->height);
    f->odd = false;
}

static void store_row(const finishing *f, int64_t i)
{
    const attn__gemm_args *g = f->p->g;
    const float *x = f->sums + i * PANEL;
    float *y = row_of_c(f, i);
    if (g->activation == ATTN_IDENTITY)
        f->p->kernel->put(x, y, f->width, g->add);
    else
        f->p->rows->run[ATTN__ROWS_ACTIVATE](&(attn__rows_args){.x = x, .y = y, .kind = (int)g->activation}, 0,
                                             f->width);
}

/* A portion of it. */
static void store_some(finishing *f)
{
    if (f->stored == f->height)
        return;
    if (f->looked % SIDE != 0 || f->stored == f->looked)
        look_at_rows(f);
    else
        store_row(f, f->stored++);
}

static void finish_square(finishing *f)
{
    while (f->stored < f->height)
        store_some(f);
}

/* -------------------------------------------------------------------------------------------------- from A */

/* What comes after a block: more of k, or the rows that are next in turn. */
static block block_after(worker *w, const block *t)
{
    attn__parts_product *p = w->p;
    const attn__gemm_args *g = p->g;
    int64_t length = p->end - p->begin;
    int64_t each = attn__round_up(attn__pieces(length, attn__pieces(length, LONG)), ATTN__PARTS_DEPTH);
    block next = {.item = t->item, .k = t->k + t->depth};
    if (next.k >= p->end) {
        next.item = atomic_fetch_add(&p->taken, 1);
        next.k = p->begin;
    }
    next.row = next.item * p->height;
    next.height = attn__most(attn__least(g->m - next.row, p->height), 0);
    next.depth = attn__least(p->end - next.k, each);
    uint16_t *other = p->a + (size_t)(2 * w->thread) * p->a_step;
    next.a = attn__parts_packed(t->a.data == other ? other + p->a_step : other,
                                attn__pieces(next.depth, ATTN__PARTS_DEPTH), PARTS);
    next.from = (attn__parts_rows){
        (const float *)g->a + next.row * g->lda + next.k, ATTN_F32, NULL, g->lda, next.height, next.depth, 1.0f, PARTS};
    next.rows = g->transpose_a ? 0 : attn__round_up(next.height, SIDE);
    return next;
}

/* Some columns of a row, and the same ones of a later row into the cache. */
static void pack_some(const attn__parts_product *p, block *t, int64_t columns)
{
    enum { AHEAD = 2, LINE = 16 };
    int64_t end = attn__least(t->column + columns, t->depth);
    if (t->packed + AHEAD < t->height)
        for (int64_t i = t->column; i < end; i += LINE)
            __builtin_prefetch((const float *)t->from.data + (t->packed + AHEAD) * t->from.ld + i, 0, 3);
    p->kernel->split_row(&t->from, &t->a, t->packed, t->column, end);
    t->column = end;
    if (end == t->depth) {
        t->column = 0;
        t->packed++;
    }
}

/* Columns of A are packed at once, as they must be turned. */
static void finish_rows(const attn__parts_product *p, block *t)
{
    if (p->g->transpose_a)
        attn__gemm_parts_turn_a(p, t->row, t->height, t->k, t->depth, &t->a);
    while (t->packed < t->rows)
        pack_some(p, t, t->depth);
}

/* ------------------------------------------------------------------------------------------------- squares */

/* `due` of `of`, spread evenly. */
static bool is_due(int64_t *count, int64_t due, int64_t of)
{
    *count += due;
    bool now = *count >= of;
    *count -= now ? of : 0;
    return now;
}

static void do_some(attn__parts_beside *beside)
{
    worker *w = (worker *)beside;
    if (is_due(&w->stores, PORTIONS, w->calls)) {
        for (int64_t i = 0; i < w->at_once; i++)
            store_some(&w->square);
    } else if (w->next.packed < w->next.rows) {
        pack_some(w->p, &w->next, w->columns);
    }
}

/* A square's chores are spread over all products of the next one, and those of a block over the block before; six
 * calls go by for 32 of k. */
static void spread_chores(worker *w)
{
    w->calls = 6 * attn__pieces(w->now.depth, ATTN__PARTS_DEPTH);
    w->at_once = attn__pieces(PORTIONS, w->calls);
    int64_t left = (w->calls - attn__least(PORTIONS, w->calls / 2)) * attn__pieces(w->now.height, PANEL) * w->p->panels;
    w->columns = attn__round_up(attn__pieces(w->next.rows * w->next.depth, left), ATTN__PARTS_DEPTH);
}

static float *square_of(const worker *w, int64_t m, int64_t panel)
{
    if (w->once)
        return w->square.sums == w->sums ? w->sums + SQUARE : w->sums;
    int64_t at = m / PANEL + panel * attn__pieces(w->p->height, PANEL);
    return w->sums + at * SQUARE + (w->p->of_items ? w->now.item * w->p->squares * SQUARE : 0);
}

static void sum_square(worker *w, int64_t m, int64_t panel)
{
    const attn__parts_product *p = w->p;
    const block *t = &w->now;
    int64_t column = panel * PANEL;
    finishing next = {.p = p,
                      .sums = square_of(w, m, panel),
                      .row = t->row + m,
                      .column = column,
                      .height = attn__least(t->height - m, PANEL),
                      .width = attn__least(p->g->n - column, PANEL)};
    attn__parts_args args = {.m = attn__pieces(next.height, SIDE),
                             .n = attn__pieces(next.width, SIDE),
                             .k = attn__pieces(t->depth, ATTN__PARTS_DEPTH),
                             .parts = PARTS,
                             .a = t->a,
                             .b = p->b,
                             .c = next.sums,
                             .ldc = PANEL,
                             .accumulate = t->k > 0};
    args.a.data += m / SIDE * t->a.block;
    args.b.data += column / SIDE * p->b.block + (t->k - p->begin) / ATTN__PARTS_DEPTH * p->b.step;
    args.column_bias = p->g->bias && t->k == 0 ? p->padded + column : NULL;
    if (w->square.sums == next.sums)
        finish_square(&w->square);
    p->kernel->run_beside(&args, &w->beside);
    finish_square(&w->square);
    if (t->k + t->depth == p->g->k)
        w->square = next;
}

void attn__gemm_parts_work(void *product, int64_t index, int thread)
{
    attn__parts_product *p = product;
    worker w = {.beside.portion = do_some, .p = p, .thread = (int)index, .once = p->once};
    (void)thread;
    w.sums = p->sums + (p->of_items ? 0 : index * p->squares * SQUARE);
    w.next = block_after(&w, &(block){.k = p->end});
    p->kernel->begin();
    for (finish_rows(p, &w.next); w.next.height > 0; finish_rows(p, &w.next)) {
        w.now = w.next;
        w.next = block_after(&w, &w.now);
        spread_chores(&w);
        for (int64_t panel = 0; panel < p->panels; panel++)
            for (int64_t m = 0; m < w.now.height; m += PANEL)
                sum_square(&w, m, panel);
    }
    finish_square(&w.square);
    p->kernel->end();
}
