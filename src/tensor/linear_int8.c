/* SPDX-License-Identifier: MIT
 * Linear layers in 8-bit integers. */
#include "tensor/linear_int8.h"

#include "base/parallel.h"
#include "kernels/elementwise/elementwise.h"
#include "tensor/op.h"
#include "tensor/packed_weights.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* So many products of 127 x 127 fit into 31 bits. */
enum { MOST_K = 130000 };

bool attn__linear_int8_takes(const attn_tape *tape, const attn__gemm_args *g)
{
    return tape->precision == ATTN_PRECISION_INT8 && g->weights && g->dtype == ATTN_F32 && g->transpose_b &&
           !g->transpose_a && !g->add && !g->c_bf16 && g->k <= MOST_K;
}

typedef struct quantizing {
    int64_t n, ld;
    const float *x;
    int8_t *q;
    float *scales;
} quantizing;

/* As bits, so that infinity and NaN are largest. */
static float largest(const float *x, int64_t n)
{
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    float value;
    memcpy(&value, &most, sizeof value);
    return value;
}

/* Adding 1.5 x 2^23 rounds to an integer, which is then in the lowest bits. */
static void quantize(const float *x, int64_t n, float factor, int8_t *q)
{
    for (int64_t i = 0; i < n; i++) {
        float shifted = x[i] * factor + 12582912.0f;
        uint32_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        q[i] = (int8_t)(uint8_t)(bits & 0xff);
    }
}

static void quantize_range(void *user, int64_t begin, int64_t end)
{
    const quantizing *z = user;
    for (int64_t i = begin; i < end; i++) {
        float most = largest(z->x + i * z->ld, z->n);
        bool usual = most >= 128 * FLT_MIN && most <= FLT_MAX; /* less counts as zero: a factor would overflow */
        z->scales[i] = usual ? most / 127 : most <= FLT_MAX ? 0 : NAN;
        if (usual)
            quantize(z->x + i * z->ld, z->n, 127 / most, z->q + i * z->n);
        else
            memset(z->q + i * z->n, 0, (size_t)z->n);
    }
}

void attn__quantize_rows(int threads, int64_t rows, int64_t n, const float *x, int64_t ld, int8_t *q, float *scales)
{
    quantizing z = {n, ld, x, q, scales};
    attn__parallel_range(threads, rows, 1 + 16384 / (n + 1), quantize_range, &z);
}

/* What follows the sums, which lie where the result will. */
typedef struct epilogue {
    attn__elementwise_fn run;
    const float *rows, *columns, *bias;
    int kind;
    bool plain;
} epilogue;

static void finish(const void *user, void *c, int64_t row, int64_t column, int64_t n)
{
    const epilogue *e = user;
    const float *scales = e->columns + column;
    char *at = c;
    for (int64_t j = 0; j < n; j++, at += sizeof(float)) {
        int32_t sum;
        memcpy(&sum, at, sizeof sum);
        float y = (float)((double)sum * e->rows[row] * scales[j]); /* the scales' product may pass the largest float */
        memcpy(at, &y, sizeof y);
    }
    attn__elementwise_args args = {.x = e->bias ? e->bias + column : NULL, .y = c, .n = n, .kind = e->kind};
    if (!e->plain)
        e->run(&args, 0, 1);
}

bool attn__linear_int8(attn_tape *tape, const attn__gemm_args *g)
{
    const int8_t *kept;
    const float *kept_scales = NULL;
    if (!attn__quantized_weights_find(tape, g, &kept, &kept_scales))
        return false;
    size_t a = (size_t)(g->m * g->k), b = kept ? 0 : (size_t)(g->n * g->k);
    size_t scales = (size_t)(g->m + (kept ? 0 : g->n)) * sizeof(float);
    attn__hold hold = attn__scratch(tape, scales + a + b);
    if (!hold.data)
        return false;
    float *rows = hold.data, *columns = rows + g->m;
    int8_t *qa = (int8_t *)hold.data + scales, *qb = qa + a;
    attn__quantize_rows(tape->context->threads, g->m, g->k, g->a, g->lda, qa, rows);
    if (!kept)
        attn__quantize_rows(tape->context->threads, g->n, g->k, g->b, g->ldb, qb, columns);
    epilogue after = {.run = attn__elementwise_for(false, tape->context->isa)->run[ATTN__ELEMENTWISE_BIAS_ACTIVATE],
                      .rows = rows,
                      .columns = kept ? kept_scales : columns,
                      .bias = g->bias,
                      .kind = (int)g->activation,
                      .plain = !g->bias && g->activation == ATTN_IDENTITY};
    bool done = attn__gemm_problem_run(tape, &(attn__gemm_problem){.dtype = ATTN_I32,
                                                                   .m = g->m,
                                                                   .n = g->n,
                                                                   .k = g->k,
                                                                   .a = {qa, g->k, 1},
                                                                   .b = {kept ? kept : qb, g->k, 1},
                                                                   .c = g->c,
                                                                   .ldc = g->ldc,
                                                                   .finish = finish,
                                                                   .user = &after});
    attn__scratch_release(hold);
    return done;
}
