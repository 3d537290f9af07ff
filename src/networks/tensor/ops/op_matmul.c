/* SPDX-License-Identifier: MIT */
#include "tensor/matrix_product.h"
#include "tensor/op.h"

#include <string.h>

typedef struct matmul_detail {
    bool ta, tb;
    int64_t batch, m, n, k;
    bool shared; /* true: all matrices of a are multiplied by the same b */
} matmul_detail;

enum { A, B, INPUTS };

static const void *matrix(const void *data, attn_dtype dtype, int64_t index, int64_t size)
{
    return (const char *)data + (size_t)(index * size) * attn_dtype_size(dtype);
}

/* Computes one product per index of the batch. a_step and b_step are the distances between the operands of two
 * neighbouring products, and may be 0. Returns false if there is no memory. */
static bool products(attn_tape *tape, attn__gemm_problem g, int64_t batch, int64_t a_step, int64_t b_step,
                     int64_t c_step)
{
    const void *a = g.a.data, *b = g.b.data, *c = g.c;
    bool done = true;
    for (int64_t i = 0; i < batch && done; i++) {
        g.a.data = matrix(a, g.dtype, i, a_step);
        g.b.data = matrix(b, g.dtype, i, b_step);
        g.c = (void *)(uintptr_t)matrix(c, g.dtype, i, c_step);
        if (c_step == 0 && i > 0)
            g.add = true;
        done = attn__gemm(tape, &g);
    }
    return done;
}

/* Returns the number of columns of the stored matrix a, which is [m,k], or [k,m] if it is transposed. */
static int64_t a_width(const matmul_detail *d)
{
    return d->ta ? d->m : d->k;
}

static int64_t b_width(const matmul_detail *d)
{
    return d->tb ? d->k : d->n;
}

static void backward_a(attn_tape *tape, const matmul_detail *d, attn_tensor *a, const void *b, const void *dc)
{
    attn__target da = attn__grad_target(tape, a);
    if (!da.data)
        return;
    attn__gemm_problem g = {.dtype = a->dtype, .c = da.data, .ldc = a_width(d), .add = da.add};
    int64_t b_step = d->shared ? 0 : d->k * d->n;
    if (!d->ta) { /* dA [m,k] = dC op(B)^T, where op(B) is B, or B^T if b is stored transposed */
        g.m = d->m, g.n = d->k, g.k = d->n;
        g.a = attn__matrix_rows(dc, d->n, true);
        g.b = attn__matrix_rows(b, b_width(d), !d->tb);
        tape->failed |= !products(tape, g, d->batch, d->m * d->n, b_step, d->m * d->k);
    } else { /* a is stored transposed, and its gradient dA [k,m] is op(B) dC^T */
        g.m = d->k, g.n = d->m, g.k = d->n;
        g.a = attn__matrix_rows(b, b_width(d), !d->tb);
        g.b = attn__matrix_rows(dc, d->n, true);
        tape->failed |= !products(tape, g, d->batch, b_step, d->m * d->n, d->m * d->k);
    }
}

static void backward_b(attn_tape *tape, const matmul_detail *d, attn_tensor *b, const void *a, const void *dc)
{
    attn__target db = d->batch > 0 ? attn__grad_target(tape, b) : attn__grad_target_added(tape, b);
    if (!db.data)
        return;
    attn__gemm_problem g = {.dtype = b->dtype, .c = db.data, .ldc = b_width(d), .add = db.add, .k = d->m};
    int64_t c_step = d->shared ? 0 : d->k * d->n;
    if (!d->tb) { /* dB [k,n] = op(A)^T dC, where op(A) is A, or A^T if a is stored transposed */
        g.m = d->k, g.n = d->n;
        g.a = attn__matrix_rows(a, a_width(d), d->ta);
        g.b = attn__matrix_rows(dc, d->n, false);
        tape->failed |= !products(tape, g, d->batch, d->m * d->k, d->m * d->n, c_step);
    } else { /* b is stored transposed, and its gradient dB [n,k] is dC^T op(A) */
        g.m = d->n, g.n = d->k;
        g.a = attn__matrix_rows(dc, d->n, false);
        g.b = attn__matrix_rows(a, a_width(d), d->ta);
        tape->failed |= !products(tape, g, d->batch, d->m * d->n, d->m * d->k, c_step);
    }
}

