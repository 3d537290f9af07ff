/* SPDX-License-Identifier: MIT
 * Implements stacks of reversible blocks (Gomez et al. 2017, "The Reversible Residual Network", arXiv:1707.04585).
 *
 * A block computes y1 = x1 + f(x2) and y2 = x2 + g(y1) from two halves of activations. Only the two halves after the
 * last block are kept. The backward pass computes the inputs of a block from its outputs: x2 = y2 - g(y1) and x1 = y1 -
 * f(x2). The gradients are dx1 = dy1 + g'(y1) dy2 and dx2 = dy2 + f'(x2) dx1. To compute g' and f', each branch runs
 * again, in a section of the tape that has its own backward pass. The counter of dropout sites before each branch is
 * stored, so that the second run drops the same elements.
 */
#include "tensor/op.h"
#include "tensor/tape.h"
#include "tensor/parts.h"

#include <string.h>

enum { FIRST, SECOND, HALVES };

typedef struct reversible_block {
    attn_branch f, g;
    uint64_t f_stream, g_stream;
} reversible_block;

typedef struct reversible_detail {
    int n;
    reversible_block *blocks;
} reversible_detail;

/* Computes y += scale * x for arrays of the shape of `like`. */
static void add(attn_tape *tape, const attn_tensor *like, void *y, const void *x, double scale)
{
    attn__elementwise_args args = {
        .x = x, .y = y, .s = {scale}, .add = true, .rank = 1, .shape = {like->size}, .stride_x = {1}, .stride_y = {1}};
    attn__elementwise_run(tape, like->dtype, ATTN__ELEMENTWISE_STRIDED, &args, like->size, 1);
}

/* Makes a tensor of the current section. Its memory belongs to `data`. */
static attn_tensor *handle_on(attn_tape *tape, const attn_tensor *like, attn__hold data)
{
    attn_tensor *x = attn__handle_take(tape);
    if (!x || attn__tensor_describe(tape->context, x, like->dtype, like->rank, like->shape) != ATTN_OK)
        return NULL;
    attn__storage_ref(data.storage);
    x->storage = data.storage;
    x->data = data.data;
    return x;
}

static attn_tensor *run_branch(attn_tape *tape, const attn_branch *branch, attn_tensor *x)
{
    attn_tensor *y = x ? branch->run(branch->self, tape, x) : NULL;
    if (!y || (attn__same_shape(x, y) && x->dtype == y->dtype && y->data))
        return y;
    char tx[ATTN__SHAPE_TEXT], ty[ATTN__SHAPE_TEXT];
    return attn__op_shape_error(tape,
                                "reversible: a branch returns %s for an input of %s; shape and type must be equal",
                                attn__shape_text(y, ty), attn__shape_text(x, tx));
}

/* ----------------------------------------------------------------------------------------------- forward */

/* Adds branch(from) to `to`. Nothing is kept for the backward pass. */
static bool step(attn_tape *tape, const attn_tensor *like, const attn_branch *branch, attn__hold from, attn__hold to,
                 uint64_t *stream)
{
    *stream = tape->stream;
    attn__section outer = attn__section_begin(tape);
    tape->options.record = false;
    attn_tensor *y = run_branch(tape, branch, handle_on(tape, like, from));
    if (y)
        add(tape, like, to.data, y->data, 1);
    attn__section_end(tape, &outer);
    return y != NULL;
}

static bool run_blocks(attn_tape *tape, const attn_tensor *x, reversible_detail *detail, const attn__hold half[HALVES])
{
    bool done = true;
    for (int i = 0; i < detail->n && done; i++) {
        reversible_block *block = &detail->blocks[i];
        done = step(tape, x, &block->f, half[SECOND], half[FIRST], &block->f_stream) &&
               step(tape, x, &block->g, half[FIRST], half[SECOND], &block->g_stream);
    }
    return done;
}

/* ---------------------------------------------------------------------------------------------- backward */

/* Runs a branch for the second time, on `at`. Subtracts its result from `behind`, which then has its value from before
 * the block. Adds the gradient that flows through the branch to the gradient of `at`. */
static void undo(attn_tape *tape, const attn_tensor *like, const attn_branch *branch, uint64_t stream, attn__hold at,
                 attn__hold behind, attn__hold dat, attn__hold dbehind)
{
    attn__section outer = attn__section_begin(tape);
    uint64_t ahead = tape->stream;
    tape->options.record = tape->again = true;
    tape->stream = stream;
    attn_tensor *x = handle_on(tape, like, at);
    if (x)
        x->needs_grad = true;
    attn_tensor *y = run_branch(tape, branch, x);
    tape->failed |= !y;
    if (y && y->needs_grad) {
        attn__storage_ref(dbehind.storage);
        attn__grad_give(tape, y, dbehind);
        (void)attn__section_backward(tape);
    }
    if (y && !tape->failed) {
        add(tape, like, behind.data, y->data, -1);
        if (x->grad && x->grad->data)
            add(tape, like, dat.data, x->grad->data, 1);
    }
    tape->stream = ahead;
    attn__section_end(tape, &outer);
}

