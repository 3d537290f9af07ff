/* SPDX-License-Identifier: MIT
 *
 * compute_in.h - products of single operations as a model of some precision has them, for the command's benchmarks.
 */
#ifndef ATTN_TENSOR_COMPUTE_IN_H
#define ATTN_TENSOR_COMPUTE_IN_H

#include "attn/tensor.h"

/* Until the next reset the tape's products of f32 are computed in this precision. */
void attn_tape_compute_in(attn_tape *tape, attn_precision precision);
/* The weights of linear layers [out,in], f32 that the tensor owns, packed once, as attn_model_pack_weights does with a
 * model's: w serves these layers alone from then on. */
attn_status attn_tensor_pack_weights(attn_tensor *w, attn_precision precision);

#endif
