/* SPDX-License-Identifier: MIT
 *
 * gemm.c - the loops of a matrix product:
 *
 *     for each round of k:                pack operands that all blocks share (share_a, share_b)
 *       for each block of C:              an item of work for a thread
 *         for each K panel:               pack B's panels, unless they are shared or in place
 *           for each group of rows:       pack A's panels, unless they are shared or in place
 *             for each panel of B:        prefetch the next panel
 *               for each register tile:
 *                 for each K block:       kernel->run
 *             after the last K panel:     finish
 *
 * The sizes of blocks follow from the caches.  While one K panel is multiplied, a group of A's rows stays in L2.  Each
 * register tile reads a panel of B from L2, while the next panel is prefetched from L3.  A tile of C is read and
 * written once per K panel. It stays in L1 between its K blocks.
 */
#include "gemm/gemm.h"

#include "base/caches.h"
#include "base/integers.h"
#include "base/parallel.h"
#include "gemm/kernel.h"

#include <string.h>

/* Maximum number of columns of a block: WIDE_BLOCK if each item packs its part of A, SQUARE_BLOCK if C has to stay in
 * L2. */
enum { WIDE_BLOCK = 1024, SQUARE_BLOCK = 256, LINE = 64 };
/* Gathered rows get padding of GAP elements. Otherwise strides could be powers of two, and rows would share few sets of
 * the L1 cache. */
enum { GAP = 16 };
/* A round is a range of k that is packed for all blocks at once. It takes about ROUND_BYTES in each shared operand, to
 * fit in the L3 cache. A round has at least LEAST_ROUND values of k. */
enum { ROUND_BYTES = 1 << 23, SHORT_ROUND_BYTES = 1 << 21, LEAST_ROUND = 1024 };

typedef attn__gemm_plan plan;

static int64_t size_of_sum(const plan *p)
{
    return p->g.dtype == ATTN_F64 ? (int64_t)sizeof(double) : (int64_t)sizeof(float);
}

static int64_t size_of_operand(const plan *p, const attn__gemm_operand *x)
{
    return p->g.dtype == ATTN_I32 ? (int64_t)sizeof(int8_t) : x->bf16 ? (int64_t)sizeof(uint16_t) : size_of_sum(p);
}

static void *at(const void *data, int64_t index, int64_t size)
{
    return (char *)(uintptr_t)data + index * size;
}

static int64_t row_of_c(const plan *p)
{
    return p->transposed ? 1 : p->g.ldc;
}

static int64_t column_of_c(const plan *p)
{
    return p->transposed ? p->g.ldc : 1;
}

/* Returns the length of the K panel that begins at k0. The last panel ends at `end`. */
static int64_t k_panel_at(const plan *p, int64_t k0, int64_t end)
{
    return attn__min(end - k0, p->k_panel);
}

static int64_t packed_k(const plan *p, int64_t k)
{
    return attn__round_up(k, p->kernel->k_step);
}

/* ------------------------------------------------------------------------------------------------- plan */

/* Plans C^T = B^T A^T instead of C if that is faster. It is faster if C has fewer columns than half a vector. It is
 * also faster if B is gathered in rows along k, because only the first operand can read such rows in place. */
static void transpose_where_better(plan *p)
{
    attn__gemm_problem *g = &p->g;
    int64_t few = p->kernel->lanes / 2;
    bool narrow = g->n < few && g->m > g->n, along_k = g->b.gather && g->b.outer != 1;
    if (g->packed || g->c_bf16 || (!narrow && !along_k) || (g->a.gather && g->a.outer != 1))
        return;
    attn__gemm_operand a = g->a;
    int64_t m = g->m;
    g->a = g->b;
    g->b = a;
    g->m = g->n;
    g->n = m;
    p->transposed = true;
}

/* Each thread gets at least some microseconds of work, because waking a thread takes time. */
static int threads_for(const attn__gemm_problem *g, int threads)
{
    const double worth = 1 << 18;
    double parts = (double)g->m * (double)g->n * (double)g->k * (double)g->batch / worth;
    return parts < threads ? (int)attn__max((int64_t)parts, 1) : threads;
}

static int64_t items_of(const plan *p)
{
    return p->m_blocks * p->n_blocks * (p->g.c_batch ? p->g.batch : 1);
}

/* Returns the length of a K panel of packed weights. All products with these weights use this length. A panel of B
 * takes at most an eighth of L2, and ROWS rows of A take at most half of L2. A panel has at most MOST K blocks, because
 * more K blocks are not faster. */
static int64_t packed_k_panel(const attn__gemm_kernel *kernel, const attn__caches *caches)
{
    enum { ROWS = 128, MOST = 4 };
    int64_t of_b = caches->l2 / 8 / ((int64_t)kernel->columns * kernel->b_size);
    int64_t of_a = caches->l2 / 2 / ((int64_t)ROWS * kernel->a_size);
    int64_t blocks = kernel->begin ? 1 : attn__min(of_a, of_b) / kernel->k_block;
    return attn__max(attn__min(blocks, MOST), 1) * kernel->k_block;
}

enum { FEW_ROWS = 64, FEW_PANELS = 4 };

/* Chooses the length of a K panel. It is one K block if A has few rows or C stays in L2, because a longer panel is not
 * faster then. It is also one K block for gathered operands, because each K panel gathers them again. */
