/* SPDX-License-Identifier: MIT
 *
 * pt_tensor.h - finds the objects that the calls in a PyTorch pickle would make. */
#ifndef ATTN_IO_PT_TENSOR_H
#define ATTN_IO_PT_TENSOR_H

#include "io/tensors/pt.h"

/* Returns the node of a dict, list, tuple or plain value that `node` stands for, after known calls were resolved. If
 * `node` is a tensor, sets *tensor and returns the arguments of the call that makes the tensor. Returns NULL for
 * unknown objects. */
const attn__pickle_node *attn__pt_resolve(const attn__pt *pt, const attn__pickle_node *node, bool *tensor);
/* `arguments` are the arguments of the call that makes the tensor. array->name is not set. */
attn_status attn__pt_tensor(const attn__pt *pt, const attn__pickle_node *arguments, const char *name,
                            attn__array *array);

/* Returns the size in bytes of the elements that a storage of this class has, or 0 if the class is unknown. */
size_t attn__pt_storage_unit(const attn__pickle_node *class);

#endif
