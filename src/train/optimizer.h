/* SPDX-License-Identifier: MIT
 *
 * optimizer.h - an optimizer step that ranks with shared memory compute together. */
#ifndef ATTN_TRAIN_OPTIMIZER_H
#define ATTN_TRAIN_OPTIMIZER_H

#include "attn/train.h"
#include "tensor/all_reduce.h"

/* Does attn_optimizer_step if attn__all_reduce_is_shared(): computes this rank's part and waits for the other parts. On
 * any error parameters and state are unchanged. */
attn_status attn__optimizer_step_shared(attn_optimizer *optimizer, attn__all_reduce *all_reduce, double rate,
                                        double *norm);

/* Makes parameter i of the list train at `factor` times the learning rate of each step; initially 1. Not if ranks
 * compute a step together. */
void attn_optimizer_set_factor(attn_optimizer *optimizer, int64_t i, double factor);

#endif