static void choose_k_panel(plan *p)
{
    const attn__gemm_problem *g = &p->g;
    bool c_in_l2 = g->m * g->n * size_of_sum(p) <= p->caches->l2 / 4;
    bool one = g->m <= FEW_ROWS || c_in_l2 || g->a.gather || g->b.gather;
    p->k_panel = one && !g->packed ? p->kernel->k_block : packed_k_panel(p->kernel, p->caches);
}

static int64_t most_k(const plan *p)
{
    return attn__min(p->k_panel, packed_k(p, p->g.k));
}

/* Reports whether a block of C has to stay in L2. AMX needs this, because it multiplies faster than it could read C
 * from L3. A block of C in scratch memory (own_c) also has to stay in L2. */
static bool c_must_fit_l2(const plan *p)
{
    return p->own_c || p->kernel->begin;
}

/* Returns how many rows of A are multiplied at once.  The rows of A take at most half of L2. If the block of C has to
 * stay in L2, the rows of C take at most an eighth of L2. If B has few panels, the rows of A and C together take at
 * most an eighth. */
static int64_t rows_in_l2(const plan *p)
{
    int64_t a_row = most_k(p) * p->kernel->a_size, c_row = attn__min(p->g.n, SQUARE_BLOCK) * size_of_sum(p);
    int64_t rows = p->caches->l2 / 2 / attn__max(a_row, 1);
    if (c_must_fit_l2(p))
        rows = attn__min(rows, p->caches->l2 / 8 / attn__max(c_row, 1));
    else if (p->g.n <= FEW_PANELS * p->kernel->columns)
        rows = attn__min(rows, p->caches->l2 / 8 / attn__max(a_row + c_row, 1));
    return attn__round_up(attn__max(rows, 1), p->kernel->rows);
}

/* Finds the largest number of panels of rows and of columns in a block.  A block has all rows if they nearly fit into
 * L2, or if A is the smaller operand. Each block then packs its own part of B, which takes a quarter of L2. Otherwise,
 * B is packed once for all blocks.  If there are few rows, a block is one panel of B that stays in L1, because packing
 * is much of the work. */
static void most_panels(const plan *p, int64_t *m_each, int64_t *n_each)
{
    enum { MOST_ROWS = 3072 };
    const attn__gemm_problem *g = &p->g;
    bool alone = g->batch == 1 && !g->a.gather && !g->b.gather, amx = p->kernel->begin != NULL;
    bool fit = 4 * g->m <= 5 * p->m_group, smaller = g->m <= attn__min(g->n, MOST_ROWS);
    bool all_rows = !p->own_c && (g->batch > 1 || (!amx && (fit || smaller)));
    bool in_l1 = p->kernel->columns * most_k(p) * p->kernel->b_size <= p->caches->l1;
    bool one_panel = g->m <= FEW_ROWS && g->b.inner == 1 && alone && !g->packed && !amx && in_l1;
    int64_t of_l2 = p->caches->l2 / 4 / attn__max(most_k(p) * p->kernel->b_size, 1);
    int64_t columns = one_panel          ? p->kernel->columns
                      : c_must_fit_l2(p) ? attn__min(of_l2, SQUARE_BLOCK)
                      : all_rows         ? of_l2
                                         : WIDE_BLOCK;
    *m_each = attn__max(attn__ceil_div(all_rows ? g->m : p->m_group, p->kernel->rows), 1);
    *n_each = attn__max(columns / p->kernel->columns, 1);
}

/* Returns the number of panels of a block, at most `most`.  With one thread, all blocks have nearly equal sizes. With
 * several threads, the number minimizes the time at which the last thread ends.  `others` is the number of blocks along
 * the other side. */
static int64_t even(int64_t panels, int64_t most, int64_t others, int threads)
{
    if (threads <= 1)
        return attn__ceil_div(panels, attn__ceil_div(panels, most));
    int64_t best = most, best_end = INT64_MAX;
    for (int64_t each = most; 2 * each > most; each--) {
        int64_t end = attn__ceil_div(attn__ceil_div(panels, each) * others, threads) * each;
        if (end < best_end)
            best = each, best_end = end;
    }
    return best;
}

static void set_blocks(plan *p, int64_t m_each, int64_t n_each)
{
    p->m_block = m_each * p->kernel->rows;
    p->n_block = n_each * p->kernel->columns;
    p->m_blocks = attn__max(attn__ceil_div(p->g.m, p->m_block), 1);
    p->n_blocks = attn__max(attn__ceil_div(p->g.n, p->n_block), 1);
}

/* Chooses the size of blocks: as large as possible, but small enough that all threads have items.  If a block has all
 * rows or if B is gathered, columns are divided until a block has FINER times as many rows as columns. Otherwise, if a
 * block is wide, its rows are divided first. */
