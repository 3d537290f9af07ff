/* SPDX-License-Identifier: MIT
 *
 * compute_in.h - computes single operations in a given precision, as a model does. The benchmarks of the command-line
 * program use it. */
#ifndef ATTN_TENSOR_COMPUTE_IN_H
#define ATTN_TENSOR_COMPUTE_IN_H

#include "attn/tensor.h"

/* Makes the tape compute f32 products in this precision until the next reset. */
void attn_tape_compute_in(attn_tape *tape, attn_precision precision);
/* Packs a weight of linear layers once, like attn_model_pack_weights. w must be f32 [out,in] and own its data.
 * Afterwards only linear layers may use w. */
attn_status attn_tensor_pack_weights(attn_tensor *w, attn_precision precision);

#endif
