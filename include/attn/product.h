/* SPDX-License-Identifier: MIT
 *
 * product.h - products of matrices, by the product that the linear layers of models use, and normalization of rows.
 *
 *     C[i,j] = activation(sum over l of A[i,l] B[l,j] + bias[j]) * factor[i,j] + residual[i,j]
 *     or C[i,j] += sum over l of A[i,l] B[l,j]               0 <= i < m, 0 <= j < n, 0 <= l < k
 *
 * The matrices have any strides, so that transposed matrices need no copy. B may be packed once for many products.
 *
 *     attn_product product = {.m = rows, .n = out, .k = in,
 *                             .a = {x, ATTN_F32, in, 1}, .b = {w, ATTN_F32, 1, in}, .c = {y, ATTN_F32, out, 1},
 *                             .bias = b};                                              // y = x w^T + b, w [out,in]
 *     if (attn_multiply(context, &product) != ATTN_OK) puts(attn_context_error(context));
 *
 * The order of the sum of an element, and so its bits, depends on its row of A, its column of B, k and the precision. It
 * does not depend on the other rows and columns, on strides, packing or the number of threads, with one exception: on AMX
 * a matrix packed for F32 is also stored as int8 slices. A row of A is multiplied by slices if the error is proved to be
 * at most k 2^-24 sum |a||b| (Ootomo, Ozaki and Yokota 2024, arXiv:2306.11975; docs/numerics.md). FMA multiplies and adds
 * only.
 *
 * Threads: as attn.h says, one thread at a time may use a context. Packed matrices are only read, so several threads, each
 * with its own context, may multiply by one packed matrix at once. */
#ifndef ATTN_PRODUCT_H
#define ATTN_PRODUCT_H

#include "attn/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix, or a batch of matrices. Element (i, j) of matrix t is data[i*row + j*column + t*batch]. The caller owns the
 * elements, which are not changed unless the matrix is the result. A stride of 0 repeats elements, but not in a result. */
typedef struct attn_matrix {
    void *data;       /* NULL: no matrix, or a matrix without elements */
    attn_dtype dtype; /* F32, BF16 or F64 */
    int64_t row, column, batch;
} attn_matrix;

/* A product. Zero means the default in each field. */
typedef struct attn_product {
    int64_t m, n, k;
    int64_t batch; /* number of matrices of a, b, c, factor and residual; default: 1 */
    attn_matrix a; /* [m,k] */
    attn_matrix b; /* [k,n]; not read if `packed` is set */
    attn_matrix c; /* [m,n], the result. It overlaps no other matrix. In F64, the elements of a row are adjacent. */
    /* B, packed by attn_product_pack for `precision` (F32 and FMA read each other's); default: NULL, b is read. The batch
     * must then be 1. */
    const void *packed;
    /* F32: sums in f32 of f32 or bf16 numbers, or in f64 if all matrices are F64. BF16: f32 numbers are rounded to bf16,
     * and the sums are f32. INT8: as attn_precision says; only with `packed`. Default: F32 */
    attn_precision precision;
    bool add;         /* true: the product is added to C. There is then no bias, activation, factor or residual. */
    const void *bias; /* [n], F64 if C is F64, and otherwise as bias_dtype says; default: none */
    attn_activation activation;   /* default: none */
    attn_matrix factor, residual; /* [m,n] of C's type, whose elements along a row are adjacent; default: none */
    attn_dtype bias_dtype;        /* F32 or BF16; default: F32. Not used if C is F64 */
    int64_t reserved[7];          /* must be zero; reserved for later versions */
} attn_product;

