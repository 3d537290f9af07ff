/* SPDX-License-Identifier: MIT
 *
 * compute_in.h - products of single operations as a model of some precision has them, for the command's benchmarks.
 */
#ifndef ATTN_TENSOR_COMPUTE_IN_H
#define ATTN_TENSOR_COMPUTE_IN_H

#include "attn/tensor.h"

/* Until the next reset the tape computes products of f32 in this precision. */
void attn_tape_compute_in(attn_tape *tape, attn_precision precision);
/* Packs weights of linear layers once, as attn_model_pack_weights does. w is [out,in], f32, owned by the tensor.
 * Afterwards w serves only these layers. */
attn_status attn_tensor_pack_weights(attn_tensor *w, attn_precision precision);

#endif
