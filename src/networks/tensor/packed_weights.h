/* SPDX-License-Identifier: MIT
 *
 * packed_weights.h - weights of linear layers that are packed once for many products. Packed weights exist either until
 * sharing on a tape ends, or permanently, in place of a parameter's data or in addition to them. Packing once has three
 * advantages. For products of few rows, as in decoding, packing or quantizing takes longer than multiplying. f32
 * products on AMX can use slices only if weights are packed in advance. In bf16 and int8, the packed form has a half or
 * a quarter of the bytes.
 *
 * Between begin and end no code may write to a parameter that a linear layer reads on this tape. The caller of
 * attn__packed_weights_begin must keep the model until the sharing ends. Results have the same bits as those of
 * products that pack their own operands (gemm/gemm.h), except with slices.
 */
#ifndef ATTN_TENSOR_PACKED_WEIGHTS_H
#define ATTN_TENSOR_PACKED_WEIGHTS_H

#include "tensor/matrix_product.h"

typedef struct attn__packed_weights attn__packed_weights;

/* Begins to keep packed weights for the products of this tape. Each begin needs an end. After the last end, the packed
 * weights are released. If it returns ATTN_ERROR_MEMORY, nothing has begun. */
attn_status attn__packed_weights_begin(attn_tape *tape);
/* Lets `tape` use the packed weights of `owner`, on which attn__packed_weights_begin was called. Each weight is then
 * packed once for all these tapes, which may be used by different threads. All contexts must have the same instruction
 * set. The context of `owner` must exist until the sharing on `tape` has ended. */
void attn__packed_weights_share(attn_tape *tape, attn_tape *owner);
/* Ends the use of packed weights on this tape, which attn__packed_weights_begin or attn__packed_weights_share has
 * begun. Must be called before the tape is destroyed. Does nothing if neither was called. */
void attn__packed_weights_end(attn_tape *tape);
/* Removes a weight from the list of packed weights. Must be called before the weight is freed, if the tape is still
 * used, because a later weight may have the same address. */
void attn__packed_weights_forget(attn_tape *tape, const attn_tensor *w);
/* Sets *packed to the packed form of the weight w [out,in] for the tape's precision. This is the permanent packed form,
 * or a form that was packed by this call or an earlier one. If w has no permanent packed form, *packed is NULL in four
 * cases: sharing has not begun; the tape records; the product has more than about a thousand rows and slices are not
 * used; or w is the result of an operation. Returns false and records an error if there is no memory, or if w exists
 * only in packed form and the tape records or has another precision. */
bool attn__packed_weights_find(attn_tape *tape, attn_tensor *w, int64_t rows, const attn__packed **packed);

/* ------------------------------------------------------------------------------------------- for good */

/* Packs a parameter that linear layers read (`linear` or `tied` in tensor.h) for products of this precision. Other
 * parameters are left unchanged. If a weight is also read in parts (in_parts), it is packed as rows of bf16 if the
 * precision is bf16, and otherwise left unchanged. The packed form belongs to the tensor and replaces its data. In
 * three cases the data are kept, too: tables in bf16 and int8, because their rows cannot be read from panels; f32 on
 * AMX, because products may need both forms; and data whose memory is shared. No other code may use the tensor during
 * the call. Afterwards any number of threads may read it. Returns ATTN_ERROR_MEMORY if there is no memory. */
attn_status attn__weight_pack(attn_tensor *w, attn_precision precision);
/* Returns whether a parameter can stay without memory until it is loaded (packs_on_load in tensor.h). It can if its
 * packed form will replace its data. */
bool attn__weight_can_pack_on_load(const attn_tensor *w, attn_precision precision);
/* Returns the weight's data as rows. Rows are f32 or f64, or bf16 if *bf16 becomes true. Returns NULL and records an
 * error if the weight has only panels, or only rows that this tape's products cannot read. */
const void *attn__weight_rows(attn_tape *tape, const attn_tensor *w, bool *bf16);
/* attn__weight_fill must be called before a tensor's elements are written, and attn__weight_filled after that. If the
 * tensor packs on load, the first allocates its memory and the second packs it. Both return ATTN_ERROR_MEMORY if there
 * is no memory. */
attn_status attn__weight_fill(attn_tensor *w);
attn_status attn__weight_filled(attn_tensor *w);

#endif
