/* SPDX-License-Identifier: MIT
 *
 * Implements the backward pass, from the newest node to the oldest. The gradients of a tensor that is used several
 * times are added up. */
#include "tensor/all_reduce.h"
#include "tensor/op.h"
#include "tensor/tape.h"
#include "tensor/parts.h"

#include <string.h>

bool attn__grad_wanted(const attn_tensor *x)
{
    return x && x->needs_grad;
}

/* Makes a gradient of x's shape without data. It belongs to the tape if x belongs to the tape. Otherwise x is the
 * caller's tensor, and its gradient outlives the tape. */
static attn_tensor *grad_handle(attn_tape *tape, attn_tensor *x)
{
    attn_tensor *grad;
    if (x->tape)
        grad = attn__handle_take(tape);
    else
        grad = attn__alloc_zero(x->context, sizeof *grad);
    if (grad && attn__tensor_describe(x->context, grad, x->dtype, x->rank, x->shape) != ATTN_OK)
        grad = NULL; /* cannot fail: x already has this shape */
    return grad;
}

/* Gives x->grad storage of its own. Returns false and sets tape->failed if there is no memory. */
static bool grad_create(attn_tape *tape, attn_tensor *x)
{
    if (!x->grad)
        x->grad = grad_handle(tape, x);
    /* In a section, gradients of parameters do not come from the pool. They are allocated between short-lived tensors
     * and stay after the section, so they would fragment the pool's memory. */
    attn__pool *pool = x->tape || tape->section == 0 ? tape->pool : NULL;
    if (x->grad && (x->place ? attn__grad_place(x) : attn__tensor_allocate(x->grad, pool)))
        return true;
    tape->failed = true;
    return false;
}

static bool exclusive(const attn_tensor *grad)
{
    return grad->storage->refs == 1;
}

static void add_to(attn_tape *tape, attn_dtype dtype, int64_t n, const void *a, const void *b, void *sum)
{
    attn__elementwise_args args = {.x = a, .x2 = b, .y = sum};
    attn__elementwise_run(tape, dtype, ATTN__ELEMENTWISE_ADD, &args, n, 1);
}

/* If the gradient shares its data with other tensors, copies the data, so that adding to this gradient does not change
 * the others. */
static bool make_exclusive(attn_tape *tape, attn_tensor *grad)
{
    if (exclusive(grad))
        return true;
    attn__hold copy = attn__scratch(tape, attn__tensor_bytes(grad));
    if (!copy.data) {
        tape->failed = true;
        return false;
    }
    memcpy(copy.data, grad->data, attn__tensor_bytes(grad));
    attn__storage_unref(grad->storage);
    grad->storage = copy.storage;
    grad->data = copy.data;
    return true;
}

attn__target attn__grad_target(attn_tape *tape, attn_tensor *x)
{
    if (!attn__grad_wanted(x))
        return (attn__target){0};
    bool none = !x->grad || !x->grad->storage, fresh = none || x->grad->zero_pending;
    if (none && !grad_create(tape, x))
        return (attn__target){0};
    x->grad->zero_pending = false;
    if (!make_exclusive(tape, x->grad))
        return (attn__target){0};
    return (attn__target){x->grad->data, !fresh};
}

attn__target attn__grad_target_added(attn_tape *tape, attn_tensor *x)
{
    attn__target target = attn__grad_target(tape, x);
    if (target.data && !target.add)
        memset(target.data, 0, attn__tensor_bytes(x));
    target.add = true;
    return target;
}

static void adopt(attn_tensor *grad, attn__hold share)
{
    attn__storage_unref(grad->storage);
    grad->storage = share.storage;
    grad->data = share.data;
}

void attn__grad_give(attn_tape *tape, attn_tensor *x, attn__hold share)
{
    if (!share.data)
        return;
    if (!attn__grad_wanted(x)) {
        attn__scratch_release(share);
        return;
    }
    /* The share's memory may become the gradient of a computed tensor, even if other code reads the memory. The
     * gradient of a leaf must have its own memory, because it outlives the pass and may be cleared. */
    bool passes_on = x->tape && (x->computed || share.storage->refs == 1);
    if (passes_on && !x->grad) {
        x->grad = grad_handle(tape, x);
        if (x->grad) {
            adopt(x->grad, share);
            return;
        }
        tape->failed = true;
    } else if (x->computed && !exclusive(x->grad) && share.storage->refs == 1) {
        add_to(tape, x->dtype, x->size, share.data, x->grad->data, share.data);
        adopt(x->grad, share);
        return;
    } else {
        attn__target target = attn__grad_target(tape, x);
        if (target.data && target.add)
            add_to(tape, x->dtype, x->size, target.data, share.data, target.data);
        else if (target.data)
            memcpy(target.data, share.data, attn__tensor_bytes(x));
    }
    attn__scratch_release(share);
}

