/* SPDX-License-Identifier: MIT
 *
 * compute_in.h - single operations with the products of a model of some precision, for the benchmarks of the command.
 */
#ifndef ATTN_TENSOR_COMPUTE_IN_H
#define ATTN_TENSOR_COMPUTE_IN_H

#include "attn/tensor.h"

/* Makes the tape compute f32 products in this precision until the next reset. */
void attn_tape_compute_in(attn_tape *tape, attn_precision precision);
/* Packs weights of linear layers once, as attn_model_pack_weights does. w is [out,in], f32, and owned by the tensor.
 * Afterwards only these layers may use w. */
attn_status attn_tensor_pack_weights(attn_tensor *w, attn_precision precision);

#endif
