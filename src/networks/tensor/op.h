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

/* Checks that the n tensors exist, have data, and are all f32 or all f64. If not, records an error and returns false.
 * If a tensor is NULL, returns false without an error. */
bool attn__op_accepts(attn_tape *tape, const char *op, int n, ...);
/* Returns whether w is a weight with a low-rank adapter. Only linear layers support such weights. If w is NULL,
 * returns false. */
bool attn__op_is_adapted(const attn_tensor *w);
/* Returns whether w is a weight that exists only in packed form (packed_weights.h). If x is not NULL, w must also
 * have x's type. If w is NULL, returns false. */
bool attn__op_is_packed(const attn_tensor *w, const attn_tensor *x);
/* Records ATTN_ERROR_SHAPE with a message of the form "op: ..." and returns NULL. */
attn_tensor *attn__op_shape_error(attn_tape *tape, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool attn__same_shape(const attn_tensor *a, const attn_tensor *b);
/* Returns the number of rows of x, which is the product of all lengths except the last. */
int64_t attn__row_count(const attn_tensor *x);
/* Returns the axis counted from the front, where `axis` may be negative. Returns -1 and records an error if the tensor
 * has no such axis. */
int attn__op_axis(attn_tape *tape, const char *op, const attn_tensor *x, int axis);

attn_tensor *attn__op_result(attn_tape *tape, attn_dtype dtype, int rank, const int64_t *shape);
/* Returns a view of x's data that begins at element `offset` of x. */
attn_tensor *attn__op_view(attn_tape *tape, attn_tensor *x, int64_t offset, int rank, const int64_t *shape);

/* Records the operation if the tape records and some x needs a gradient. Otherwise sets *node to NULL. Elements of x
 * may be NULL. Returns false if there is no memory for the node. */
bool attn__op_record(attn_tape *tape, attn__node **node, void (*backward)(attn_tape *, attn__node *), attn_tensor *y,
                     int nx, attn_tensor *const *x, int nsaved, size_t detail);
/* Records the operation even if no x needs a gradient. This is for operations that read parameters that are not among
 * the inputs x. */
bool attn__op_record_always(attn_tape *tape, attn__node **node, void (*backward)(attn_tape *, attn__node *),
                            attn_tensor *y, int nx, attn_tensor *const *x, int nsaved, size_t detail);
/* Keeps the data of `tensor` for the backward pass. attn__node_save_hold keeps the data of a hold, which the node then
 * owns. */
void attn__node_save(attn__node *node, int i, const attn_tensor *tensor);
void attn__node_save_hold(attn__node *node, int i, attn__hold hold);

/* Takes memory from the tape's pool. If there is no memory, an error is recorded and .data is NULL. */
attn__hold attn__scratch(attn_tape *tape, size_t size);
void attn__scratch_release(attn__hold hold);

/* -------------------------------------------------------------------------------------- backward pass */

/* Memory to which an operation writes its share of an input's gradient. `data` is NULL if no gradient is needed, or if
 * there is no memory (tape->failed is then set). */
typedef struct attn__target {
    void *data;
    bool add; /* true: the operation must add to the contents; false: it must overwrite all of the contents */
} attn__target;
attn__target attn__grad_target(attn_tape *tape, attn_tensor *x);
/* Does the same as attn__grad_target, but clears new memory first. `add` is therefore always true. */
attn__target attn__grad_target_added(attn_tape *tape, attn_tensor *x);
bool attn__grad_wanted(const attn_tensor *x);
/* Adds a buffer of x's size to the gradient of x, which takes over the reference to the buffer. If share.data is NULL,
 * nothing happens. */
void attn__grad_give(attn_tape *tape, attn_tensor *x, attn__hold share);
/* Returns a reference to the gradient of y. The data must not be changed, because they may be shared. */
attn__hold attn__grad_share(const attn_tensor *y);
/* Returns a buffer of y's size for a gradient. It is y's own gradient if no other code reads that, otherwise a new
 * buffer. */
attn__hold attn__grad_reuse(attn_tape *tape, const attn_tensor *y);

/* ---------------------------------------------------------------------------------------------- loops */

/* Runs an elementwise kernel for tensors of this type over [0, n) in parallel. `cost` is the approximate number of
 * elements that the kernel reads and writes per index. */
void attn__elementwise_run(const attn_tape *tape, attn_dtype dtype, attn__elementwise_kernel kernel,
                           const attn__elementwise_args *args, int64_t n, int64_t cost);

#endif
