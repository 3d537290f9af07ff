/* SPDX-License-Identifier: MIT
 * Implements a layer of gated recurrent units (Cho et al. 2014, arXiv:1406.1078). The products with the input are
 * computed for all steps at once, and the recurrent products step by step. The backward pass replaces the stored gates
 * by their gradients. It then computes the gradients of the weights as products over all steps at once. */
#include "tensor/matrix_product.h"
#include "tensor/op.h"

#include <string.h>

enum { X, H0, W_IH, W_HH, B_IH, B_HH, INPUTS };
enum { SAVED_X, SAVED_H0, SAVED_W_IH, SAVED_W_HH, SAVED_Y, SAVED_GATES, SAVED_HIDDEN, SAVED_COUNT };

typedef struct gru_sizes {
    attn_dtype dtype;
    int64_t steps, batch, in, hidden;
} gru_sizes;

static gru_sizes sizes_of(attn_tensor *const *x)
{
    return (gru_sizes){x[X]->dtype, x[X]->shape[0], x[X]->shape[1], x[X]->shape[2], x[W_HH]->shape[1]};
}

static void *at(const void *data, attn_dtype dtype, int64_t offset)
{
    return (char *)(uintptr_t)data + offset * (int64_t)attn_dtype_size(dtype);
}

/* ---------------------------------------------------------------------------------------------- forward */

static bool matrix_is(const attn_tensor *w, int64_t rows, int64_t columns)
{
    return w->rank == 2 && w->shape[0] == rows && w->shape[1] == columns;
}

static bool vector_is(const attn_tensor *b, int64_t n)
{
    return b->rank == 1 && b->shape[0] == n;
}

static bool shapes_fit(attn_tape *tape, attn_tensor *const *x)
{
    if (x[X]->rank == 3 && x[X]->shape[0] > 0 && x[W_HH]->rank == 2) {
        gru_sizes s = sizes_of(x);
        if (matrix_is(x[W_IH], 3 * s.hidden, s.in) && matrix_is(x[W_HH], 3 * s.hidden, s.hidden) &&
            vector_is(x[B_IH], 3 * s.hidden) && vector_is(x[B_HH], 3 * s.hidden) &&
            (!x[H0] ||
             (x[H0]->size == s.batch * s.hidden && x[H0]->rank >= 1 && x[H0]->shape[x[H0]->rank - 1] == s.hidden)))
            return true;
    }
    char t[INPUTS][ATTN__SHAPE_TEXT];
    for (int i = 0; i < INPUTS; i++)
        x[i] ? attn__shape_text(x[i], t[i]) : strcpy(t[i], "none");
    attn__op_shape_error(
        tape,
        "gru: x %s, h0 %s, w_ih %s, w_hh %s, b_ih %s, b_hh %s; expected x [T,B,I], h0 [B,H], w_ih [3H,I], w_hh [3H,H], "
        "b_ih [3H], b_hh [3H]",
        t[X], t[H0], t[W_IH], t[W_HH], t[B_IH], t[B_HH]);
    return false;
}

/* Computes x w^T + b for all steps. This is the part of the gates that depends on the input. */
static bool input_gates(attn_tape *tape, const gru_sizes *s, attn_tensor *const *x, void *gates)
{
    int64_t rows = s->steps * s->batch, width = 3 * s->hidden;
    if (!attn__gemm(tape, &(attn__gemm_problem){.dtype = s->dtype,
                                                .m = rows,
                                                .n = width,
                                                .k = s->in,
                                                .a = attn__matrix(x[X]->data, s->in, 1),
                                                .b = attn__matrix(x[W_IH]->data, s->in, 1),
                                                .c = gates,
                                                .ldc = width}))
        return false;
    attn__elementwise_args args = {.x = x[B_IH]->data, .y = gates, .n = width};
    attn__elementwise_run(tape, s->dtype, ATTN__ELEMENTWISE_BIAS_ACTIVATE, &args, rows, width);
    return true;
}

