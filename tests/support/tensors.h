/* SPDX-License-Identifier: MIT
 *
 * tensors.h - makes tensors with known contents and compares tensors.
 */
#ifndef ATTN_TESTS_TENSORS_H
#define ATTN_TESTS_TENSORS_H

#include "attn/tensor.h"

/* Creates a context. Exits the test program if that fails. */
attn_context *test_context(void);
/* Makes an f32 or f64 tensor of random numbers of variance 1 from `seed`. */
attn_tensor *test_random(attn_tape *tape, attn_dtype dtype, int rank, const int64_t *shape, uint64_t seed);
attn_tensor *test_ids(attn_tape *tape, int rank, const int64_t *shape, int64_t n, uint64_t seed);
attn_tensor *test_lens(attn_tape *tape, int64_t n, const int32_t *lens);
/* Element i of x; of f16 and bf16, its bits. */
double test_at(const attn_tensor *x, int64_t i);
void test_set(attn_tensor *x, int64_t i, double value);
/* Returns the largest difference of two elements, divided by the largest element of `b`. Returns infinity if the
 * shapes differ or a tensor is NULL. */
double test_distance(const attn_tensor *a, const attn_tensor *b);

#endif
