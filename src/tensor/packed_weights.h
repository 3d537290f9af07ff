/* SPDX-License-Identifier: MIT
 *
 * packed_weights.h - weights of linear layers that are packed once for many products. They are packed for the duration
 * of a call on a tape, or permanently, in place of the parameters or in addition to them. With few rows, as in
 * decoding, packing (or quantizing to int8) takes longer than multiplying. f32 products on AMX use slices only if the
 * weights are packed in advance. In bf16 and int8 the packed form has a half or a quarter of the bytes.
 *
 * Between begin and end no code may write to a parameter that a linear layer reads on this tape. The caller of begin
 * holds the model for the whole call. Results have the same bits as products that pack their own operands
 * (gemm/gemm.h), except with slices. */
#ifndef ATTN_TENSOR_PACKED_WEIGHTS_H
#define ATTN_TENSOR_PACKED_WEIGHTS_H

#include "tensor/matrix_product.h"

typedef struct attn__packed_weights attn__packed_weights;

/* Begins the sharing of packed weights on the tape. Begins nest; the outermost end of the tape releases the weights.
 * After ATTN_ERROR_MEMORY nothing has begun. */
attn_status attn__packed_weights_begin(attn_tape *tape);
/* Begins sharing with the packed weights of `owner`, which has begun. Each weight is packed once for all tapes that
 * share. Each tape may be used on a thread of its own. All contexts have the same instruction set. The context of the
 * owner must outlive the end of this tape. */
void attn__packed_weights_share(attn_tape *tape, attn_tape *owner);
/* Ends the sharing. Call it before the tape is destroyed. Without a begin it has no effect. */
void attn__packed_weights_end(attn_tape *tape);
/* Forgets a packed weight. Call it before the weight is freed while the tape continues. Later weights at the same
 * address are then packed anew. */
void attn__packed_weights_forget(attn_tape *tape, const attn_tensor *w);
/* Sets *packed to the weights [out,in], packed for the tape's precision permanently, by this call or by an earlier
 * call. *packed is NULL outside of begin and end, while the tape records, for a product of more than about a thousand
 * rows (except with slices), and for weights that an operation made, unless they are packed permanently. Returns false
 * and records an error if there is no memory. It also fails for weights that exist only packed, if the tape records or
 * has another precision. */
bool attn__packed_weights_find(attn_tape *tape, attn_tensor *w, int64_t rows, const attn__packed **packed);

/* ------------------------------------------------------------------------------------------- for good */

/* Packs a parameter that linear layers read (`linear` or `tied` in tensor.h) for products of this precision. Other
 * parameters are left unchanged. A weight that is read in parts (in_parts) becomes rows of bf16 if the precision is
 * bf16, and otherwise is left unchanged. The packed form belongs to the tensor and replaces its data, with three
 * exceptions: tables in bf16 and int8, whose rows cannot be read from panels; f32 on AMX, whose products may need both;
 * memory that others share. No other code may use the tensor during the call. Afterwards any number of threads may read
 * it. Returns ATTN_ERROR_MEMORY if there is no memory. */
attn_status attn__weight_pack(attn_tensor *w, attn_precision precision);
/* Returns whether a parameter may begin without memory (packs_on_load in tensor.h), because its packed form replaces
 * its data. */
bool attn__weight_can_pack_on_load(const attn_tensor *w, attn_precision precision);
/* Returns the weight's numbers as rows of f32 or f64, or of bf16 if *bf16 becomes true. Returns NULL and records an
 * error if the weight has only panels, or rows that products of this tape cannot read. */
const void *attn__weight_rows(attn_tape *tape, const attn_tensor *w, bool *bf16);
/* Called before a tensor's numbers are written; attn__weight_filled is called after that. A tensor that packs on load
 * gets memory before the write and is packed after it. Both return ATTN_ERROR_MEMORY if there is no memory. */
attn_status attn__weight_fill(attn_tensor *w);
attn_status attn__weight_filled(attn_tensor *w);

#endif