attn__hold attn__grad_share(const attn_tensor *y)
{
    attn__storage_ref(y->grad->storage);
    return (attn__hold){y->grad->storage, y->grad->data};
}

attn__hold attn__grad_reuse(attn_tape *tape, const attn_tensor *y)
{
    if (exclusive(y->grad))
        return attn__grad_share(y);
    attn__hold fresh = attn__scratch(tape, attn__tensor_bytes(y));
    tape->failed |= !fresh.data;
    return fresh;
}

/* ---------------------------------------------------------------------------------------------- the pass */

static attn_status check_result(attn_tape *tape, const attn_tensor *result)
{
    if (!result)
        return attn__fail(tape->context, ATTN_ERROR_ARGUMENT, "backward: the result is NULL");
    if (!result->needs_grad)
        return attn__fail(tape->context, ATTN_ERROR_ARGUMENT,
                          "backward: the result depends on no recorded tensor that needs a gradient");
    if (result->passed)
        return attn__fail(
            tape->context, ATTN_ERROR_ARGUMENT,
            "backward: the backward pass of this result has already run; reset the tape and compute the result again");
    return ATTN_OK;
}

bool attn__section_backward(attn_tape *tape)
{
    while (tape->nodes && !tape->failed) {
        attn__node *node = tape->nodes;
        attn_precision outer = tape->precision;
        tape->precision = node->precision;
        if (node->y->grad)
            node->backward(tape, node);
        tape->precision = outer;
        attn__grad_drop(node->y);
        node->y->passed = true;
        if (tape->all_reduce)
            attn__all_reduce_node(tape->all_reduce, tape, node);
        attn__node_release(node);
        tape->nodes = node->previous;
    }
    return !tape->failed;
}

static attn_status run_nodes(attn_tape *tape)
{
    if (attn__section_backward(tape))
        return ATTN_OK;
    return attn__fail(tape->context, ATTN_ERROR_MEMORY, "out of memory in the backward pass");
}

/* Sets the initial gradient of a result: the given gradient, plus the gradient that this result has already received
 * from other results. */
static attn_status seed(attn_tape *tape, attn_tensor *result, const attn_tensor *grad)
{
    attn__target target = attn__grad_target(tape, result);
    if (!target.data)
        return ATTN_ERROR_MEMORY;
    if (target.add)
        add_to(tape, grad->dtype, grad->size, target.data, attn_tensor_data(grad), target.data);
    else
        memcpy(target.data, attn_tensor_data(grad), attn__tensor_bytes(grad));
    return ATTN_OK;
}

attn_status attn_backward_many(attn_tape *tape, attn_tensor *const *results, const attn_tensor *const *grads, int n)
{
    ATTN__TAPE_CALL(tape->context);
    attn_status status =
        n < 1 ? attn__fail(tape->context, ATTN_ERROR_ARGUMENT, "backward: %d results are given; expected at least 1", n)
              : ATTN_OK;
    for (int i = 0; i < n && status == ATTN_OK; i++) {
        const attn_tensor *result = results[i], *grad = grads[i];
        status = check_result(tape, result);
        if (status == ATTN_OK && (!grad || !attn__same_shape(result, grad) || grad->dtype != result->dtype)) {
            char has[ATTN__SHAPE_TEXT], given[ATTN__SHAPE_TEXT];
            status =
                attn__fail(tape->context, ATTN_ERROR_SHAPE,
                           "backward: result %d is %s %s, but its gradient is %s %s; type and shape must be equal", i,
                           attn_dtype_name(result->dtype), attn__shape_text(result, has),
                           grad ? attn_dtype_name(grad->dtype) : "", grad ? attn__shape_text(grad, given) : "NULL");
        }
    }
    for (int i = 0; i < n && status == ATTN_OK; i++)
        status = seed(tape, results[i], grads[i]);
    return status == ATTN_OK ? run_nodes(tape) : status;
}

attn_status attn_backward_from(attn_tape *tape, attn_tensor *result, const attn_tensor *grad)
{
    return attn_backward_many(tape, &result, &grad, 1);
}

attn_status attn_backward(attn_tape *tape, attn_tensor *loss)
{
    ATTN__TAPE_CALL(tape->context);
    attn_status status = check_result(tape, loss);
    if (status != ATTN_OK)
        return status;
    if (loss->size != 1)
        return attn__fail(tape->context, ATTN_ERROR_SHAPE, "backward: the loss has %lld elements; it must have one",
                          (long long)loss->size);
    const double one = 1;
    const float one_single = 1;
    attn_tensor unit = *loss;
    unit.zero_pending = false;
    unit.data = (void *)(uintptr_t)(loss->dtype == ATTN_F64 ? (const void *)&one : (const void *)&one_single);
    return attn_backward_from(tape, loss, &unit);
}