static void matmul_backward(attn_tape *tape, attn__node *node)
{
    const matmul_detail *d = node->detail;
    backward_a(tape, d, node->x[A], node->saved[B].data, node->y->grad->data);
    backward_b(tape, d, node->x[B], node->saved[A].data, node->y->grad->data);
}

/* Computes the sizes of the product. Returns false and records an error if the shapes do not fit. */
static bool plan(attn_tape *tape, const attn_tensor *a, const attn_tensor *b, matmul_detail *d)
{
    bool fits = a->rank >= 2 && b->rank >= 2 && (b->rank == 2 || b->rank == a->rank);
    d->batch = 1;
    d->shared = fits && b->rank == 2;
    for (int i = 0; i < a->rank - 2 && fits; i++) {
        d->batch *= a->shape[i];
        fits = b->rank == 2 || a->shape[i] == b->shape[i];
    }
    if (fits) {
        d->m = a->shape[a->rank - (d->ta ? 1 : 2)];
        d->k = a->shape[a->rank - (d->ta ? 2 : 1)];
        d->n = b->shape[b->rank - (d->tb ? 2 : 1)];
        fits = d->k == b->shape[b->rank - (d->tb ? 1 : 2)];
    }
    if (!fits) {
        char ta[ATTN__SHAPE_TEXT], tb[ATTN__SHAPE_TEXT];
        attn__op_shape_error(tape, "matmul: a %s%s, b %s%s; expected a [...,m,k], and b [k,n] or [...,k,n]",
                             attn__shape_text(a, ta), d->ta ? " transposed" : "", attn__shape_text(b, tb),
                             d->tb ? " transposed" : "");
    }
    return fits;
}

attn_tensor *attn_matmul(attn_tape *tape, attn_tensor *a, attn_tensor *b, bool transpose_a, bool transpose_b)
{
    ATTN__TAPE_CALL(tape->context);
    matmul_detail d = {.ta = transpose_a, .tb = transpose_b};
    if (!attn__op_accepts(tape, "matmul", 2, a, b) || !plan(tape, a, b, &d))
        return NULL;
    int64_t shape[ATTN_MAX_RANK];
    memcpy(shape, a->shape, sizeof shape);
    shape[a->rank - 2] = d.m;
    shape[a->rank - 1] = d.n;
    /* all matrices of a are multiplied by the same b, so one product computes all their rows */
    if (d.shared && !d.ta) {
        d.m *= d.batch;
        d.batch = 1;
    }
    attn_tensor *y = attn__op_result(tape, a->dtype, a->rank, shape), *inputs[INPUTS] = {a, b};
    attn__node *node;
    if (!y || !attn__op_record(tape, &node, matmul_backward, y, INPUTS, inputs, INPUTS, sizeof d))
        return NULL;
    attn__gemm_problem g = {.dtype = a->dtype,
                            .m = d.m,
                            .n = d.n,
                            .k = d.k,
                            .a = attn__matrix_rows(a->data, a_width(&d), !d.ta),
                            .b = attn__matrix_rows(b->data, b_width(&d), d.tb),
                            .c = y->data,
                            .ldc = d.n};
    bool done = products(tape, g, d.batch, d.m * d.k, d.shared ? 0 : d.k * d.n, d.m * d.n);
    for (int i = 0; node && i < INPUTS; i++)
        if (attn__grad_wanted(inputs[1 - i]))
            attn__node_save(node, i, inputs[i]);
    if (node)
        *(matmul_detail *)node->detail = d;
    return done ? y : NULL;
}
