/* SPDX-License-Identifier: MIT
 *
 * product.h - one matrix product computed by a tape, for `attn bench` and bench/peers/products.py. The script
 * compiles product.c into its own shared library. */
#ifndef BENCH_PRODUCT_H
#define BENCH_PRODUCT_H

#include "attn/tensor.h"

/* A product's text is "m,n,k" with an optional letter: t means that B is transposed, as in a linear layer; p means t
 * with weights B that are packed before; a means that A is transposed, as in the gradient of a layer's weights. */
typedef struct bench_product_shape {
    int64_t m, n, k;
    bool transpose_a, transpose_b, packed;
} bench_product_shape;

typedef struct bench_product {
    bench_product_shape shape;
    attn_precision precision;
    attn_tape *tape;
    attn_tensor *a, *b;
    attn_tensor *result; /* result [m,n] of the last run, which the tape owns */
} bench_product;

/* Returns false if `text` is not a product or a size is above BENCH_PRODUCT_MOST. */
enum { BENCH_PRODUCT_MOST = 1 << 20 };
bool bench_product_parse(bench_product_shape *shape, const char *text);
/* Returns the i-th product of the list. Sets *model to the name of the model that uses it. Returns NULL past the
 * end. */
const char *bench_product_at(int i, const char **model);
/* Prepares the product of the f32 matrices a and b in the context's precision. A is [m,k], or [k,m] if it is
 * transposed. B is [k,n], or [n,k] if it is transposed. The caller owns both matrices. */
attn_status bench_product_open(bench_product *p, attn_context *context, const bench_product_shape *shape, float *a,
                               float *b);
attn_status bench_product_run(bench_product *p);
void bench_product_close(bench_product *p);

#endif
