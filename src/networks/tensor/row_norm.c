/* SPDX-License-Identifier: MIT
 * Public normalization of rows (product.h), by the kernel of layer normalization. */
#include "attn/product.h"

#include "base/bf16.h"
#include "base/context.h"
#include "base/integers.h"
#include "base/parallel.h"
#include "gemm/gemm.h"
#include "kernels/elementwise/elementwise.h"

enum { ALIGN = 64, NUMBERS = 8192 /* minimum number of elements of a thread */ };
static const int64_t MOST = (int64_t)1 << 40; /* largest size */

static attn_status check_rows(attn_context *context, const char *name, const attn_matrix *x, bool empty)
{
    const char *type = attn_dtype_name(x->dtype);
    if (x->dtype != ATTN_F32 && x->dtype != ATTN_BF16)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "normalize: %s is of the type %s; f32 and bf16 are supported", name, type ? type : "unknown");
    if (!empty && !x->data)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "normalize: %s has no data", name);
    if (!empty && x->column != 1)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "normalize: the elements of a row of %s are %lld apart; they must be adjacent", name,
                          (long long)x->column);
    return ATTN_OK;
}

static attn_status check(attn_context *context, const attn_row_norm *t)
{
    if (t->rows < 0 || t->n < 0 || t->rows > MOST || t->n > MOST)
        return attn__fail(context, ATTN_ERROR_SHAPE,
                          "normalize: there are %lld rows of %lld elements; both numbers must be 0 to 2^40",
                          (long long)t->rows, (long long)t->n);
    bool empty = t->rows == 0 || t->n == 0;
    attn_status status = check_rows(context, "x", &t->x, empty);
    if (status == ATTN_OK)
        status = check_rows(context, "y", &t->y, empty);
    if (status != ATTN_OK)
        return status;
    if (t->dtype != ATTN_F32 && t->dtype != ATTN_BF16) {
        const char *type = attn_dtype_name(t->dtype);
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "normalize: gain and bias are of the type %s; f32 and bf16 are supported",
                          type ? type : "unknown");
    }
    if (t->rows > 1 && t->y.row < t->n && t->y.row > -t->n)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "normalize: the rows of y have %lld elements but are %lld apart, so they overlap",
                          (long long)t->n, (long long)t->y.row);
    return ATTN_OK;
}

typedef struct running {
    const attn_row_norm *t;
    attn__elementwise_fn run;
    attn__gemm_round_row *round;
    const float *gain, *bias;
    char *rows; /* a row of float for each part of the range */
    int64_t row_bytes, part;
} running;

static void normalize_range(void *user, int64_t begin, int64_t end)
{
    const running *r = user;
    const attn_row_norm *t = r->t;
    float *row = (float *)(void *)(r->rows + begin / r->part * r->row_bytes);
    for (int64_t i = begin; i < end; i++) {
        int64_t at_x = i * t->x.row, at_y = i * t->y.row;
        const float *x = (const float *)t->x.data + at_x;
        if (t->x.dtype == ATTN_BF16) {
            attn__widen_bf16(row, (const uint16_t *)t->x.data + at_x, t->n);
            x = row;
        }
        float *y = t->y.dtype == ATTN_BF16 ? row : (float *)t->y.data + at_y;
        attn__elementwise_args args = {.x = x,
                                       .x3 = r->gain,
                                       .x4 = r->bias,
                                       .y = y,
                                       .n = t->n,
                                       .s = {t->eps},
                                       .kind = t->root_mean_square ? ATTN__NORMALIZE_ROOT_MEAN_SQUARE
                                                                   : ATTN__NORMALIZE_DEVIATION};
        r->run(&args, 0, 1);
        if (t->y.dtype == ATTN_BF16)
            r->round(row, t->n, (uint16_t *)t->y.data + at_y);
    }
}

/* Returns a parameter as f32. `to` has the room for it. */
static const float *parameter(const attn_row_norm *t, const void *x, float missing, float *to)
{
    if (x && t->dtype == ATTN_F32)
        return x;
    for (int64_t i = 0; i < t->n && !x; i++)
        to[i] = missing;
    if (x)
        attn__widen_bf16(to, x, t->n);
    return to;
}

attn_status attn_normalize_rows(attn_context *context, const attn_row_norm *norm)
{
    ATTN__CALL(context);
    attn_status status = ATTN__CHECK_RESERVED(context, norm, attn_row_norm);
    if (status == ATTN_OK)
        status = check(context, norm);
    if (status != ATTN_OK || norm->rows == 0 || norm->n == 0)
        return status;
    int64_t least = 1 + NUMBERS / norm->n;
    int64_t part = attn__max(least, attn__ceil_div(norm->rows, context->threads));
    int64_t parts = attn__ceil_div(norm->rows, part),
            row_bytes = attn__round_up(norm->n * (int64_t)sizeof(float), ALIGN);
    char *scratch = attn__context_scratch(context, attn__size_mul((size_t)row_bytes, (size_t)parts + 2));
    if (!scratch)
        return ATTN_ERROR_MEMORY;
    running r = {.t = norm,
                 .run = attn__elementwise_for(false, context->isa)->run[ATTN__ELEMENTWISE_LAYER_NORM],
                 .round = attn__gemm_round_row_for(context->isa),
                 .gain = parameter(norm, norm->gain, 1, (float *)(void *)scratch),
                 .bias = parameter(norm, norm->bias, 0, (float *)(void *)(scratch + row_bytes)),
                 .rows = scratch + 2 * row_bytes,
                 .row_bytes = row_bytes,
                 .part = part};
    attn__parallel_range(context->threads, norm->rows, part, normalize_range, &r);
    attn__context_scratch_end(context);
    return ATTN_OK;
}
