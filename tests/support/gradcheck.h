/* SPDX-License-Identifier: MIT
 *
 * gradcheck.h - gradients of an operation against central differences in double precision.
 */
#ifndef ATTN_TESTS_GRADCHECK_H
#define ATTN_TESTS_GRADCHECK_H

#include "attn/tensor.h"

enum { GRADCHECK_INPUTS = 10 };

typedef attn_tensor *(*gradcheck_build)(attn_tape *tape, attn_tensor *const *in, const void *user);

/* Builds y = build(in) for random f64 inputs of the given shapes (rank < 0 ends the list), takes the gradient
 * of sum(c * y) with random c, and compares every element of every input's gradient with a central
 * difference: at most 1e-6 of the tensor's largest.  In training mode, dropout and all.  Fails the test. */
typedef struct gradcheck_input {
    int rank;
    int64_t shape[8];
} gradcheck_input;
void gradcheck(int threads, gradcheck_build build, const void *user, int n, const gradcheck_input *inputs);

/* Random f64 numbers in (-1, 1) without those near zero, where a kink would spoil the difference. */
void gradcheck_fill(attn_tensor *tensor, uint64_t seed);

#endif
