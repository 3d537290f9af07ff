/* SPDX-License-Identifier: MIT
 *
 * Implements the linear layer y = activation(x w^T + b).
 */
#include "tensor/matrix_product.h"
#include "tensor/op.h"
#include "tensor/packed_weights.h"
#include "tensor/parts.h"

#include <string.h>

typedef struct linear_detail {
    attn_activation activation;
} linear_detail;

enum { SAVED_X, SAVED_W, SAVED_Y, SAVED_COUNT };
enum { X, W, B, INPUTS };

/* Computes the gradients dx = dy w and dw = dy^T x. */
static void products_backward(attn_tape *tape, attn__node *node, const void *dy, int64_t rows)
{
    attn_tensor *x = node->x[X], *w = node->x[W];
    int64_t out = w->shape[0], in = w->shape[1];
    attn__target dx = attn__grad_target(tape, x);
    if (dx.data)
        tape->failed |= !attn__gemm(tape, &(attn__gemm_problem){.dtype = x->dtype,
                                                                .m = rows,
                                                                .n = in,
                                                                .k = out,
                                                                .a = attn__matrix(dy, out, 1),
                                                                .b = attn__matrix(node->saved[SAVED_W].data, 1, in),
                                                                .c = dx.data,
                                                                .ldc = in,
                                                                .add = dx.add});
    attn__target dw = attn__grad_target(tape, w);
    if (dw.data)
        tape->failed |= !attn__gemm(tape, &(attn__gemm_problem){.dtype = x->dtype,
                                                                .m = out,
                                                                .n = in,
                                                                .k = rows,
                                                                .a = attn__matrix(dy, 1, out),
                                                                .b = attn__matrix(node->saved[SAVED_X].data, 1, in),
                                                                .c = dw.data,
                                                                .ldc = in,
                                                                .add = dw.add});
}

static void linear_backward(attn_tape *tape, attn__node *node)
{
    const linear_detail *detail = node->detail;
    attn_tensor *y = node->y;
    int64_t out = node->x[W]->shape[0], rows = attn__row_count(y);
    attn__hold dy;
    if (detail->activation == ATTN_ACTIVATION_IDENTITY) {
        dy = attn__grad_share(y);
    } else {
        dy = attn__grad_reuse(tape, y);
        if (!dy.data)
            return;
        attn__elementwise_args args = {
            .x = y->grad->data, .x2 = node->saved[SAVED_Y].data, .y = dy.data, .kind = (int)detail->activation};
        attn__elementwise_run(tape, y->dtype, ATTN__ELEMENTWISE_ACTIVATE_BACKWARD, &args, y->size, 1);
    }
    products_backward(tape, node, dy.data, rows);
    attn__target db = attn__grad_target(tape, node->x[B]);
    if (db.data) {
        attn__elementwise_args args = {.x = dy.data, .y = db.data, .n = out, .rows = rows, .s = {1}, .add = db.add};
        attn__elementwise_run(tape, y->dtype, ATTN__ELEMENTWISE_REDUCE, &args, out, rows);
    }
    attn__scratch_release(dy);
}

static bool shapes_fit(attn_tape *tape, const attn_tensor *x, const attn_tensor *w, const attn_tensor *b)
{
    char tx[ATTN__SHAPE_TEXT], tw[ATTN__SHAPE_TEXT], tb[ATTN__SHAPE_TEXT];
    if (x->rank >= 1 && w->rank == 2 && x->shape[x->rank - 1] == w->shape[1] &&
        (!b || (b->rank == 1 && b->shape[0] == w->shape[0])))
        return true;
    attn__op_shape_error(tape, "linear: x %s, w %s, b %s; expected x [...,in], w [out,in], b [out]",
                         attn__shape_text(x, tx), attn__shape_text(w, tw), b ? attn__shape_text(b, tb) : "none");
    return false;
}

/* Saves what the backward pass needs: among others, the input or the output of the activation, from which its
 * derivative is computed. */
static void save(attn__node *node, attn_tensor *y, attn_activation activation, attn__hold input)
{
    *(linear_detail *)node->detail = (linear_detail){activation};
    if (attn__grad_wanted(node->x[W]))
        attn__node_save(node, SAVED_X, node->x[X]);
    if (attn__grad_wanted(node->x[X]))
        attn__node_save(node, SAVED_W, node->x[W]);
    if (input.data)
        attn__node_save_hold(node, SAVED_Y, input);
    else if (activation != ATTN_ACTIVATION_IDENTITY)
        attn__node_save(node, SAVED_Y, y);
}

/* If the activation's input must be kept, the activation runs after the product, in a pass of its own. */
static bool run(attn_tape *tape, attn_tensor *x, attn_tensor *w, attn_tensor *b, attn_activation activation,
                const attn__packed *packed, attn__hold input, attn_tensor *y)
{
    int64_t in = w->shape[1], out = w->shape[0];
    bool bf16 = false;
    const void *rows = packed ? w->data : attn__weight_rows(tape, w, &bf16);
    attn__gemm_problem problem = {.dtype = x->dtype,
                                  .m = attn__row_count(x),
                                  .n = out,
                                  .k = in,
                                  .a = attn__matrix(x->data, in, 1),
                                  .b = {rows, in, 1, .bf16 = bf16},
                                  .c = input.data ? input.data : y->data,
                                  .ldc = out};
    if (!attn__gemm_linear(tape, &problem, b ? b->data : NULL, input.data ? ATTN_ACTIVATION_IDENTITY : activation,
                           packed))
        return false;
    if (input.data) {
        attn__elementwise_args act = {.x = input.data, .y = y->data, .kind = (int)activation};
        attn__elementwise_run(tape, y->dtype, ATTN__ELEMENTWISE_ACTIVATE, &act, y->size, 1);
    }
    return true;
}

attn_tensor *attn_linear(attn_tape *tape, attn_tensor *x, attn_tensor *w, attn_tensor *b, attn_activation activation)
{
    ATTN__TAPE_CALL(tape->context);
    bool adapted = attn__op_is_adapted(w);
    if (adapted && activation == ATTN_ACTIVATION_IDENTITY)
        return attn_linear_between(tape, x, -1, -1, w, b);
    if (adapted || !attn__activation_exists((int)activation))
        return attn_activate(tape, attn_linear(tape, x, w, b, ATTN_ACTIVATION_IDENTITY), activation);
    /* attn__packed_weights_find checks packed weights, so w's data are checked only if w is not packed */
    const attn_tensor *data = attn__op_is_packed(w, x) ? x : w;
    const attn__packed *packed;
    if (!attn__op_accepts(tape, "linear", b ? 3 : 2, x, data, b) || !shapes_fit(tape, x, w, b) ||
        !attn__packed_weights_find(tape, w, attn__row_count(x), &packed))
        return NULL;
    int64_t shape[ATTN_MAX_RANK];
    memcpy(shape, x->shape, sizeof shape);
    shape[x->rank - 1] = w->shape[0];
    attn_tensor *y = attn__op_result(tape, x->dtype, x->rank, shape), *inputs[INPUTS] = {x, w, b};
    if (!y)
        return NULL;
    attn__node *node;
    if (!attn__op_record(tape, &node, linear_backward, y, INPUTS, inputs, SAVED_COUNT, sizeof(linear_detail)))
        return NULL;
    attn__hold input = {0};
    if (node && attn__activation_keeps_input((int)activation)) {
        input = attn__scratch(tape, attn__tensor_bytes(y));
        if (!input.data)
            return NULL;
    }
    bool done = run(tape, x, w, b, activation, packed, input, y);
    if (node)
        save(node, y, activation, input);
    return done ? y : NULL;
}