static void divide(plan *p)
{
    enum { ITEMS_EACH = 4, FINER = 8 };
    int64_t m_panels = attn__max(attn__ceil_div(p->g.m, p->kernel->rows), 1);
    int64_t n_panels = attn__max(attn__ceil_div(p->g.n, p->kernel->columns), 1);
    int64_t least_items = p->threads > 1 ? ITEMS_EACH * p->threads : 1;
    int64_t m_each, n_each;
    most_panels(p, &m_each, &n_each);
    m_each = attn__min(m_each, m_panels), n_each = attn__min(n_each, n_panels);
    set_blocks(p, m_each, n_each);
    bool cuts_columns = p->m_blocks == 1 || p->g.b.gather, cuts_rows = !cuts_columns && p->n_block > SQUARE_BLOCK;
    int64_t finer_columns = cuts_columns ? FINER : 1, finer_rows = cuts_rows ? FINER : 1;
    while (items_of(p) < least_items && m_each * n_each > 1) {
        bool columns_first = p->n_block * finer_columns >= p->m_block * finer_rows;
        if (n_each > 1 && (m_each == 1 || columns_first))
            n_each = attn__ceil_div(n_each, 2);
        else
            m_each = attn__ceil_div(m_each, 2);
        set_blocks(p, m_each, n_each);
    }
    m_each = even(m_panels, m_each, items_of(p) / p->m_blocks, cuts_columns ? 1 : p->threads);
    n_each = even(n_panels, n_each, items_of(p) / p->n_blocks, cuts_columns ? p->threads : 1);
    set_blocks(p, m_each, n_each);
}

/* Returns the number of rows of a group. All groups of a block have nearly the same number. */
static int64_t even_group(const plan *p)
{
    int64_t groups = attn__ceil_div(p->m_block, p->m_group);
    return attn__round_up(attn__ceil_div(p->m_block, groups), p->kernel->rows);
}

/* Reports whether rows of A are read in place, without packing. Rows that are whole pages apart would share few sets of
 * the L1 cache. They are packed, unless A has few rows or B has few columns. */
static bool reads_a_in_place(const plan *p)
{
    enum { PAGE = 4096 };
    const attn__gemm_operand *a = &p->g.a;
    if (!p->kernel->in_place || a->bf16 || a->inner != 1)
        return false;
    if (a->gather)
        return true;
    if (a->outer == 0) /* stride 0 cannot be read in place, because the kernel takes stride 0 for a packed panel */
        return false;
    bool few = p->g.m <= p->kernel->rows || p->g.n <= FEW_PANELS * p->kernel->columns;
    return few || a->outer * size_of_sum(p) % PAGE != 0;
}

/* Reports whether rows of B are read in place, without packing. Rows must be whole vectors. They must also be near each
 * other, unless A has few rows. */
static bool reads_b_in_place(const plan *p)
{
    enum { NEAR_PANELS = 4 };
    const attn__gemm_operand *b = &p->g.b;
    if (!p->kernel->in_place || b->bf16 || b->outer != 1)
        return false;
    if (b->gather)
        return true;
    if (p->g.n % p->kernel->lanes != 0)
        return false;
    return p->g.m <= 2 * p->kernel->rows || b->inner <= NEAR_PANELS * p->kernel->columns;
}

/* Shortens the round of k so that one round of an operand takes about ROUND_BYTES. A round has at least LEAST_ROUND
 * values of k.  If C is bf16, a round is all of k, because C cannot hold sums between rounds. */
static void shorten_round(plan *p, int64_t bytes_of_k)
{
    if (p->g.c_bf16)
        return;
    int64_t bytes = attn__max(attn__min(p->caches->l3 / 2, ROUND_BYTES), SHORT_ROUND_BYTES);
    int64_t blocks = bytes / attn__max(bytes_of_k, 1) / p->k_panel;
    p->k_round = attn__min(p->k_round, attn__max(blocks, attn__ceil_div(LEAST_ROUND, p->k_panel)) * p->k_panel);
}

/* If several blocks of C need an operand, it is packed once for all blocks. Exceptions: each block packs its own part
 * of a gathered operand, of an operand of a batch, and of A if blocks are wide. */
static void choose_packing(plan *p)
{
    const attn__gemm_problem *g = &p->g;
    int64_t row_bytes = attn__round_up(g->n, p->kernel->columns) * p->kernel->b_size;
    int64_t column_bytes = attn__round_up(g->m, p->kernel->rows) * p->kernel->a_size;
    bool in_place = g->packed || reads_b_in_place(p), packs_a = !reads_a_in_place(p);
    p->gather_a = g->a.gather != NULL;
    p->gather_b = g->b.gather && !g->packed;
    p->share_a = packs_a && !p->gather_a && p->n_blocks > 1 && g->batch == 1 && p->n_block < WIDE_BLOCK / 2;
    p->pack_a = packs_a && !p->share_a;
    p->share_b = !in_place && !p->gather_b && p->m_blocks > 1 && g->batch == 1;
    p->pack_b = !in_place && !p->share_b;
    p->k_round = attn__round_up(attn__max(g->k, 1), p->k_panel);
    if (p->share_b)
        shorten_round(p, row_bytes);
    if (p->share_a)
        shorten_round(p, column_bytes);
    p->shared_b = p->share_b ? row_bytes * packed_k(p, attn__min(p->k_round, g->k)) : 0;
    p->shared_b = attn__round_up(p->shared_b, LINE);
}

static int64_t rows_at_once(const plan *p)
{
    return attn__min(p->m_block, p->m_group);
}

static int64_t gathered_ld(int64_t columns)
{
    return attn__round_up(columns, GAP) + GAP;
}

static int64_t gathered_bytes(const plan *p, const attn__gemm_operand *x, int64_t n)
{
    int64_t rows = x->outer == 1 ? most_k(p) : n, columns = x->outer == 1 ? n : most_k(p);
    return attn__round_up(rows * gathered_ld(columns) * size_of_sum(p), LINE);
}