/* If `hidden` is NULL, nothing is kept for the backward pass. */
static bool run_steps(attn_tape *tape, const gru_sizes *s, attn_tensor *const *x, void *gates, void *hidden,
                      void *recurrent, void *y)
{
    int64_t state = s->batch * s->hidden, width = 3 * s->hidden;
    for (int64_t t = 0; t < s->steps; t++) {
        const void *old = t > 0 ? at(y, s->dtype, (t - 1) * state) : x[H0] ? x[H0]->data : NULL;
        if (!old)
            memset(recurrent, 0, (size_t)(3 * state) * attn_dtype_size(s->dtype));
        else if (!attn__gemm(tape, &(attn__gemm_problem){.dtype = s->dtype,
                                                         .m = s->batch,
                                                         .n = width,
                                                         .k = s->hidden,
                                                         .a = attn__matrix(old, s->hidden, 1),
                                                         .b = attn__matrix(x[W_HH]->data, s->hidden, 1),
                                                         .c = recurrent,
                                                         .ldc = width}))
            return false;
        void *now = at(gates, s->dtype, 3 * t * state);
        attn__elementwise_args args = {.x = now,
                                       .x2 = recurrent,
                                       .x3 = x[B_HH]->data,
                                       .x4 = old,
                                       .y = at(y, s->dtype, t * state),
                                       .y2 = hidden ? now : NULL,
                                       .y3 = hidden ? at(hidden, s->dtype, t * state) : NULL,
                                       .n = s->hidden};
        attn__elementwise_run(tape, s->dtype, ATTN__ELEMENTWISE_GRU, &args, s->batch, 30 * s->hidden);
    }
    return true;
}

/* --------------------------------------------------------------------------------------------- backward */

static void add_or_copy(attn_tape *tape, const gru_sizes *s, void *dst, const void *src, int64_t n, bool add)
{
    attn__elementwise_args args = {.x = dst, .x2 = src, .y = dst};
    if (add)
        attn__elementwise_run(tape, s->dtype, ATTN__ELEMENTWISE_ADD, &args, n, 1);
    else
        memcpy(dst, src, (size_t)n * attn_dtype_size(s->dtype));
}

/* Runs the backward pass from the last step to the first. Each step replaces the stored gates by their gradients.
 * `carry` holds the gradient of the state between two steps. */
static void steps_backward(attn_tape *tape, attn__node *node, const gru_sizes *s, void *carry)
{
    int64_t state = s->batch * s->hidden, n = s->hidden;
    const attn__hold *saved = node->saved;
    for (int64_t t = s->steps - 1; t >= 0; t--) {
        void *gates = at(saved[SAVED_GATES].data, s->dtype, 3 * t * state);
        void *hidden = at(saved[SAVED_HIDDEN].data, s->dtype, t * state);
        const void *old = t > 0 ? at(saved[SAVED_Y].data, s->dtype, (t - 1) * state) : saved[SAVED_H0].data;
        add_or_copy(tape, s, carry, at(node->y->grad->data, s->dtype, t * state), state, t < s->steps - 1);
        attn__elementwise_args args = {
            .x = carry, .x2 = gates, .x3 = hidden, .x4 = old, .y = gates, .y2 = hidden, .y3 = carry, .n = n};
        attn__elementwise_run(tape, s->dtype, ATTN__ELEMENTWISE_GRU_BACKWARD, &args, s->batch, 15 * n);
        if (!old)
            break;
        attn__gemm_problem back = {.dtype = s->dtype,
                                   .m = s->batch,
                                   .n = n,
                                   .k = 2 * n,
                                   .a = attn__matrix(gates, 3 * n, 1),
                                   .b = attn__matrix(saved[SAVED_W_HH].data, 1, n),
                                   .c = carry,
                                   .ldc = n,
                                   .add = true};
        tape->failed |= !attn__gemm(tape, &back);
        back.k = n;
        back.a = attn__matrix(hidden, n, 1);
        back.b.data = at(saved[SAVED_W_HH].data, s->dtype, 2 * n * n);
        tape->failed |= !attn__gemm(tape, &back);
    }
}

