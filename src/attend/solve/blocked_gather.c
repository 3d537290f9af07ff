/* SPDX-License-Identifier: MIT
 * Rows of double from the operands, and the products of such rows. */
#include "attend/solve/blocked.h"

#include "attend/block/element.h"
#include "attend/block/rows.h"
#include "attend/block/table.h"
#include "attend/scores/score.h"
#include "gemm/gemm.h"
#include "gemm/kernel.h"

#include <assert.h>
#include <math.h>

int64_t attn__blocked_offset(const attn__blocked *b, size_t stride, int64_t query)
{
    return attn__offsets_one(&b->canonical->batch, stride, b->batch) +
           attn__offsets_one(&b->canonical->query, stride, query);
}

/* ---------------------------------------------------------------------------------------------- gathering */

/* `to`, whose rows are `ld` apart, becomes the transpose of n rows times a factor. */
static void transpose(const double *rows, int64_t n, int64_t channels, double factor, double *to, int64_t ld)
{
    enum { ROWS = 8 }; /* at once: a cache line of the result */
    for (int64_t first = 0; first < n; first += ROWS)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t i = first; i < n && i < first + ROWS; i++)
                to[c * ld + i] = factor * rows[i * channels + c];
}

/* Rows of an operand: which groups, the first of them, and where they go. */
typedef struct operand_rows {
    const attn__group *group, *channels;
    attn__operand op;
    const void *data;
    int64_t first, n;
    double *to;
} operand_rows;

/* The rows themselves where they lie one after another, else copies. */
static const double *gather(attn__blocked *b, const operand_rows *r)
{
    attn_dtype dtype = b->canonical->problem.dtype;
    size_t stride = offsetof(attn__axis, dim) + attn__operand_table[r->op].offset;
    int64_t channels = r->channels->size, *at = attn__blocked_integers(b, b->plan->at.offsets);
    int64_t base = attn__offsets_one(&b->canonical->batch, stride, b->batch);
    const double *data = r->to;
    if (dtype == ATTN_F64 && attn__offsets_adjacent(r->channels, stride) &&
        attn__offsets_even(r->group, stride, channels)) {
        data = (const double *)r->data + base + r->first * channels;
    } else {
        attn__strides strides = attn__operand_strides(r->channels, r->op);
        attn__offsets_fill(r->group, stride, r->first, r->n, at);
        for (int64_t i = 0; i < r->n; i++)
            attn__gather(r->channels, &strides, dtype, r->data, base + at[i], r->to + i * channels);
    }
    b->has_nonfinite |= r->op != ATTN__OP_O && !b->plan->kernel->finite(data, r->n * channels);
    return data;
}

int64_t attn__blocked_table_at(const attn__blocked *b, int table)
{
    size_t stride = offsetof(attn__axis, table) + (size_t)table * sizeof(int64_t);
    return attn__offsets_one(&b->canonical->batch, stride, b->batch) +
           b->plan->table[table].begin * b->canonical->problem.relatives[table].row_stride;
}

/* The i-th table of the batch index, in both forms. */
static void gather_table(attn__blocked *b, int i)
{
    const attn__canonical *canonical = b->canonical;
    const attn_relative *r = &canonical->problem.relatives[i];
    const attn__blocked_table *table = &b->plan->table[i];
    attn__strides strides = attn__table_strides(canonical, i);
    int64_t channels = attn__table_channels(canonical, i)->size, at = attn__blocked_table_at(b, i);
    double factor = r->kind == ATTN_RELATIVE_VALUE ? 1 : canonical->problem.scale,
           *rows = attn__blocked_at(b, table->t);
    for (int64_t d = 0; d < table->rows; d++, at += r->row_stride)
        attn__table_gather(canonical, i, &strides, b->arrays->table[i], at, rows + d * channels);
    transpose(rows, table->rows, channels, factor, attn__blocked_at(b, table->t_t), table->ld_t);
    b->has_nonfinite |= !b->plan->kernel->finite(rows, table->rows * channels);
}

/* The learned vectors of the batch index. */
static void gather_vectors(const attn__blocked *b)
{
    const attn__group *contract = &b->canonical->contract;
    attn_dtype dtype = attn__operand_dtype(&b->canonical->problem, ATTN__OP_W);
    attn__strides strides = attn__operand_strides(contract, ATTN__OP_W);
    const void *const vectors[] = {b->arrays->w, b->arrays->w2};
    int n = attn__score_of(&b->canonical->problem)->vectors;
    for (int i = 0; i < n && i < 2; i++)
        attn__gather(contract, &strides, dtype, vectors[i], attn__blocked_offset(b, ATTN__STRIDE(dim.w), 0),
                     attn__blocked_at(b, b->plan->at.w) + i * contract->size);
}

/* Keys are scaled where the score is their product with a query. */
static double factor_of_keys(const attn__blocked *b)
{
    const attn_problem *p = &b->canonical->problem;
    return p->score == ATTN_SCORE_DOT ? p->scale : 1;
}