static int64_t gathered_a_bytes(const plan *p)
{
    return p->gather_a ? gathered_bytes(p, &p->g.a, rows_at_once(p)) : 0;
}

static int64_t gathered_b_bytes(const plan *p)
{
    return p->gather_b ? gathered_bytes(p, &p->g.b, p->n_block) : 0;
}

static int64_t a_panels_bytes(const plan *p)
{
    int64_t rows = rows_at_once(p);
    return attn__round_up(rows * most_k(p) * p->kernel->a_size + ATTN__GEMM_SLACK, LINE);
}

static int64_t a_bytes(const plan *p)
{
    return p->pack_a ? a_panels_bytes(p) : 0;
}

static int64_t a_groups(const plan *p)
{
    return attn__ceil_div(p->m_block, rows_at_once(p));
}

static int64_t b_bytes(const plan *p)
{
    return p->pack_b ? attn__round_up(p->n_block * most_k(p) * p->kernel->b_size, LINE) : 0;
}

static int64_t c_bytes(const plan *p)
{
    return p->own_c ? attn__round_up(p->m_block * p->n_block * size_of_sum(p), LINE) : 0;
}

static void choose_blocks(plan *p, int threads)
{
    p->threads = threads_for(&p->g, threads);
    choose_k_panel(p);
    p->m_group = rows_in_l2(p);
    divide(p);
    p->m_group = even_group(p);
    choose_packing(p);
    p->threads = (int)attn__min(p->threads, attn__max(items_of(p), 1));
    p->shared_a = p->share_a ? p->k_round / p->k_panel * p->m_blocks * a_groups(p) * a_panels_bytes(p) : 0;
    p->each = gathered_a_bytes(p) + gathered_b_bytes(p) + a_bytes(p) + b_bytes(p) + c_bytes(p);
}

void attn__gemm_plan_make(attn__gemm_plan *p, const attn__gemm_problem *problem, attn__isa isa, int threads)
{
    *p = (plan){.g = *problem,
                .kernel = attn__gemm_kernel_for(problem->dtype, isa),
                .caches = problem->caches && !problem->packed ? problem->caches : attn__caches_here(),
                .round_row = attn__gemm_round_row_for(isa)};
    p->g.batch = attn__max(problem->batch, 1);
    transpose_where_better(p);
    p->own_c = p->g.c_bf16 || p->transposed;
    choose_blocks(p, threads);
}

/* If smaller blocks need no more memory, the plan uses them, because more threads then have work. */
void attn__gemm_plan_shorten(attn__gemm_plan *p, int64_t m)
{
    plan shorter = *p;
    shorter.g.m = m;
    choose_blocks(&shorter, p->threads);
    p->g.m = m;
    p->m_blocks = attn__max(attn__ceil_div(m, p->m_block), 1);
    if (attn__gemm_workspace(&shorter) <= attn__gemm_workspace(p))
        *p = shorter;
}

size_t attn__gemm_workspace(const attn__gemm_plan *p)
{
    return (size_t)(p->shared_a + p->shared_b + p->each * p->threads);
}

/* The number of panels of rows in memory is at most three times the number of panels of A: dividing the rows evenly
 * into blocks adds less than one panel for each block, and so do the groups of a block. Along k, panels add less than
 * one K panel, and less than k. A and B may be exchanged, so that both are counted as either operand. */
size_t attn__gemm_workspace_most(attn_dtype dtype, attn__isa isa, int64_t m, int64_t n, int64_t k)
{
    enum { MOST_PANELS = 3 };
    const attn__gemm_kernel *kernel = attn__gemm_kernel_for(dtype, isa);
    int64_t sum = dtype == ATTN_F64 ? (int64_t)sizeof(double) : (int64_t)sizeof(float);
    int64_t size = attn__max(kernel->a_size, kernel->b_size), side = attn__max(kernel->rows, kernel->columns);
    int64_t whole_k = attn__round_up(k, kernel->k_step), longest = packed_k_panel(kernel, attn__caches_here());
    int64_t panels_k = attn__max(attn__ceil_div(k, kernel->k_block), 1);
    m = attn__round_up(attn__max(m, 1), side);
    n = attn__round_up(attn__max(n, 1), side);
    whole_k = attn__min(2 * whole_k, whole_k + attn__max(longest, kernel->k_block));
    int64_t panels = MOST_PANELS * (attn__max(m, n) / attn__min(kernel->rows, kernel->columns)) * panels_k;
    int64_t operands = (MOST_PANELS * attn__max(m, n) + attn__min(m, n)) * whole_k * size;
    return (size_t)(operands + panels * (ATTN__GEMM_SLACK + LINE) + m * n * sum + 4 * LINE);
}

/* ---------------------------------------------------------------------------------------------- packing */

/* Part of an operand: rows or columns [first, first + n) and k in [k0, k0 + nk). */
typedef struct part {
    int64_t batch, k0, nk, first, n;
} part;

