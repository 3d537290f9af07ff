/* SPDX-License-Identifier: MIT
 *
 * packed_weights.h - weights of linear layers packed once for many products with few rows, as decoding has them: there
 * packing, in int8 quantizing, takes longer than multiplying.
 *
 * Between begin and end nobody may write to a parameter that a linear layer reads on this tape: whoever begins holds the
 * model for the whole call.  The bits are those of products that pack for themselves (gemm/gemm.h). */
#ifndef ATTN_TENSOR_PACKED_WEIGHTS_H
#define ATTN_TENSOR_PACKED_WEIGHTS_H

#include "tensor/matrix_product.h"

typedef struct attn__packed_weights attn__packed_weights;

/* ATTN_MEMORY (noted): nothing has begun then.  Begins nest, and the outermost end lets go of all. */
attn_status attn__packed_weights_begin(attn_tape *tape);
/* Before the tape is destroyed.  Without a begin it does nothing. */
void attn__packed_weights_end(attn_tape *tape);
/* *packed: the weights [out,in] packed for the tape's precision, now or by an earlier call; NULL outside of begin and end,
 * while the tape records, for a product of more than some hundred rows, and for weights that an operation made.  False (noted) without memory. */
bool attn__packed_weights_find(attn_tape *tape, const attn_tensor *w, int64_t rows, const attn__packed **packed);

#endif
