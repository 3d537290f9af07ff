/* SPDX-License-Identifier: MIT */
#include "attn/attn.h"

#include "attend/block/rows.h"
#include "base/context.h"
#include "base/parallel.h"

#include <float.h>
#include <math.h>

enum { BLOCK = 64 }; /* rows per work item */

typedef struct job {
    const attn_partials *shape;
    int64_t rows;
    attn_dtype dtype, side;
    const void *o[2], *lse[2];
    void *merged, *merged_lse;
    const void *dout, *dlse; /* dout is NULL in the forward pass; dlse may be NULL */
    void *do_part[2], *dlse_part[2];
} job;

/* Reports whether parts are added, because their weights are not divided by a sum. */
static bool is_sum(const job *j)
{
    return j->shape->normalization == ATTN_NORMALIZATION_NONE;
}

/* of: the weights of the two parts in a row, exp(lse of the part - lse of the whole row), or 1 if parts are added.  A
 * row without keys has weights of 0.  In f32 a weight below 2^-126 is set to 0, because all gradients of its part would
 * be subnormal numbers. */
typedef struct shares {
    double lse, of[2];
    bool empty[2]; /* the part has no keys for the row, so its o is not read */
} shares;

static double share_of(const job *j, double part, double whole)
{
    double share = part / whole;
    return j->side != ATTN_F64 && share < (double)FLT_MIN ? 0 : share;
}

static shares shares_of(const job *j, int64_t row)
{
    double a = attn__load(j->side, j->lse[0], row), b = attn__load(j->side, j->lse[1], row);
    double max = a > b || isnan(a) ? a : b;
    if (max == (double)-INFINITY)
        return (shares){.lse = max, .empty = {true, true}};
    bool no_a = a == (double)-INFINITY, no_b = b == (double)-INFINITY;
    if (is_sum(j))
        return (shares){max, {!no_a, !no_b}, {no_a, no_b}};
    double x = exp(a - max), y = exp(b - max);
    return (shares){max + log(x + y), {share_of(j, x, x + y), share_of(j, y, x + y)}, {no_a, no_b}};
}

/* Returns the offset in `o` of the channels of row `row` of lse [B,H,T]. */
static int64_t channels_at(const job *j, int64_t row)
{
    const attn_partials *s = j->shape;
    int64_t t = row % s->queries, head = row / s->queries % s->heads, batch = row / s->queries / s->heads;
    return s->layout == ATTN_LAYOUT_BHTD ? row * s->dim : ((batch * s->queries + t) * s->heads + head) * s->dim;
}

/* Returns an element of a part, or 0 if the part is empty. A share that underflowed to 0 keeps NaN and infinity, as
 * the weights of a whole row do. */
static double element(const job *j, const shares *s, int part, int64_t at)
{
    return s->empty[part] ? 0 : attn__load(j->dtype, j->o[part], at);
}

static void merge_row(const job *j, int64_t row)
{
    shares s = shares_of(j, row);
    int64_t at = channels_at(j, row);
    for (int64_t c = at; c < at + j->shape->dim; c++)
        attn__store(j->dtype, j->merged, c, s.of[0] * element(j, &s, 0, c) + s.of[1] * element(j, &s, 1, c));
    attn__store(j->side, j->merged_lse, row, s.lse);
}

/* Computes the gradients of both parts for a row. The shares s_1 + s_2 = 1, so d s_1 / d lse_1 = s_1 * s_2. */
static void divide_row(const job *j, int64_t row)
{
    shares s = shares_of(j, row);
    int64_t at = channels_at(j, row);
    bool slopes = j->dlse && !is_sum(j) && s.lse != (double)-INFINITY;
    double apart = 0, dlse = slopes ? attn__load(j->side, j->dlse, row) : 0;
    for (int64_t c = at; c < at + j->shape->dim; c++) {
        double dout = attn__load(j->dtype, j->dout, c);
        apart += dout * (element(j, &s, 0, c) - element(j, &s, 1, c));
        for (int part = 0; part < 2; part++)
            attn__store(j->dtype, j->do_part[part], c, s.empty[part] ? 0 : s.of[part] * dout);
    }
    double exchange = is_sum(j) || s.empty[0] || s.empty[1] ? 0 : s.of[0] * s.of[1] * apart;
    attn__store(j->side, j->dlse_part[0], row, s.of[0] * dlse + exchange);
    attn__store(j->side, j->dlse_part[1], row, s.of[1] * dlse - exchange);
}