/* Returns a part of x as an operand. A gathered part is written to `room`. */
static attn__gemm_operand find(const plan *p, const attn__gemm_operand *x, const part *t, void *room)
{
    attn__gemm_operand y = *x;
    bool rows_are_k = x->outer == 1;
    int64_t ld = gathered_ld(rows_are_k ? t->n : t->nk);
    if (!x->gather) {
        int64_t begin = t->batch * x->batch + t->first * x->outer + t->k0 * x->inner;
        y.data = at(x->data, begin, size_of_operand(p, x));
    } else if (rows_are_k) {
        x->gather(x->source, t->batch, t->k0, t->nk, t->first, t->n, ld, room);
        y.data = room;
        y.inner = ld;
    } else {
        x->gather(x->source, t->batch, t->first, t->n, t->k0, t->nk, ld, room);
        y.data = room;
        y.outer = ld;
    }
    return y;
}

static void pack_panels(const plan *p, const attn__gemm_operand *x, const part *t, bool is_b, void *to)
{
    p->kernel->pack(&(attn__gemm_pack){.x = x->data,
                                       .outer = x->outer,
                                       .inner = x->inner,
                                       .k = t->nk,
                                       .n = t->n,
                                       .width = is_b ? p->kernel->columns : p->kernel->rows,
                                       .bf16 = x->bf16,
                                       .is_b = is_b,
                                       .to = to});
}

/* Arguments for packing an operand for all blocks.  Packed B is ordered by K panel, then by panel of columns. An item
 * is a group of panels of one K panel. */
typedef struct packing {
    const plan *p;
    int64_t k0, k_end;  /* the round is k in [k0, k_end) */
    int64_t begin, end; /* columns [begin, end) of B */
    int64_t groups;
    void *to;
} packing;

enum { GROUP = 8 }; /* panels of B per work item */

static void pack_b_group(void *user, int64_t item, int thread)
{
    (void)thread;
    const packing *w = user;
    const plan *p = w->p;
    int64_t columns = p->kernel->columns, n_round = attn__round_up(p->g.n, columns);
    int64_t k0 = w->k0 + item / w->groups * p->k_panel, nk = k_panel_at(p, k0, w->k_end);
    int64_t first = w->begin + item % w->groups * GROUP * columns;
    part t = {0, k0, nk, first, attn__min(w->end - first, GROUP * columns)};
    attn__gemm_operand x = find(p, &p->g.b, &t, NULL);
    int64_t begin = (k0 - w->k0) * n_round + first * packed_k(p, nk);
    pack_panels(p, &x, &t, true, at(w->to, begin, p->kernel->b_size));
}

static void pack_b_round(const plan *p, int threads, int64_t k0, int64_t k_end, int64_t begin, int64_t end, void *to)
{
    packing w = {p, k0, k_end, begin, end, attn__ceil_div(end - begin, GROUP * p->kernel->columns), to};
    attn__parallel_items(threads, w.groups * attn__ceil_div(k_end - k0, p->k_panel), pack_b_group, &w);
}

/* Returns the byte offset of a group of A's rows in packed A, which is ordered by K panel, then by group.  Each group
 * has separate memory, because the kernel writes past the end of A's panels. */
static int64_t place_of_a_group(const plan *p, int64_t k, int64_t row)
{
    int64_t group = row / p->m_block * a_groups(p) + row % p->m_block / rows_at_once(p);
    return (k / p->k_panel * p->m_blocks * a_groups(p) + group) * a_panels_bytes(p);
}

static void pack_a_group(void *user, int64_t item, int thread)
{
    (void)thread;
    const packing *w = user;
    const plan *p = w->p;
    int64_t group = item % w->groups, k = item / w->groups * p->k_panel, most = rows_at_once(p);
    int64_t m0 = group / a_groups(p) * p->m_block, begin = m0 + group % a_groups(p) * most;
    int64_t end = attn__min(attn__min(begin + most, m0 + p->m_block), p->g.m);
    if (begin >= end)
        return;
    part t = {0, w->k0 + k, k_panel_at(p, w->k0 + k, w->k_end), begin, end - begin};
    attn__gemm_operand x = find(p, &p->g.a, &t, NULL);
    pack_panels(p, &x, &t, false, at(w->to, place_of_a_group(p, k, begin), 1));
}

static void pack_a_round(const plan *p, int64_t k0, int64_t k_end, void *to)
{
    packing w = {.p = p, .k0 = k0, .k_end = k_end, .groups = p->m_blocks * a_groups(p), .to = to};
    attn__parallel_items(p->threads, w.groups * attn__ceil_div(k_end - k0, p->k_panel), pack_a_group, &w);
}

static plan plan_of_weights(const attn__gemm_problem *problem, attn__isa isa)
{
    plan p = {.g = *problem, .kernel = attn__gemm_kernel_for(problem->dtype, isa), .caches = attn__caches_here()};
    p.k_panel = packed_k_panel(p.kernel, p.caches);
    return p;
}

int attn__gemm_packed_size(attn_dtype dtype, attn__isa isa)
{
    return attn__gemm_kernel_for(dtype, isa)->b_size;
}

size_t attn__gemm_packed_bytes(const attn__gemm_problem *problem, attn__isa isa)
{
    const attn__gemm_kernel *kernel = attn__gemm_kernel_for(problem->dtype, isa);
    return (size_t)(attn__round_up(problem->n, kernel->columns) * attn__round_up(problem->k, kernel->k_step) *
                    kernel->b_size);
}

void attn__gemm_pack_b(const attn__gemm_problem *problem, attn__isa isa, int threads, int64_t first, int64_t end,
                       void *packed)
{
    plan p = plan_of_weights(problem, isa);
    pack_b_round(&p, threads, 0, problem->k, first, end, packed);
}

