/* SPDX-License-Identifier: MIT
 *
 * axis_weights.h - the weights of attention along one axis of an array, as [B,H,axes...,n]: for each position, its
 * weights over the n positions of its line. */
#ifndef ATTN_NN_AXIS_WEIGHTS_H
#define ATTN_NN_AXIS_WEIGHTS_H

#include "nn/layers.h"

/* Requests the weights of an attention from attn_problem_axis with the channels last. False (error set): the weights
 * have more axes than a tensor allows. */
bool attn__nn_axis_weights_ask(attn_attention *a, attn_tape *tape, const attn_axis *axis, attn_tensor **weights);
/* Reorders the weights of attn_attend, [B,other axes...,H,n,n]. Does nothing without a request. */
void attn__nn_axis_weights_turn(attn_tape *tape, const attn_axis *axis, attn_tensor **weights);

#endif
