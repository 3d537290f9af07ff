/* SPDX-License-Identifier: MIT
 *
 * gradcheck.h - compares gradients of an operation with central differences in double precision.
 */
#ifndef ATTN_TESTS_GRADCHECK_H
#define ATTN_TESTS_GRADCHECK_H

#include "attn/tensor.h"

enum { GRADCHECK_INPUTS = 10 };

typedef attn_tensor *(*gradcheck_build)(attn_tape *tape, attn_tensor *const *in, const void *user);

/* The shape of one input; rank < 0 ends the list of inputs. gradcheck fills inputs with random f64 numbers and
 * computes y = build(in) and the gradient of sum(c * y), with random c. It compares every element of this gradient
 * with a central difference. The test fails if a difference is above 1e-6 of the tensor's largest gradient. The tape
 * is in training mode, with dropout. */
typedef struct gradcheck_input {
    int rank;
    int64_t shape[8];
} gradcheck_input;
void gradcheck(int threads, gradcheck_build build, const void *user, int n, const gradcheck_input *inputs);

/* Fills a tensor with random f64 numbers in (-1, 1). No number is near zero, because a kink at zero would make the
 * central difference wrong. */
void gradcheck_fill(attn_tensor *tensor, uint64_t seed);

#endif