/* Computes the gradient of w_hh, dw = G^T H, or adds to it if dw->add is set. G holds the gradients of the gates, and H
 * the states before the steps. Both have `rows` rows. */
static void recurrent_product(attn_tape *tape, const gru_sizes *s, attn__target *dw, const void *gates,
                              const void *hidden, const void *states, int64_t rows)
{
    int64_t n = s->hidden;
    attn__gemm_problem g = {.dtype = s->dtype,
                            .m = 2 * n,
                            .n = n,
                            .k = rows,
                            .a = attn__matrix(gates, 1, 3 * n),
                            .b = attn__matrix(states, 1, n),
                            .c = dw->data,
                            .ldc = n,
                            .add = dw->add};
    tape->failed |= !attn__gemm(tape, &g);
    g.m = n;
    g.a = attn__matrix(hidden, 1, n);
    g.c = at(dw->data, s->dtype, 2 * n * n);
    tape->failed |= !attn__gemm(tape, &g);
    dw->add = true;
}

static void weights_backward(attn_tape *tape, attn__node *node, const gru_sizes *s)
{
    const attn__hold *saved = node->saved;
    int64_t rows = s->steps * s->batch, width = 3 * s->hidden, state = s->batch * s->hidden;
    const void *gates = saved[SAVED_GATES].data, *hidden = saved[SAVED_HIDDEN].data;
    attn__target dx = attn__grad_target(tape, node->x[X]), dw = attn__grad_target(tape, node->x[W_IH]);
    if (dx.data)
        tape->failed |= !attn__gemm(tape, &(attn__gemm_problem){.dtype = s->dtype,
                                                                .m = rows,
                                                                .n = s->in,
                                                                .k = width,
                                                                .a = attn__matrix(gates, width, 1),
                                                                .b = attn__matrix(saved[SAVED_W_IH].data, 1, s->in),
                                                                .c = dx.data,
                                                                .ldc = s->in,
                                                                .add = dx.add});
    if (dw.data)
        tape->failed |= !attn__gemm(tape, &(attn__gemm_problem){.dtype = s->dtype,
                                                                .m = width,
                                                                .n = s->in,
                                                                .k = rows,
                                                                .a = attn__matrix(gates, 1, width),
                                                                .b = attn__matrix(saved[SAVED_X].data, 1, s->in),
                                                                .c = dw.data,
                                                                .ldc = s->in,
                                                                .add = dw.add});
    attn__target dh = attn__grad_target(tape, node->x[W_HH]);
    if (!dh.data)
        return;
    recurrent_product(tape, s, &dh, at(gates, s->dtype, 3 * state), at(hidden, s->dtype, state), saved[SAVED_Y].data,
                      rows - s->batch);
    if (saved[SAVED_H0].data)
        recurrent_product(tape, s, &dh, gates, hidden, saved[SAVED_H0].data, s->batch);
}

/* Computes the gradients of both biases, which are sums over rows. For the gates r and z, both biases have the same
 * gradient. */