/* Returns the index of element (k, j) in one panel of B (kernel.h). */
static int64_t place_in_panel(const attn__gemm_kernel *kernel, int64_t k, int64_t j)
{
    int64_t step = kernel->k_step, wide = kernel->columns, group = step;
    if (kernel->squares) {
        wide = kernel->lanes;
        group = (int64_t)sizeof(int32_t) / kernel->b_size;
    }
    int64_t square = k / step * kernel->columns * step + j / wide * wide * step;
    return square + k % step / group * wide * group + j % wide * group + k % group;
}

void attn__gemm_packed_column(const attn__gemm_problem *problem, attn__isa isa, const void *packed, int64_t column,
                              void *to)
{
    plan p = plan_of_weights(problem, isa);
    int64_t columns = p.kernel->columns, size = p.kernel->b_size, n_round = attn__round_up(problem->n, columns);
    for (int64_t k = 0; k < problem->k; k++) {
        int64_t k0 = k / p.k_panel * p.k_panel, nk = k_panel_at(&p, k0, problem->k);
        int64_t panel = k0 * n_round + column / columns * columns * packed_k(&p, nk);
        const void *from = at(packed, panel + place_in_panel(p.kernel, k - k0, column % columns), size);
        memcpy(at(to, k, size), from, (size_t)size);
        if (p.kernel->adds_128)
            ((uint8_t *)to)[k] ^= 0x80;
    }
}

uint64_t attn__gemm_packed_layout(attn_dtype dtype, attn__isa isa)
{
    enum { BITS = 8 };
    const attn__gemm_kernel *kernel = attn__gemm_kernel_for(dtype, isa);
    uint64_t layout = (uint64_t)packed_k_panel(kernel, attn__caches_here());
    const int parts[] = {(int)dtype, kernel->columns, kernel->k_step, kernel->b_size,
                         kernel->squares + 2 * kernel->adds_128};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        layout = layout << BITS | (uint64_t)parts[i];
    return layout;
}

/* ----------------------------------------------------------------------------------------------- blocks */

typedef struct run {
    const plan *p;
    char *shared_a, *shared_b, *own;
    int64_t k0, k_end; /* the round is k in [k0, k_end) */
} run;

/* One item of work: rows [m0, m0 + m) and columns [n0, n0 + n) of C in one matrix of the batch. The pointers are
 * scratch memory of the thread. */
typedef struct block {
    int64_t batch, m0, m, n0, n;
    char *gathered_a, *gathered_b, *a, *b;
    void *c;
    int64_t ldc;
} block;

static int64_t place_in_c(const plan *p, const block *t, int64_t i, int64_t j)
{
    return t->batch * p->g.c_batch + (t->m0 + i) * row_of_c(p) + (t->n0 + j) * column_of_c(p);
}

static block block_of(const run *r, int64_t item, int thread)
{
    const plan *p = r->p;
    int64_t in_matrix = item % (p->m_blocks * p->n_blocks);
    block t = {.batch = item / (p->m_blocks * p->n_blocks),
               .m0 = in_matrix / p->n_blocks * p->m_block,
               .n0 = in_matrix % p->n_blocks * p->n_block,
               .gathered_a = r->own + thread * p->each};
    t.gathered_b = t.gathered_a + gathered_a_bytes(p);
    t.a = t.gathered_b + gathered_b_bytes(p);
    t.b = t.a + a_bytes(p);
    t.m = attn__min(p->g.m - t.m0, p->m_block);
    t.n = attn__min(p->g.n - t.n0, p->n_block);
    t.ldc = p->own_c ? p->n_block : p->g.ldc;
    t.c = p->own_c ? t.b + b_bytes(p) : at(p->g.c, place_in_c(p, &t, 0, 0), size_of_sum(p));
    return t;
}

/* The panels of B for one block and one K panel. `panel` is the stride between panels, and `ld` is the stride between
 * rows. */
typedef struct b_panels {
    const void *data;
    int64_t size; /* bytes of one element */
    int64_t panel, ld;
} b_panels;

static b_panels panels_of(const run *r, const block *t, int64_t batch, int64_t k0, int64_t nk)
{
    const plan *p = r->p;
    int64_t columns = p->kernel->columns, n_round = attn__round_up(p->g.n, columns);
    b_panels b = {.size = p->kernel->b_size, .panel = columns * packed_k(p, nk), .ld = columns};
    if (p->g.packed || p->share_b) {
        int64_t from = p->g.packed ? 0 : r->k0;
        b.data = at(p->g.packed ? p->g.packed : r->shared_b, (k0 - from) * n_round + t->n0 * packed_k(p, nk), b.size);
    } else {
        part piece = {batch, k0, nk, t->n0, t->n};
        attn__gemm_operand x = find(p, &p->g.b, &piece, t->gathered_b);
        if (p->pack_b)
            pack_panels(p, &x, &piece, true, t->b);
        else
            b = (b_panels){.size = size_of_sum(p), .panel = columns, .ld = x.inner};
        b.data = p->pack_b ? t->b : x.data;
    }
    return b;
}

/* Rows [m0, m0 + m) of A in one K panel, counted from the block's first row. They are packed panels of A, or A in
 * place. */
typedef struct a_rows {
    const void *data;
    int64_t size, ld; /* bytes of one element; row stride of A in place, or 0 for packed panels */
    int64_t m0, m, nk;
} a_rows;