void attn__blocked_transpose(const attn__blocked *b, const double *k, int64_t k_t, const double *v, int64_t v_t,
                             int64_t n)
{
    const attn__canonical *canonical = b->canonical;
    if (b->plan->linear)
        return;
    if (canonical->problem.score != ATTN_SCORE_ADDITIVE)
        transpose(k, n, canonical->contract.size, factor_of_keys(b), attn__blocked_at(b, k_t), b->plan->ld);
    if (canonical->backward)
        transpose(v, n, canonical->value.size, 1, attn__blocked_at(b, v_t), b->plan->ld);
}

void attn__blocked_gather_batch(attn__blocked *b, int64_t batch)
{
    const attn__canonical *canonical = b->canonical;
    const attn__blocked_places *at = &b->plan->at;
    const attn__group *group = canonical->problem.nwindows ? &b->plan->positions : &canonical->key;
    operand_rows k = {group,       &canonical->contract,      ATTN__OP_K, b->arrays->k, 0,
                      group->size, attn__blocked_at(b, at->k)};
    operand_rows v = {group, &canonical->value, ATTN__OP_V, b->arrays->v, 0, group->size, attn__blocked_at(b, at->v)};
    b->batch = batch;
    b->has_nonfinite = false;
    b->k = gather(b, &k);
    b->v = gather(b, &v);
    if (!canonical->problem.nwindows) /* else block by block */
        attn__blocked_transpose(b, b->k, at->k_t, b->v, at->v_t, group->size);
    for (int i = 0; i < canonical->problem.nrelatives; i++)
        gather_table(b, i);
    gather_vectors(b);
    if (b->plan->linear)
        attn__blocked_linear_keys(b);
}

void attn__blocked_gather_queries(attn__blocked *b, const attn__blocked_tile *t)
{
    const attn__canonical *canonical = b->canonical;
    const attn__blocked_places *at = &b->plan->at;
    operand_rows q = {&canonical->query, &canonical->contract,      ATTN__OP_Q, b->arrays->q, t->query,
                      t->queries,        attn__blocked_at(b, at->q)};
    b->q = gather(b, &q);
    if (!canonical->backward)
        return;
    operand_rows o = {&canonical->query, &canonical->value,         ATTN__OP_O, b->arrays->o, t->query,
                      t->queries,        attn__blocked_at(b, at->o)};
    operand_rows dout = o;
    dout.op = ATTN__OP_DOUT;
    dout.data = b->arrays->dout;
    dout.to = attn__blocked_at(b, at->dout);
    b->o = gather(b, &o);
    b->dout = gather(b, &dout);
}

/* -------------------------------------------------------------------------------------------------- products */

_Static_assert(ATTN__BLOCKED_ROWS % ATTN__GEMM_K == 0, "the rows of a table that a tile reads begin at a K block");

static attn__gemm_problem problem_of(const attn__blocked_product *p)
{
    return (attn__gemm_problem){.dtype = ATTN_F64,
                                .m = p->m,
                                .n = p->n,
                                .k = p->k,
                                .a = attn__matrix(p->a, p->transposed ? 1 : p->lda, p->transposed ? p->lda : 1),
                                .b = attn__matrix(p->b, p->b_transposed ? p->ldb : 1, p->b_transposed ? 1 : p->ldb),
                                .c = p->c,
                                .ldc = p->ldc,
                                .add = p->add};
}

void attn__blocked_multiply(attn__blocked *b, const attn__blocked_product *p)
{
    attn__gemm_plan plan;
    attn__gemm_problem problem = problem_of(p);
    attn__gemm_plan_make(&plan, &problem, b->canonical->isa, 1);
    assert(attn__gemm_workspace(&plan) <= (size_t)b->plan->at.product_size * sizeof(double));
    attn__gemm_run(&plan, attn__blocked_at(b, b->plan->at.product));
}

/* A copy of p->b with zeros for what is not finite. */
static const double *only_finite(const attn__blocked *b, const attn__blocked_product *p)
{
    double *to = attn__blocked_at(b, b->plan->at.finite);
    for (int64_t l = 0; l < p->k; l++)
        for (int64_t j = 0; j < p->n; j++) {
            double x = p->b[l * p->ldb + j];
            to[l * p->n + j] = isfinite(x) ? x : 0;
        }
    return to;
}

void attn__blocked_multiply_masked(attn__blocked *b, const attn__blocked_product *p)
{
    attn__blocked_product finite = *p;
    if (b->has_nonfinite) {
        finite.b = only_finite(b, p);
        finite.ldb = p->n;
    }
    attn__blocked_multiply(b, &finite);
    for (int64_t l = 0; l < p->k && b->has_nonfinite; l++)
        for (int64_t j = 0; j < p->n; j++) {
            double x = p->b[l * p->ldb + j];
            for (int64_t i = 0; i < p->m && !isfinite(x); i++) {
                double weight = p->transposed ? p->a[l * p->lda + i] : p->a[i * p->lda + l];
                p->c[i * p->ldc + j] += weight == 0 ? 0 : weight * x;
            }
        }
}
