/* SPDX-License-Identifier: MIT
 *
 * pt_tensor.h - finds the objects that the calls in a PyTorch pickle would make.
 */
#ifndef ATTN_IO_PT_TENSOR_H
#define ATTN_IO_PT_TENSOR_H

#include "io/tensors/pt.h"

/* Resolves known calls, and returns the content of a node: the node of a dict, list, tuple or plain value. If the
 * node is a tensor, returns the arguments of the call that rebuilds it, and sets *tensor. Returns NULL for unknown
 * objects. */
const attn__pickle_node *attn__pt_resolve(const attn__pt *pt, const attn__pickle_node *node, bool *tensor);
/* Makes the array that the arguments of the call that rebuilds a tensor describe. array->name is not set. */
attn_status attn__pt_tensor(const attn__pt *pt, const attn__pickle_node *arguments, const char *name,
                            attn__array *array);

/* Returns the size in bytes of an element of a storage of this class. Returns 0 for an unknown class. */
size_t attn__pt_storage_unit(const attn__pickle_node *class);

#endif