/* Computes a product. The scratch memory is the context's, which keeps up to 64 MiB of it for later calls. A number that
 * is not finite gives NaN or infinity in its row or column only, except in INT8, which is for finite numbers.
 * ATTN_ERROR_SHAPE: a size is negative, or larger than 2^40. ATTN_ERROR_ARGUMENT: a matrix with elements has no data, an
 * unknown activation or precision, `add` with what comes after the sum, `packed` is not aligned to 64 bytes, is not
 * a packed matrix, or has another size or precision, INT8 without `packed`, or factor or residual without adjacent
 * elements. ATTN_ERROR_UNSUPPORTED: a type that is not listed above, F64 next to another type, rows of an F64 result that
 * are not adjacent, a batch with `packed`, or
 * a matrix that another machine or instruction set has packed. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_multiply(attn_context *context, const attn_product *product);

/* Sets *bytes to the size of a packed matrix [k,n] for products in `precision`, which is not DEFAULT: about the bytes
 * of k*n numbers of f32 (F32 on AMX: 1.75 times these), bf16 (f32 where the machine's fastest products of bf16 numbers
 * multiply f32 numbers) or int8. `dtype` is F64 for products in F64, and otherwise F32 or BF16. ATTN_ERROR_SHAPE: a
 * size is below 1 or above 2^40, or more than 2^60 bytes. ATTN_ERROR_ARGUMENT: an unknown precision.
 * ATTN_ERROR_UNSUPPORTED: another type, F64 in another precision than F32, or more than 130,000 rows in INT8, whose
 * sums would not fit. */
ATTN_API attn_status attn_product_packed_size(size_t *bytes, attn_context *context, attn_precision precision,
                                              attn_dtype dtype, int64_t k, int64_t n);
/* Packs the matrix b [k,n] for products in `precision` to `packed`, memory of the caller of the size above, aligned to
 * 64 bytes. F32 and BF16 matrices may have any numbers. A packed matrix can be copied, but only a machine of the same
 * kind, with the same instruction set, can read it. For INT8 each column has one scale, its largest number divided by 127.
 * The errors are those of attn_product_packed_size, and ATTN_ERROR_ARGUMENT if `packed` is not aligned or b has no
 * data. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_product_pack(attn_context *context, attn_precision precision, const attn_matrix *b, int64_t k,
                                       int64_t n, void *packed);
/* Copies `count` columns of a packed matrix to the columns of `to` [k,count], which is F32, BF16, or F64 if the packed
 * matrix is F64: column columns[i], or column i if `columns` is NULL. Matrices packed for F32 have the bits of the
 * original numbers. Matrices packed for BF16 have the numbers rounded to bf16, and INT8 has the integers times their
 * scale. ATTN_ERROR_ARGUMENT: `packed` is not aligned or not a packed matrix, a column is not in [0, n), or `to` has no data
 * or adjacent columns that overlap. ATTN_ERROR_UNSUPPORTED: another type of `to`, or a matrix that another machine or
 * instruction set has packed. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_product_unpack(attn_context *context, const void *packed, const int64_t *columns,
                                         int64_t count, const attn_matrix *to);

/* A normalization of rows, each by itself. Zero means the default in each field. */
typedef struct attn_row_norm {
    int64_t rows, n;
    /* [rows,n], the input and the result, F32 or BF16; elements of a row are adjacent. y may be x, if both have the same
     * type and the same strides. Otherwise they do not overlap. */
    attn_matrix x, y;
    const void *gain, *bias; /* [n]; default: 1 and 0 */
    attn_dtype dtype;        /* of gain and bias, F32 or BF16; default: F32 */
    bool root_mean_square;   /* true: x is divided by the root of the mean of x^2 + eps, and nothing is subtracted */
    double eps;
    int64_t reserved[4]; /* must be zero; reserved for later versions */
} attn_row_norm;

/* Computes y = (x - mean) / sqrt(variance + eps) * gain + bias for each row, as layer normalization does (Ba, Kiros and
 * Hinton 2016, arXiv:1607.06450), or y = x / sqrt(mean of x^2 + eps) * gain + bias (Zhang and Sennrich 2019,
 * arXiv:1910.07467). Numbers of BF16 are computed in f32 and rounded once. ATTN_ERROR_SHAPE: a size is negative or above
 * 2^40. ATTN_ERROR_ARGUMENT: a matrix with elements has no data or elements that are not adjacent, or rows of y overlap.
 * ATTN_ERROR_UNSUPPORTED: a type that is not listed above. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_normalize_rows(attn_context *context, const attn_row_norm *norm);

#ifdef __cplusplus
}
#endif
#endif
