/* SPDX-License-Identifier: MIT
 *
 * Implements functions that the forward passes of operations share: checks, allocation of results, recording of nodes,
 * and parallel loops.
 */
#include "tensor/op.h"

#include "base/parallel.h"
#include "tensor/all_reduce.h"

#include <stdio.h>
#include <string.h>

bool attn__op_accepts(attn_tape *tape, const char *op, int n, ...)
{
    va_list list;
    va_start(list, n);
    const attn_tensor *first = NULL;
    bool fine = true;
    for (int i = 0; i < n && fine; i++) {
        const attn_tensor *x = va_arg(list, const attn_tensor *);
        fine = x != NULL;
        if (!fine)
            break;
        if (!first)
            first = x;
        if (attn__op_is_packed(x, NULL))
            fine = attn__fail(tape->context, ATTN_ERROR_ARGUMENT,
                              "%s: operand %d is a weight that was packed for inference and has no unpacked form", op,
                              i) == ATTN_OK;
        else if (x->packs_on_load)
            fine = attn__fail(tape->context, ATTN_ERROR_ARGUMENT, "%s: operand %d has no data until weights are loaded",
                              op, i) == ATTN_OK;
        else if (!x->data)
            fine = attn__fail(tape->context, ATTN_ERROR_ARGUMENT, "%s: operand %d was freed by the end of a scope", op,
                              i) == ATTN_OK;
        else if (x->dtype != first->dtype || (x->dtype != ATTN_F32 && x->dtype != ATTN_F64))
            fine = attn__fail(tape->context, ATTN_ERROR_ARGUMENT,
                              "%s: operand %d is %s, operand 0 is %s; both must be f32, or both f64", op, i,
                              attn_dtype_name(x->dtype), attn_dtype_name(first->dtype)) == ATTN_OK;
        else if (x->low_rank)
            fine = attn__fail(tape->context, ATTN_ERROR_UNSUPPORTED,
                              "%s: operand %d has a low-rank adapter, which only linear layers have", op, i) == ATTN_OK;
    }
    va_end(list);
    return fine;
}

bool attn__op_is_adapted(const attn_tensor *w)
{
    return w && w->low_rank;
}

bool attn__op_is_packed(const attn_tensor *w, const attn_tensor *x)
{
    return w && w->packed && !w->data && (!x || x->dtype == w->dtype);
}

attn_tensor *attn__op_shape_error(attn_tape *tape, const char *format, ...)
{
    char text[400];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    attn__fail(tape->context, ATTN_ERROR_SHAPE, "%s", text);
    return NULL;
}

bool attn__same_shape(const attn_tensor *a, const attn_tensor *b)
{
    return a->rank == b->rank && memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0;
}

int64_t attn__row_count(const attn_tensor *x)
{
    int64_t rows = 1;
    for (int i = 0; i < x->rank - 1; i++)
        rows *= x->shape[i];
    return rows;
}

int attn__op_axis(attn_tape *tape, const char *op, const attn_tensor *x, int axis)
{
    int from_front = axis < 0 ? axis + x->rank : axis;
    if (from_front >= 0 && from_front < x->rank)
        return from_front;
    attn__fail(tape->context, ATTN_ERROR_ARGUMENT, "%s: axis %d does not exist in a tensor of rank %d", op, axis,
               x->rank);
    return -1;
}

attn_tensor *attn__op_result(attn_tape *tape, attn_dtype dtype, int rank, const int64_t *shape)
{
    attn_tensor *y = attn__handle_take(tape);
    if (!y || attn__tensor_describe(tape->context, y, dtype, rank, shape) != ATTN_OK)
        return NULL;
    return attn__tensor_allocate(y, tape->pool) ? y : NULL;
}

attn_tensor *attn__op_view(attn_tape *tape, attn_tensor *x, int64_t offset, int rank, const int64_t *shape)
{
    attn_tensor *y = attn__handle_take(tape);
    if (!y || attn__tensor_describe(tape->context, y, x->dtype, rank, shape) != ATTN_OK)
        return NULL;
    attn__storage_ref(x->storage);
    y->storage = x->storage;
    y->data = (char *)x->data + (size_t)offset * attn_dtype_size(x->dtype);
    return y;
}

static bool some_need_grad(int n, attn_tensor *const *x)
{
    for (int i = 0; i < n; i++)
        if (x[i] && x[i]->needs_grad)
            return true;
    return false;
}

/* Checks the inputs of an operation in a branch of a reversible block. A tensor from outside the branch must not need a
 * gradient, because its gradient would be lost: the branch's nodes are discarded before the backward pass of the
 * surrounding network. */
