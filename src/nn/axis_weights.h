/* SPDX-License-Identifier: MIT
 *
 * axis_weights.h - the weights of attention along one axis of an array, as [B,H,axes...,n]: those of each place over the n
 * places of its line. */
#ifndef ATTN_NN_AXIS_WEIGHTS_H
#define ATTN_NN_AXIS_WEIGHTS_H

#include "nn/layers.h"

/* Requests the weights of an attention that attn_problem_axis described, the channels being the last axis.  False (noted):
 * they have more axes than a tensor. */
bool attn__nn_axis_weights_ask(attn_attention *a, attn_tape *tape, const attn_axis *axis, attn_tensor **weights);
/* Brings what attn_attend made of them, [B,other axes...,H,n,n], in order; a request for none is passed over. */
void attn__nn_axis_weights_turn(attn_tape *tape, const attn_axis *axis, attn_tensor **weights);

#endif
