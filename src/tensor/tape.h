/* SPDX-License-Identifier: MIT
 *
 * tape.h - types and functions that the tape and the backward pass share.
 */
#ifndef ATTN_TENSOR_TAPE_H
#define ATTN_TENSOR_TAPE_H

#include "tensor/tensor.h"

/* Releases the handle's data if nothing else refers to them. The handle stays. */
void attn__handle_drop_data(attn_tensor *tensor);
/* Frees the gradient of a tape's tensor. */
void attn__grad_drop(attn_tensor *tensor);
/* A part of the tape that is discarded at its end with its nodes, handles and memory. The struct holds the state to
 * restore. Recording may be switched during a section. Gradients of parameters are kept. */
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
/* Runs the section's nodes backwards, after the gradient of its result was given. Returns false if tape->failed is
 * set. */
bool attn__section_backward(attn_tape *tape);
/* Releases what the node saved for the backward pass. */
void attn__node_release(attn__node *node);

#endif
