/* SPDX-License-Identifier: MIT
 *
 * optimizer.h - a step that ranks with shared memory take together.
 */
#ifndef ATTN_TRAIN_OPTIMIZER_H
#define ATTN_TRAIN_OPTIMIZER_H

#include "attn/train.h"
#include "tensor/all_reduce.h"

/* attn_optimizer_step where attn__all_reduce_is_shared() holds: this rank's part of it, and the others' when they are
 * there.  Any error: parameters and state are what they were. */
attn_status attn__optimizer_step_shared(attn_optimizer *optimizer, attn__all_reduce *all_reduce, double rate,
                                        double *norm);

/* The parameter that comes i-th in the list is trained at `factor` times the rate of each step; 1 at first.  Not where
 * ranks take a step together. */
void attn_optimizer_set_factor(attn_optimizer *optimizer, int64_t i, double factor);

#endif
