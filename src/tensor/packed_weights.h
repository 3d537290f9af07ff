/* SPDX-License-Identifier: MIT
 *
 * packed_weights.h - weights of linear layers packed once for many products: for the duration of a call on a tape, or
 * for good, in place of the parameters or in addition to them.  With few rows, as in decoding, packing (in int8:
 * quantizing) takes longer than multiplying; f32 on AMX uses slices only with weights that are packed so.  In bf16 and
 * int8 the packed form has a half or a quarter of the bytes.
 *
 * Between begin and end no code may write to a parameter that a linear layer reads on this tape: the caller of begin
 * holds the model for the whole call.  The bits are those of products that pack for themselves (gemm/gemm.h), but with
 * slices. */
#ifndef ATTN_TENSOR_PACKED_WEIGHTS_H
#define ATTN_TENSOR_PACKED_WEIGHTS_H

#include "tensor/matrix_product.h"

typedef struct attn__packed_weights attn__packed_weights;

/* Begins the sharing of packed weights on the tape. Begins nest; the tape's outermost end releases the weights.
 * ATTN_ERROR_MEMORY (noted): nothing has begun. */
attn_status attn__packed_weights_begin(attn_tape *tape);
/* The same with the weights of `owner`, which has begun: each is packed once for all tapes that share, whichever
 * requests it first, and any of them may be used on a thread of its own.  Their contexts have one instruction set.  The
 * owner's context outlives the tape's end. */
void attn__packed_weights_share(attn_tape *tape, attn_tape *owner);
/* Call it before the tape is destroyed. Without a begin it has no effect. */
void attn__packed_weights_end(attn_tape *tape);
/* Call it before some weights are freed while the tape continues: later weights at the same address are packed anew. */
void attn__packed_weights_forget(attn_tape *tape, const attn_tensor *w);
/* *packed: the weights [out,in] packed for the tape's precision: for good, now, or by an earlier call.  NULL outside of
 * begin and end, while the tape records, for a product of more than some hundred rows (unless as slices), and for weights
 * that an operation made, if they are not packed for good.  False (noted) without memory, and for weights that are there in
 * packed form alone where the tape records or has another precision. */
bool attn__packed_weights_find(attn_tape *tape, attn_tensor *w, int64_t rows, const attn__packed **packed);

/* ------------------------------------------------------------------------------------------- for good */

/* Packs a parameter that linear layers read (tensor.h: linear or tied) for products of this precision; other parameters
 * stay as they are.  A weight that is read in parts (in_parts) becomes rows of bf16 in bf16, and otherwise stays as it
 * is.  The packed form belongs to the tensor and replaces its data, with three exceptions: tables in bf16 and int8,
 * whose rows cannot be read from panels; f32 on AMX, whose products may need both; memory that others share.  Nobody
 * else uses the tensor meanwhile; afterwards any number of threads may read it.  ATTN_ERROR_MEMORY (noted). */
attn_status attn__weight_pack(attn_tensor *w, attn_precision precision);
/* Whether a parameter may begin without memory (tensor.h: packs_on_load), because its packed form will replace its data. */
bool attn__weight_can_pack_on_load(const attn_tensor *w, attn_precision precision);
/* The weight's numbers in rows of f32 or f64, or, with *bf16, of bf16. NULL: the weight has only panels, or rows
 * that products of this tape cannot read (noted). */
const void *attn__weight_rows(attn_tape *tape, const attn_tensor *w, bool *bf16);
/* Called before and after a tensor's numbers are written. A tensor that packs on load gets memory before the write
 * and is packed after it. ATTN_ERROR_MEMORY (noted). */
attn_status attn__weight_fill(attn_tensor *w);
attn_status attn__weight_filled(attn_tensor *w);

#endif
