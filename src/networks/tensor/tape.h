/* SPDX-License-Identifier: MIT
 *
 * tape.h - types and functions that the tape and the backward pass share.
 */
#ifndef ATTN_TENSOR_TAPE_H
#define ATTN_TENSOR_TAPE_H

#include "tensor/tensor.h"

/* Releases the data of the handle, which are freed if nothing else refers to them. The handle stays. */
void attn__handle_drop_data(attn_tensor *tensor);
/* Frees the gradient of a tensor that a tape owns. */
void attn__grad_drop(attn_tensor *tensor);
/* The state of a tape before a section, which is restored at the section's end. A section is a part of the tape. At its
 * end, its nodes, handles and memory are discarded, but gradients of parameters are kept. Recording may be switched
 * during a section. */
typedef struct attn__section {
    attn_tensor *tensors, *idle;
    attn__node *nodes;
    attn__chunk *chunk;
    size_t used;
    unsigned section;
    int depth;
    bool record, again;
} attn__section;
attn__section attn__section_begin(attn_tape *tape);
void attn__section_end(attn_tape *tape, const attn__section *outer);
/* Runs the backward pass of the section's nodes. The gradient of the section's result must already be set. Returns
 * false if tape->failed is set. */
bool attn__section_backward(attn_tape *tape);
void attn__node_release(attn__node *node);

#endif
