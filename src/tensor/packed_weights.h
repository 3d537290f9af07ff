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

/* ATTN_ERROR_MEMORY (noted): nothing has begun then.  Begins nest, and the tape's outermost end lets go of its
 * weights. */
attn_status attn__packed_weights_begin(attn_tape *tape);
/* The same with the weights of `owner`, which has begun: each is packed once for all tapes that share, whichever
 * asks first, and any of them may be used on a thread of its own.  Their contexts have one instruction set.  The
 * owner's context outlives the tape's end. */
void attn__packed_weights_share(attn_tape *tape, attn_tape *owner);
/* Before the tape is destroyed.  Without a begin it does nothing. */
void attn__packed_weights_end(attn_tape *tape);
/* Before weights that it may have found are freed while others stay: what lies at their place later is packed anew. */
void attn__packed_weights_forget(attn_tape *tape, const attn_tensor *w);
/* Until it is called with `false`: weights that are found are taken, that is, their packed form becomes their only one.
 * After the last end their tensors are of no more use.  A table is taken in f32 and f64 alone, of which rows can be
 * read.  One tape at a time may find them meanwhile. */
void attn__packed_weights_take(attn_tape *tape, bool takes);
/* *packed: the weights [out,in] packed for the tape's precision, now or by an earlier call; NULL outside of begin
 * and end, while the tape records, for a product of more than some hundred rows, and for weights that an operation
 * made.  False (noted) without memory, and for weights that were taken where the tape records or has
 * another precision. */
bool attn__packed_weights_find(attn_tape *tape, attn_tensor *w, int64_t rows, const attn__packed **packed);

#endif
