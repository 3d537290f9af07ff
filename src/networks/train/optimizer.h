/* SPDX-License-Identifier: MIT
 *
 * optimizer.h - an optimizer step that ranks with shared memory compute together. */
#ifndef ATTN_TRAIN_OPTIMIZER_H
#define ATTN_TRAIN_OPTIMIZER_H

#include "attn/train.h"
#include "tensor/all_reduce.h"

/* Does a step like attn_optimizer_step, but together with the other ranks: computes this rank's part and waits for
 * the other parts. Call it only if attn__all_reduce_is_shared() is true. On any error, parameters and state are
 * unchanged. */
attn_status attn__optimizer_step_shared(attn_optimizer *optimizer, attn__all_reduce *all_reduce, double rate,
                                        double *norm);

/* Multiplies the learning rate of parameter i by `factor` in all later steps. The initial factor is 1. Must not be
 * called if several ranks compute a step together. */
void attn_optimizer_set_factor(attn_optimizer *optimizer, int64_t i, double factor);

#endif