static void undo_blocks(attn_tape *tape, const attn__node *node, const attn__hold d[HALVES])
{
    const reversible_detail *detail = node->detail;
    const attn__hold *y = node->saved;
    for (int i = detail->n - 1; i >= 0 && !tape->failed; i--) {
        const reversible_block *block = &detail->blocks[i];
        undo(tape, node->y, &block->g, block->g_stream, y[FIRST], y[SECOND], d[FIRST], d[SECOND]);
        if (!tape->failed)
            undo(tape, node->y, &block->f, block->f_stream, y[SECOND], y[FIRST], d[SECOND], d[FIRST]);
    }
}

static void reversible_backward(attn_tape *tape, attn__node *node)
{
    attn_tensor *y = node->y;
    attn__hold d[HALVES];
    /* the result is the mean of the halves, so each half gets half of the gradient */
    for (int i = 0; i < HALVES; i++) {
        d[i] = attn__scratch(tape, attn__tensor_bytes(y));
        attn__elementwise_args args = {.x = y->grad->data, .y = d[i].data, .s = {0.5, 0}};
        if (d[i].data)
            attn__elementwise_run(tape, y->dtype, ATTN__ELEMENTWISE_AFFINE, &args, y->size, 1);
        tape->failed |= !d[i].data;
    }
    if (!tape->failed)
        undo_blocks(tape, node, d);
    if (!tape->failed) { /* both halves begin as x, so the gradient of x is the sum of their gradients */
        add(tape, y, d[FIRST].data, d[SECOND].data, 1);
        attn__grad_give(tape, node->x[0], d[FIRST]);
    } else {
        attn__scratch_release(d[FIRST]);
    }
    attn__scratch_release(d[SECOND]);
}

/* ----------------------------------------------------------------------------------------------- the op */

static bool describe(attn_tape *tape, int n, const attn_reversible_block *blocks, reversible_detail *detail)
{
    detail->n = n;
    detail->blocks = attn__tape_take(tape, (size_t)n * sizeof *detail->blocks);
    for (int i = 0; i < n && detail->blocks; i++)
        detail->blocks[i] = (reversible_block){blocks[i].f, blocks[i].g, 0, 0};
    return detail->blocks != NULL;
}

/* Makes two copies of x, which the blocks change in place. */
static bool start(attn_tape *tape, const attn_tensor *x, attn__hold half[HALVES])
{
    for (int i = 0; i < HALVES; i++) {
        half[i] = attn__scratch(tape, attn__tensor_bytes(x));
        if (!half[i].data)
            return false;
        memcpy(half[i].data, x->data, attn__tensor_bytes(x));
    }
    return true;
}

static void average(attn_tape *tape, const attn__hold half[HALVES], const attn_tensor *y)
{
    attn__elementwise_args sum = {.x = half[FIRST].data, .x2 = half[SECOND].data, .y = y->data};
    attn__elementwise_run(tape, y->dtype, ATTN__ELEMENTWISE_ADD, &sum, y->size, 1);
    attn__elementwise_args scale = {.x = y->data, .y = y->data, .s = {0.5, 0}};
    attn__elementwise_run(tape, y->dtype, ATTN__ELEMENTWISE_AFFINE, &scale, y->size, 1);
}

attn_tensor *attn_reversible(attn_tape *tape, attn_tensor *x, const attn_reversible_block *blocks, int n)
{
    ATTN__TAPE_CALL(tape->context);
    if (!attn__op_accepts(tape, "reversible", 1, x))
        return NULL;
    if (n < 0 || (n > 0 && !blocks))
        return attn__op_shape_error(tape,
                                    n < 0 ? "reversible: the number of blocks is %d; it must not be negative"
                                          : "reversible: the array of %d blocks is NULL",
                                    n);
    attn_tensor *y = attn__op_result(tape, x->dtype, x->rank, x->shape);
    attn__hold half[HALVES] = {{0}};
    reversible_detail detail;
    attn__node *node = NULL;
    bool done = y && describe(tape, n, blocks, &detail) && start(tape, x, half) && run_blocks(tape, x, &detail, half) &&
                attn__op_record_always(tape, &node, reversible_backward, y, 1, &x, HALVES, sizeof detail);
    if (done)
        average(tape, half, y);
    if (done && node) {
        *(reversible_detail *)node->detail = detail;
        for (int i = 0; i < HALVES; i++) {
            attn__storage_ref(half[i].storage);
            attn__node_save_hold(node, i, half[i]);
        }
    }
    for (int i = 0; i < HALVES; i++)
        attn__scratch_release(half[i]);
    return done ? y : NULL;
}