/* If rows of A in place are whole pages apart, the tile has at most 8 rows. Such rows use the same set of the L1 cache,
 * which has at least 8 ways. */
static int64_t rows_of_tile(const plan *p, const a_rows *a)
{
    enum { PAGE = 4096, WAYS = 8 };
    bool meet = a->ld > 0 && a->ld * a->size % PAGE == 0;
    return meet ? attn__min(WAYS, p->kernel->rows) : p->kernel->rows;
}

/* Prefetches rows of A that are read in place. The hardware prefetches little here, because only a short part of each
 * row belongs to a K block. */
static void prefetch_rows(const a_rows *a, int64_t row, int64_t end)
{
    for (; row < end; row++) {
        const char *x = at(a->data, row * a->ld, a->size);
        for (int64_t line = 0; line < a->nk * a->size; line += LINE)
            __builtin_prefetch(x + line, 0, 2);
    }
}

/* Runs a register tile over several K blocks one after the other, so that the tile of C stays in L1. */
static void multiply_tile(const attn__gemm_kernel *kernel, const attn__gemm_tile *all, int64_t a_size, int64_t b_size)
{
    attn__gemm_tile tile = *all;
    int64_t width = tile.lda ? 1 : kernel->rows;
    for (int64_t left = all->k; left > 0; left -= tile.k) {
        tile.k = attn__min(left, kernel->k_block);
        kernel->run(&tile);
        tile.add = true;
        tile.a = at(tile.a, tile.k * width, a_size);
        tile.b = at(tile.b, tile.k * tile.ldb, b_size);
        tile.ahead = at(tile.ahead, tile.k / ATTN__GEMM_UNROLL * tile.ahead_step, 1);
    }
}

/* Returns how many bytes of the next panel of B are prefetched in each step of a kernel. At this rate, the panel is in
 * L2 when it is needed.  Returns 0 if B is read in place, because it has no contiguous panels. Also returns 0 for a
 * single tile, which reads B as fast as memory gives it: the hardware then prefetches more. */
static int64_t bytes_ahead(const plan *p, const a_rows *a, const b_panels *b, int64_t tiles)
{
    if (b->ld != p->kernel->columns || b->panel == b->ld || tiles < 2)
        return 0;
    int64_t steps = tiles * attn__max(a->nk / ATTN__GEMM_UNROLL, 1);
    return attn__ceil_div(b->panel * b->size, steps);
}

/* Runs the register tiles of the rows `a` and all columns of the block. */
static void multiply(const plan *p, const block *t, const a_rows *a, const b_panels *b, bool add)
{
    const attn__gemm_kernel *kernel = p->kernel;
    int64_t a_step = a->ld ? a->ld : packed_k(p, a->nk), rows = rows_of_tile(p, a), tiles = attn__ceil_div(a->m, rows);
    int64_t ahead_step = bytes_ahead(p, a, b, tiles);
    for (int64_t j = 0; j < t->n; j += kernel->columns) {
        attn__gemm_tile tile = {.k = a->nk,
                                .columns = (int)attn__min(t->n - j, kernel->columns),
                                .lda = a->ld,
                                .b = at(b->data, j / kernel->columns * b->panel, b->size),
                                .ldb = b->ld,
                                .ldc = t->ldc,
                                .add = add,
                                .ahead_step = j + kernel->columns < t->n ? ahead_step : 0};
        tile.ahead = tile.ahead_step ? at(tile.b, b->panel, b->size) : tile.b;
        for (int64_t i = 0; i < a->m; i += rows) {
            tile.rows = (int)attn__min(a->m - i, rows);
            tile.a = at(a->data, i * a_step, a->size);
            tile.c = at(t->c, (a->m0 + i) * t->ldc + j, size_of_sum(p));
            if (j == 0 && a->ld && !p->gather_a)
                prefetch_rows(a, i + rows, attn__min(a->m, i + 2 * rows));
            if (tile.k <= kernel->k_block)
                kernel->run(&tile);
            else
                multiply_tile(kernel, &tile, a->size, b->size);
            tile.ahead = at(tile.ahead, a->nk / ATTN__GEMM_UNROLL * tile.ahead_step, 1);
        }
    }
}

static a_rows rows_of(const run *r, const block *t, const part *piece, int64_t m0)
{
    const plan *p = r->p;
    a_rows a = {.size = p->kernel->a_size, .m0 = m0, .m = piece->n, .nk = piece->nk};
    if (p->share_a) {
        a.data = r->shared_a + place_of_a_group(p, piece->k0 - r->k0, piece->first);
        return a;
    }
    attn__gemm_operand x = find(p, &p->g.a, piece, t->gathered_a);
    if (p->pack_a)
        pack_panels(p, &x, piece, false, t->a);
    else
        a.size = size_of_sum(p), a.ld = x.outer;
    a.data = p->pack_a ? t->a : x.data;
    return a;
}

static void finish_rows(const plan *p, const block *t, int64_t m0, int64_t m)
{
    if (!p->g.finish)
        return;
    for (int64_t i = m0; i < m0 + m; i++)
        p->g.finish(p->g.user, at(t->c, i * t->ldc, size_of_sum(p)), t->m0 + i, t->n0, t->n);
}

