/* SPDX-License-Identifier: MIT
 *
 * tape.h - what the tape and the backward pass share.
 */
#ifndef ATTN_TENSOR_TAPE_H
#define ATTN_TENSOR_TAPE_H

#include "tensor/tensor.h"

/* The handle stays, its data go (as far as nobody else refers to them). */
void attn__handle_drop_data(attn_tensor *tensor);
/* Frees the gradient of a tape's tensor. */
void attn__grad_drop(attn_tensor *tensor);
/* Lets go of what the node saved for the backward pass. */
void attn__node_release(attn__node *node);

#endif
