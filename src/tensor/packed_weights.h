/* SPDX-License-Identifier: MIT
 *
 * packed_weights.h - weights of linear layers packed once for many products with few rows, as decoding has them: there
 * packing takes longer than multiplying.
 *
 * Between begin and end nobody may write to a parameter that a linear layer reads on this tape.  The bits are those of
 * products that pack for themselves (gemm/gemm.h). */
#ifndef ATTN_TENSOR_PACKED_WEIGHTS_H
#define ATTN_TENSOR_PACKED_WEIGHTS_H

#include "tensor/matrix_product.h"

typedef struct attn__packed_weights attn__packed_weights;

/* ATTN_MEMORY (noted). */
attn_status attn__packed_weights_begin(attn_tape *tape);
/* Lets go of them; before the tape is destroyed.  Without a begin it does nothing. */
void attn__packed_weights_end(attn_tape *tape);
/* *packed: the weights [out,in] packed for the tape's precision, now or by an earlier call; NULL outside of begin and end,
 * and while the tape records.  False (noted) without memory. */
bool attn__packed_weights_find(attn_tape *tape, const attn_tensor *w, const attn__packed **packed);

#endif
