/* SPDX-License-Identifier: MIT
 *
 * pt_tensor.h - the objects that the calls of a PyTorch pickle would make. */
#ifndef ATTN_IO_PT_TENSOR_H
#define ATTN_IO_PT_TENSOR_H

#include "io/tensors/pt.h"

/* Returns the content of a node after known calls are resolved. This is the node of a dict, list, tuple or plain value,
 * or the arguments of the call that rebuilds a tensor, with *tensor set. Returns NULL for unknown objects. */
const attn__pickle_node *attn__pt_resolve(const attn__pt *pt, const attn__pickle_node *node, bool *tensor);
/* Makes the array that the arguments of a tensor's call describe. array->name is not set. */
attn_status attn__pt_tensor(const attn__pt *pt, const attn__pickle_node *arguments, const char *name,
                            attn__array *array);

/* Returns the bytes of an element in this class of storage, or 0 for an unknown class. */
size_t attn__pt_storage_unit(const attn__pickle_node *class);

#endif
