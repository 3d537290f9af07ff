/* SPDX-License-Identifier: MIT
 *
 * bench_product.h - one product of matrices as a tape computes it, for `attn bench` and bench/peers/products.py, which
 * compiles bench_product.c into a shared library of its own. */
#ifndef CLI_BENCH_PRODUCT_H
#define CLI_BENCH_PRODUCT_H

#include "attn/tensor.h"

/* "m,n,k" and a letter or none: t multiplies by B transposed, as a linear layer does, p the same with B packed before,
 * a multiplies A transposed, as the gradient of the layer's weights does. */
typedef struct bench_product_shape {
    int64_t m, n, k;
    bool transpose_a, transpose_b, packed;
} bench_product_shape;

typedef struct bench_product {
    bench_product_shape shape;
    attn_precision precision;
    attn_tape *tape;
    attn_tensor *a, *b;
    attn_tensor *result; /* [m,n] of the last run, the tape's */
} bench_product;

/* False: `text` is no product, or has a size above BENCH_PRODUCT_MOST. */
enum { BENCH_PRODUCT_MOST = 1 << 20 };
bool bench_product_parse(bench_product_shape *shape, const char *text);
/* The i-th product of the list and the model that it is from; NULL past the end. */
const char *bench_product_at(int i, const char **model);
/* In the context's precision, of f32 matrices in the caller's memory, A [m,k] ([k,m] if transposed) and B [k,n] ([n,k]).
 */
attn_status bench_product_open(bench_product *p, attn_context *context, const bench_product_shape *shape, float *a,
                               float *b);
attn_status bench_product_run(bench_product *p);
void bench_product_close(bench_product *p);

#endif
