/* SPDX-License-Identifier: MIT
 *
 * op.h - functions from which operations are built. An operation usually has this form:
 *
 *     attn_tensor *attn_thing(attn_tape *tape, attn_tensor *x)
 *     {
 *         if (!attn__op_accepts(tape, "thing", 1, x)) return NULL;
 *         attn_tensor *y = attn__op_result(tape, x->dtype, x->rank, x->shape);
 *         ...compute...
 *         attn__node *node;
 *         if (!attn__op_record(tape, &node, thing_backward, y, 1, &x, 1, 0)) return NULL;
 *         if (node) attn__node_save(node, 0, x);
 *         return y;
 *     }
 *
 * thing_backward gets a buffer from attn__grad_target, or passes a buffer on with attn__grad_give.
 */
#ifndef ATTN_TENSOR_OP_H
#define ATTN_TENSOR_OP_H

#include "kernels/elementwise/elementwise.h"
#include "tensor/tensor.h"

/* Returns true if the n tensors exist, hold data, and are all f32 or all f64. A NULL tensor returns false without an
 * error. */
bool attn__op_accepts(attn_tape *tape, const char *op, int n, ...);
/* Returns whether the tensor is a weight with a low-rank adapter, which only linear layers support. NULL gives
 * false. */
bool attn__op_is_adapted(const attn_tensor *w);
/* Returns whether the tensor is a weight that exists only packed (packed_weights.h). If x is not NULL, the weight must
 * also have x's type. w = NULL gives false. */
bool attn__op_is_packed(const attn_tensor *w, const attn_tensor *x);
/* Records ATTN_ERROR_SHAPE with a message of the form "op: ..." and returns NULL. */
attn_tensor *attn__op_shape_error(attn_tape *tape, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool attn__same_shape(const attn_tensor *a, const attn_tensor *b);
/* Returns the number of rows along the last axis: the product of the other lengths. */
int64_t attn__row_count(const attn_tensor *x);
/* Returns the axis counted from the front. Returns -1 and records an error if the tensor has no such axis. */
int attn__op_axis(attn_tape *tape, const char *op, const attn_tensor *x, int axis);

attn_tensor *attn__op_result(attn_tape *tape, attn_dtype dtype, int rank, const int64_t *shape);
/* Returns a view of x's data that begins at element `offset`. */
attn_tensor *attn__op_view(attn_tape *tape, attn_tensor *x, int64_t offset, int rank, const int64_t *shape);

/* Records the operation if the tape records and some x needs a gradient. Otherwise sets *node to NULL. x may contain
 * NULLs. Returns false if there is no memory for the node. */
bool attn__op_record(attn_tape *tape, attn__node **node, void (*backward)(attn_tape *, attn__node *), attn_tensor *y,
                     int nx, attn_tensor *const *x, int nsaved, size_t detail);
/* Records the operation even if no x needs a gradient. This is for operations that read parameters which are not in
 * x. */
bool attn__op_record_always(attn_tape *tape, attn__node **node, void (*backward)(attn_tape *, attn__node *),
                            attn_tensor *y, int nx, attn_tensor *const *x, int nsaved, size_t detail);
/* Keeps the data of `tensor` for the backward pass. attn__node_save_hold keeps a hold that the caller passes on. */
void attn__node_save(attn__node *node, int i, const attn_tensor *tensor);
void attn__node_save_hold(attn__node *node, int i, attn__hold hold);

/* Takes memory from the tape's pool. .data is NULL, with an error recorded, if there is no memory. */
attn__hold attn__scratch(attn_tape *tape, size_t size);
void attn__scratch_release(attn__hold hold);

/* -------------------------------------------------------------------------------------- backward pass */

/* The destination of an operation's share of a gradient. data is NULL if the gradient is not needed, or if there is no
 * memory (tape->failed). */
typedef struct attn__target {
    void *data;
    bool add; /* true: add to the old contents; false: overwrite all of them */
} attn__target;
attn__target attn__grad_target(attn_tape *tape, attn_tensor *x);
/* Works like attn__grad_target, but a new destination is cleared first, so that `add` is always true. */
attn__target attn__grad_target_added(attn_tape *tape, attn_tensor *x);
/* Returns true if x exists and needs a gradient. */
bool attn__grad_wanted(const attn_tensor *x);
/* Gives a buffer of x's size to x as a share of its gradient, and takes over the reference. A hold without data has no
 * effect. */
void attn__grad_give(attn_tape *tape, attn_tensor *x, attn__hold share);
/* Returns the gradient of y with a reference. The buffer is shared and must only be read. */
attn__hold attn__grad_share(const attn_tensor *y);
/* Returns a buffer for a gradient of y's size: y's own gradient if nothing else reads it, else a new buffer. */
attn__hold attn__grad_reuse(attn_tape *tape, const attn_tensor *y);

/* ---------------------------------------------------------------------------------------------- loops */

/* Runs a row kernel for tensors of this type over [0, n) in parallel. `cost` is the approximate number of elements that
 * one index touches. */
void attn__elementwise_run(const attn_tape *tape, attn_dtype dtype, attn__elementwise_kernel kernel,
                           const attn__elementwise_args *args, int64_t n, int64_t cost);

#endif