static void biases_backward(attn_tape *tape, attn__node *node, const gru_sizes *s)
{
    int64_t rows = s->steps * s->batch, n = s->hidden;
    attn__hold sums = attn__scratch(tape, (size_t)(4 * n) * attn_dtype_size(s->dtype));
    if (!sums.data) {
        tape->failed = true;
        return;
    }
    void *candidate = at(sums.data, s->dtype, 3 * n);
    attn__elementwise_args args = {
        .x = node->saved[SAVED_GATES].data, .y = sums.data, .n = 3 * n, .rows = rows, .s = {1}};
    attn__elementwise_run(tape, s->dtype, ATTN__ELEMENTWISE_REDUCE, &args, 3 * n, rows);
    args =
        (attn__elementwise_args){.x = node->saved[SAVED_HIDDEN].data, .y = candidate, .n = n, .rows = rows, .s = {1}};
    attn__elementwise_run(tape, s->dtype, ATTN__ELEMENTWISE_REDUCE, &args, n, rows);
    attn__target db = attn__grad_target(tape, node->x[B_IH]);
    if (db.data)
        add_or_copy(tape, s, db.data, sums.data, 3 * n, db.add);
    db = attn__grad_target(tape, node->x[B_HH]);
    if (db.data) {
        add_or_copy(tape, s, db.data, sums.data, 2 * n, db.add);
        add_or_copy(tape, s, at(db.data, s->dtype, 2 * n), candidate, n, db.add);
    }
    attn__scratch_release(sums);
}

static void gru_backward(attn_tape *tape, attn__node *node)
{
    gru_sizes s = sizes_of(node->x);
    attn__hold carry = attn__scratch(tape, (size_t)(s.batch * s.hidden) * attn_dtype_size(s.dtype));
    if (!carry.data) {
        tape->failed = true;
        return;
    }
    steps_backward(tape, node, &s, carry.data);
    weights_backward(tape, node, &s);
    biases_backward(tape, node, &s);
    if (node->x[H0])
        attn__grad_give(tape, node->x[H0], carry);
    else
        attn__scratch_release(carry);
}

/* ------------------------------------------------------------------------------------------------ layer */

static void save(attn__node *node, attn__hold gates, attn__hold hidden)
{
    attn__node_save(node, SAVED_X, node->x[X]);
    if (node->x[H0])
        attn__node_save(node, SAVED_H0, node->x[H0]);
    attn__node_save(node, SAVED_W_IH, node->x[W_IH]);
    attn__node_save(node, SAVED_W_HH, node->x[W_HH]);
    attn__node_save(node, SAVED_Y, node->y);
    attn__storage_ref(gates.storage);
    attn__storage_ref(hidden.storage);
    attn__node_save_hold(node, SAVED_GATES, gates);
    attn__node_save_hold(node, SAVED_HIDDEN, hidden);
}

attn_tensor *attn_gru(attn_tape *tape, attn_tensor *x, attn_tensor *h0, attn_tensor *w_ih, attn_tensor *w_hh,
                      attn_tensor *b_ih, attn_tensor *b_hh)
{
    ATTN__TAPE_CALL(tape->context);
    attn_tensor *inputs[INPUTS] = {x, h0, w_ih, w_hh, b_ih, b_hh};
    if (!attn__op_accepts(tape, "gru", h0 ? 6 : 5, x, w_ih, w_hh, b_ih, b_hh, h0) || !shapes_fit(tape, inputs))
        return NULL;
    gru_sizes s = sizes_of(inputs);
    attn_tensor *y = attn__op_result(tape, s.dtype, 3, (int64_t[]){s.steps, s.batch, s.hidden});
    attn__node *node;
    if (!y || !attn__op_record(tape, &node, gru_backward, y, INPUTS, inputs, SAVED_COUNT, 0))
        return NULL;
    size_t state = (size_t)(s.batch * s.hidden) * attn_dtype_size(s.dtype), all = state * (size_t)s.steps;
    attn__hold gates = attn__scratch(tape, 3 * all), recurrent = attn__scratch(tape, 3 * state), hidden = {0};
    if (node)
        hidden = attn__scratch(tape, all);
    bool done = gates.data && recurrent.data && (!node || hidden.data) && input_gates(tape, &s, inputs, gates.data) &&
                run_steps(tape, &s, inputs, gates.data, hidden.data, recurrent.data, y->data);
    if (done && node)
        save(node, gates, hidden);
    attn__scratch_release(gates);
    attn__scratch_release(recurrent);
    attn__scratch_release(hidden);
    return done ? y : NULL;
}
