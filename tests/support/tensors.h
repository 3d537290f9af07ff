/* SPDX-License-Identifier: MIT
 *
 * tensors.h - tensors with known contents, and comparing them. */
#ifndef ATTN_TESTS_TENSORS_H
#define ATTN_TESTS_TENSORS_H

#include "attn/tensor.h"

/* A context, or the test program ends. */
attn_context *test_context(void);
/* Random numbers of variance 1 from `seed`; f32 or f64. */
attn_tensor *test_random(attn_tape *tape, attn_dtype dtype, int rank, const int64_t *shape, uint64_t seed);
/* Ids in [0, n). */
attn_tensor *test_ids(attn_tape *tape, int rank, const int64_t *shape, int64_t n, uint64_t seed);
attn_tensor *test_lens(attn_tape *tape, int64_t n, const int32_t *lens);
/* Element i as a double. */
double test_at(const attn_tensor *x, int64_t i);
void test_set(attn_tensor *x, int64_t i, double value);
/* Largest difference of elements over the largest element of `b`; infinite if shapes differ or one is NULL. */
double test_distance(const attn_tensor *a, const attn_tensor *b);

#endif
