/* SPDX-License-Identifier: MIT
 *
 * axis_weights.h - the weights of attention along one axis of an array, in the shape [B,H,axes...,n]. Each position has
 * n weights: one for each position along the attended axis.
 */
#ifndef ATTN_NN_AXIS_WEIGHTS_H
#define ATTN_NN_AXIS_WEIGHTS_H

#include "nn/layers.h"

/* Requests the weights of an attention whose problem was made by attn_problem_axis, with the channels last. Returns
 * false and sets the error if the weights have more axes than a tensor allows. */
bool attn__nn_axis_weights_ask(attn_attention *a, attn_tape *tape, const attn_axis *axis, attn_tensor **weights);
/* Changes the order of the axes of attn_attend's weights [B,other axes...,H,n,n]. The heads become axis 1. The
 * queries move to the index of the attended axis. Does nothing if no weights were requested. */
void attn__nn_axis_weights_turn(attn_tape *tape, const attn_axis *axis, attn_tensor **weights);

#endif