static void run_block(void *user, int64_t item, int thread)
{
    const job *j = user;
    int64_t end = (item + 1) * BLOCK < j->rows ? (item + 1) * BLOCK : j->rows;
    (void)thread;
    for (int64_t row = item * BLOCK; row < end; row++)
        if (!j->dout)
            merge_row(j, row);
        else
            divide_row(j, row);
}

static attn_status check(attn_context *context, const attn_partials *s, int64_t *rows)
{
    static const char *const names[] = {"batch", "heads", "queries", "dim"};
    const int64_t sizes[] = {s->batch, s->heads, s->queries, s->dim};
    int64_t product = 1;
    bool fits = true;
    for (int i = 0; i < 4; i++) {
        if (sizes[i] < 0)
            return attn__fail(context, ATTN_ERROR_SHAPE, "partials: %s is %lld; it must not be negative", names[i],
                              (long long)sizes[i]);
        *rows = product;
        fits = fits && !__builtin_mul_overflow(product, sizes[i], &product);
    }
    if (!fits || product > INT64_MAX / 8)
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "partials: batch %lld * heads %lld * queries %lld * dim %lld is too large; the product must "
                          "be below 2^60",
                          (long long)s->batch, (long long)s->heads, (long long)s->queries, (long long)s->dim);
    if (s->dtype != ATTN_F32 && s->dtype != ATTN_BF16 && s->dtype != ATTN_F64)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "partials of type %s are not supported; expected f32, bf16 or f64",
                          attn_dtype_name(s->dtype));
    if ((unsigned)s->normalization > ATTN_NORMALIZATION_SIGMOID)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "partials: normalization is %d; it must be between 0 and %d",
                          (int)s->normalization, (int)ATTN_NORMALIZATION_SIGMOID);
    if (s->normalization == ATTN_NORMALIZATION_HARDMAX)
        return attn__fail(
            context, ATTN_ERROR_UNSUPPORTED,
            "partials of hardmax are not supported: their rounded maxima do not tell which part has the key of "
            "weight 1; compute all keys at once");
    if (s->normalization == ATTN_NORMALIZATION_SIGMOID)
        return attn__fail(
            context, ATTN_ERROR_UNSUPPORTED,
            "partials of sigmoid are not supported, because they have no log-sum-exp; compute each part with the same "
            "sigmoid_bias and add the outputs");
    if ((unsigned)s->layout > ATTN_LAYOUT_BHTD)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "partials: layout %d is neither BTHD nor BHTD", (int)s->layout);
    return ATTN_OK;
}

static attn_status run(attn_context *context, const attn_partials *shape, job *j, const void *const *needed,
                       const char *const *names, int n)
{
    ATTN__CALL(context);
    attn_status status = ATTN__CHECK_RESERVED(context, shape, attn_partials);
    if (status == ATTN_OK)
        status = check(context, shape, &j->rows);
    if (status != ATTN_OK)
        return status;
    for (int i = 0; i < n && j->rows > 0; i++)
        if (!needed[i])
            return attn__fail(context, ATTN_ERROR_ARGUMENT, "partials: the array '%s' is NULL", names[i]);
    j->shape = shape;
    j->dtype = shape->dtype;
    j->side = shape->dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    attn__parallel_items(context->threads, (j->rows + BLOCK - 1) / BLOCK, run_block, j);
    return ATTN_OK;
}

attn_status attn_partials_merge(attn_context *context, const attn_partials *shape, const void *o1, const void *lse1,
                                const void *o2, const void *lse2, void *o, void *lse)
{
    const void *const needed[] = {o1, lse1, o2, lse2, o, lse};
    static const char *const names[] = {"o1", "lse1", "o2", "lse2", "o", "lse"};
    job j = {.o = {o1, o2}, .lse = {lse1, lse2}, .merged = o, .merged_lse = lse};
    return run(context, shape, &j, needed, names, 6);
}

attn_status attn_partials_backward(attn_context *context, const attn_partials *shape,
                                   const attn_partials_arrays *arrays)
{
    const attn_partials_arrays *a = arrays;
    const void *const needed[] = {a->o1, a->lse1, a->o2, a->lse2, a->dout, a->do1, a->dlse1, a->do2, a->dlse2};
    static const char *const names[] = {"o1", "lse1", "o2", "lse2", "dout", "do1", "dlse1", "do2", "dlse2"};
    ATTN__CALL(context);
    if (ATTN__CHECK_RESERVED(context, a, attn_partials_arrays) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    job j = {.o = {a->o1, a->o2},
             .lse = {a->lse1, a->lse2},
             .dout = a->dout,
             .dlse = a->dlse,
             .do_part = {a->do1, a->do2},
             .dlse_part = {a->dlse1, a->dlse2}};
    return run(context, shape, &j, needed, names, 9);
}