static bool stays_inside(attn_tape *tape, int n, attn_tensor *const *x)
{
    for (int i = 0; i < n && tape->section > 0; i++) {
        if (x[i] && x[i]->tape && x[i]->needs_grad && x[i]->section != tape->section) {
            attn__fail(
                tape->context, ATTN_ERROR_ARGUMENT,
                "reversible: a branch uses a tensor from outside that needs a gradient, which would be lost; only x "
                "and parameters are supported");
            return false;
        }
    }
    return true;
}

/* Checks that no input has already passed its gradient on. If an input has, the gradient of this operation would not
 * reach the tensors from which that input was computed. */
static bool leads_on(attn_tape *tape, int n, attn_tensor *const *x)
{
    for (int i = 0; i < n && tape->options.record; i++) {
        if (x[i] && x[i]->passed && x[i]->needs_grad) {
            attn__fail(
                tape->context, ATTN_ERROR_ARGUMENT,
                "a tensor from before the backward pass is used again, so gradients would end at it: reset the tape "
                "and compute the tensor anew, or share it (attn_tensor_share) if it needs no gradient");
            return false;
        }
    }
    return true;
}

bool attn__op_record_always(attn_tape *tape, attn__node **node, void (*backward)(attn_tape *, attn__node *),
                            attn_tensor *y, int nx, attn_tensor *const *x, int nsaved, size_t detail)
{
    *node = NULL;
    if (!stays_inside(tape, nx, x) || !leads_on(tape, nx, x) ||
        (tape->all_reduce && !attn__all_reduce_continues(tape->all_reduce)))
        return false;
    if (!tape->options.record)
        return true;
    attn__node *made = attn__tape_take(tape, sizeof *made);
    attn_tensor **inputs = attn__tape_take(tape, (size_t)nx * sizeof(attn_tensor *));
    attn__hold *saved = attn__tape_take(tape, (size_t)nsaved * sizeof *saved);
    void *own = attn__tape_take(tape, detail);
    if (!made || !inputs || !saved || !own)
        return false;
    memcpy(inputs, x, (size_t)nx * sizeof(attn_tensor *));
    *made = (attn__node){.previous = tape->nodes,
                         .backward = backward,
                         .y = y,
                         .x = inputs,
                         .nx = nx,
                         .saved = saved,
                         .nsaved = nsaved,
                         .hidden = true,
                         .precision = tape->precision,
                         .detail = own};
    tape->nodes = made;
    y->needs_grad = y->computed = true;
    *node = made;
    return true;
}

bool attn__op_record(attn_tape *tape, attn__node **node, void (*backward)(attn_tape *, attn__node *), attn_tensor *y,
                     int nx, attn_tensor *const *x, int nsaved, size_t detail)
{
    *node = NULL;
    bool done = !some_need_grad(nx, x) || attn__op_record_always(tape, node, backward, y, nx, x, nsaved, detail);
    if (*node)
        (*node)->hidden = false;
    return done;
}

void attn__node_save(attn__node *node, int i, const attn_tensor *tensor)
{
    attn__storage_ref(tensor->storage);
    attn__node_save_hold(node, i, (attn__hold){tensor->storage, tensor->data});
}

void attn__node_save_hold(attn__node *node, int i, attn__hold hold)
{
    if (hold.storage)
        hold.storage->saves++;
    node->saved[i] = hold;
}

attn__hold attn__scratch(attn_tape *tape, size_t size)
{
    attn__storage *storage = attn__storage_create(tape->context, tape->pool, size);
    return (attn__hold){storage, storage ? attn__storage_data(storage) : NULL};
}

void attn__scratch_release(attn__hold hold)
{
    attn__storage_unref(hold.storage);
}

/* ---------------------------------------------------------------------------------------------- loops */

typedef struct rows_job {
    attn__elementwise_fn run;
    const attn__elementwise_args *args;
} rows_job;

static void run_range(void *user, int64_t begin, int64_t end)
{
    const rows_job *job = user;
    job->run(job->args, begin, end);
}

void attn__elementwise_run(const attn_tape *tape, attn_dtype dtype, attn__elementwise_kernel kernel,
                           const attn__elementwise_args *args, int64_t n, int64_t cost)
{
    /* about as many elements as one thread processes in the few microseconds that it takes to wake another thread */
    enum { WORTH_A_THREAD = 16384 };
    rows_job job = {attn__elementwise_for(dtype == ATTN_F64, tape->context->isa)->run[kernel], args};
    int64_t grain = WORTH_A_THREAD / (cost > 0 ? cost : 1);
    attn__parallel_range(tape->context->threads, n, grain > 0 ? grain : 1, run_range, &job);
}