/* Adds the product of one K panel to a block of C. If `ends` is set, this is the last panel, so the rows of C get the
 * epilogue while they are in the cache. */
static void add_k_panel(const run *r, const block *t, int64_t batch, int64_t k0, int64_t nk, bool add, bool ends)
{
    const plan *p = r->p;
    b_panels b = panels_of(r, t, batch, k0, nk);
    int64_t most = rows_at_once(p);
    for (int64_t m0 = 0; m0 < t->m; m0 += most) {
        part piece = {batch, k0, nk, t->m0 + m0, attn__min(t->m - m0, most)};
        a_rows a = rows_of(r, t, &piece, m0);
        multiply(p, t, &a, &b, add);
        if (ends)
            finish_rows(p, t, m0, piece.n);
    }
}

/* ------------------------------------------------------------------------------------------------- ends */

/* Copies between C and the block's scratch memory: from C if `load` is set, otherwise to C. Rows of the scratch memory
 * are t->ldc apart. Column j of the block begins at c + j * ld_c in C. */
static void copy_transposed(const block *t, int64_t ld_c, void *c, int64_t size, bool load)
{
    enum { SIDE = 16 }; /* size of a square that stays in L1 in both layouts */
    for (int64_t i0 = 0; i0 < t->m; i0 += SIDE)
        for (int64_t j0 = 0; j0 < t->n; j0 += SIDE)
            for (int64_t j = j0; j < attn__min(j0 + SIDE, t->n); j++)
                for (int64_t i = i0; i < attn__min(i0 + SIDE, t->m); i++) {
                    void *own = at(t->c, i * t->ldc + j, size), *there = at(c, j * ld_c + i, size);
                    if (size == sizeof(float)) /* with a constant size, the compiler replaces memcpy by a move */
                        memcpy(load ? own : there, load ? there : own, sizeof(float));
                    else
                        memcpy(load ? own : there, load ? there : own, sizeof(double));
                }
}

/* Loads a block from C into scratch memory. The sums then continue in the same order as in place. */
static void load_block(const plan *p, const block *t)
{
    copy_transposed(t, p->g.ldc, at(p->g.c, place_in_c(p, t, 0, 0), size_of_sum(p)), size_of_sum(p), true);
}

static void store_block(const plan *p, const block *t)
{
    if (p->transposed)
        copy_transposed(t, p->g.ldc, at(p->g.c, place_in_c(p, t, 0, 0), size_of_sum(p)), size_of_sum(p), false);
    for (int64_t i = 0; i < t->m && p->g.c_bf16; i++)
        p->round_row((const float *)t->c + i * t->ldc, t->n, (uint16_t *)p->g.c + place_in_c(p, t, i, 0));
}

/* Runs the epilogue in C for a block that was stored transposed. */
static void finish_stored(const plan *p, const block *t)
{
    if (!p->g.finish)
        return;
    for (int64_t j = 0; j < t->n; j++)
        p->g.finish(p->g.user, at(p->g.c, place_in_c(p, t, 0, j), size_of_sum(p)), t->n0 + j, t->m0, t->m);
}

/* Computes the product for k = 0: clears C unless `add` is set, and runs the epilogue. */
static void sum_nothing(const plan *p, const block *t)
{
    for (int64_t i = 0; i < t->m && !p->g.add; i++)
        memset(at(t->c, i * t->ldc, size_of_sum(p)), 0, (size_t)(t->n * size_of_sum(p)));
    if (!p->transposed)
        finish_rows(p, t, 0, t->m);
}

static void run_block(void *user, int64_t item, int thread)
{
    const run *r = user;
    const plan *p = r->p;
    block t = block_of(r, item, thread);
    bool is_sum = p->g.c_batch == 0, add = p->g.add || r->k0 > 0;
    int64_t batch = is_sum ? 0 : t.batch, batch_end = is_sum ? p->g.batch : t.batch + 1;
    if (p->kernel->begin)
        p->kernel->begin();
    if (p->own_c && add)
        load_block(p, &t);
    for (; batch < batch_end; batch++) {
        for (int64_t k0 = r->k0; k0 < r->k_end; k0 += p->k_panel, add = true) {
            int64_t nk = k_panel_at(p, k0, r->k_end);
            add_k_panel(r, &t, batch, k0, nk, add, k0 + nk == p->g.k && batch + 1 == batch_end && !p->transposed);
        }
    }
    if (p->kernel->end)
        p->kernel->end();
    if (p->g.k == 0)
        sum_nothing(p, &t);
    if (p->own_c)
        store_block(p, &t);
    if (p->transposed && r->k_end == p->g.k)
        finish_stored(p, &t);
}

void attn__gemm_run(const attn__gemm_plan *p, void *workspace)
{
    if (p->g.m == 0 || p->g.n == 0)
        return;
    run r = {.p = p, .shared_a = workspace};
    r.shared_b = r.shared_a + p->shared_a;
    r.own = r.shared_b + p->shared_b;
    do {
        r.k_end = attn__min(p->g.k, r.k0 + p->k_round);
        if (p->share_a)
            pack_a_round(p, r.k0, r.k_end, r.shared_a);
        if (p->share_b)
            pack_b_round(p, p->threads, r.k0, r.k_end, 0, p->g.n, r.shared_b);
        attn__parallel_items(p->threads, items_of(p), run_block, &r);
        r.k0 = r.k_end;
    } while (r.k0 < p->g.k);
}
