/* SPDX-License-Identifier: MIT
 * Implements layer normalization (Ba et al. 2016, arXiv:1607.06450), alone or after a residual sum with dropout, and the
 * normalization by the root mean square (Zhang and Sennrich 2019, arXiv:1910.07467). The
 * backward pass needs the normalized rows. They are computed from the output y, gain g and bias b as (y - b) / g. This
 * saves memory, because the next layer keeps the output anyway. If a gain is zero or small compared to its bias, this
 * would be inexact, and the normalized rows are kept instead. */
#include "tensor/dropout.h"
#include "tensor/op.h"
#include "tensor/parts.h"

#include <math.h>

typedef struct norm_detail {
    attn__dropout dropout;
    attn__normalize kind;
    bool from_output;
} norm_detail;

enum { SAVED_ROWS, SAVED_INVERSE, SAVED_GAIN, SAVED_BIAS, SAVED_COUNT };
enum { X, RESIDUAL, GAIN, BIAS, INPUTS };

static void parameters_backward(attn_tape *tape, attn__node *node, attn__elementwise_args args)
{
    attn__target dg = attn__grad_target(tape, node->x[GAIN]), db = attn__grad_target(tape, node->x[BIAS]);
    args.y = dg.data;
    args.y2 = db.data;
    args.add = dg.add;
    args.add2 = db.add;
    args.rows = attn__row_count(node->y);
    if (args.y || args.y2)
        attn__elementwise_run(tape, node->y->dtype, ATTN__ELEMENTWISE_LAYER_NORM_PARAMETERS, &args, args.n, args.rows);
}

/* Computes 1 / gain, with which the backward pass computes the normalized rows from the output. */
static attn__hold inverse_gain(attn_tape *tape, const attn_tensor *y, const void *gain)
{
    int64_t n = y->shape[y->rank - 1];
    attn__hold hold = attn__scratch(tape, (size_t)n * attn_dtype_size(y->dtype));
    for (int64_t i = 0; i < n && hold.data; i++)
        if (y->dtype == ATTN_F64)
            ((double *)hold.data)[i] = 1 / ((const double *)gain)[i];
        else
            ((float *)hold.data)[i] = 1 / ((const float *)gain)[i];
    tape->failed |= !hold.data;
    return hold;
}

static void inputs_backward(attn_tape *tape, attn__node *node, attn__elementwise_args args)
{
    const norm_detail *detail = node->detail;
    const attn_tensor *y = node->y;
    bool wants_residual = attn__grad_wanted(node->x[RESIDUAL]);
    if (!attn__grad_wanted(node->x[X]) && !wants_residual)
        return;
    attn__hold dx = attn__grad_reuse(tape, y), dresidual = {0};
    bool separate = wants_residual && detail->dropout.threshold != 0;
    if (separate)
        dresidual = attn__scratch(tape, attn__tensor_bytes(y));
    if (!dx.data || (separate && !dresidual.data)) {
        tape->failed = true;
        attn__scratch_release(dx);
        attn__scratch_release(dresidual);
        return;
    }
    args.y = dx.data;
    args.y2 = dresidual.data;
    attn__elementwise_run(tape, y->dtype, ATTN__ELEMENTWISE_LAYER_NORM_BACKWARD, &args, attn__row_count(y), args.n);
    if (wants_residual && !separate) {
        attn__storage_ref(dx.storage);
        dresidual = dx;
    }
    attn__grad_give(tape, node->x[X], dx);
    attn__grad_give(tape, node->x[RESIDUAL], dresidual);
}

static void layer_norm_backward(attn_tape *tape, attn__node *node)
{
    const norm_detail *detail = node->detail;
    const attn_tensor *y = node->y;
    attn__elementwise_args args = {.x = y->grad->data,
                                   .x2 = node->saved[SAVED_ROWS].data,
                                   .x3 = node->saved[SAVED_GAIN].data,
                                   .x4 = detail->from_output ? node->saved[SAVED_BIAS].data : NULL,
                                   .x5 = node->saved[SAVED_INVERSE].data,
                                   .n = y->shape[y->rank - 1],
                                   .kind = (int)detail->kind};
    attn__dropout_set(&args, &detail->dropout);
    attn__hold inverse = {0};
    if (detail->from_output && !(inverse = inverse_gain(tape, y, args.x3)).data)
        return;
    args.x6 = inverse.data;
    parameters_backward(tape, node, args);
    inputs_backward(tape, node, args);
    attn__scratch_release(inverse);
}

static double element(const attn_tensor *x, int64_t i)
{
    return x->dtype == ATTN_F64 ? ((const double *)x->data)[i] : (double)((const float *)x->data)[i];
}

/* Returns whether the normalized rows can be computed from the output y with gain g and bias b. (y - b) / g magnifies
 * the rounding error of y by |b / g|, so |b / g| must not be large. 1 / g must be neither infinite nor subnormal. */
static bool invertible(const attn_tensor *gain, const attn_tensor *bias)
{
    for (int64_t i = 0; i < gain->size; i++) {
        double g = fabs(element(gain, i));
        if (!(g > 1e-6 && g < 1e30) || fabs(element(bias, i)) > 8 * g)
            return false;
    }
    return true;
}

static bool shapes_fit(attn_tape *tape, const attn_tensor *x, const attn_tensor *residual, const attn_tensor *g,
                       const attn_tensor *b)
{
    int64_t n = x->rank ? x->shape[x->rank - 1] : -1;
    if (n > 0 && g->rank == 1 && g->shape[0] == n && b->rank == 1 && b->shape[0] == n &&
        (!residual || attn__same_shape(x, residual)))
        return true;
    char tx[ATTN__SHAPE_TEXT], ty[ATTN__SHAPE_TEXT], tg[ATTN__SHAPE_TEXT], tb[ATTN__SHAPE_TEXT];
    attn__op_shape_error(tape, "layer_norm: x %s, y %s, g %s, b %s; expected x and y [...,D], g and b [D]",
                         attn__shape_text(x, tx), residual ? attn__shape_text(residual, ty) : "none",
                         attn__shape_text(g, tg), attn__shape_text(b, tb));
    return false;
}

/* Saves what the backward pass needs. If the normalized rows must be kept, *kept becomes memory for them, which the
 * caller fills. */
static bool save(attn_tape *tape, attn__node *node, const attn__dropout *dropout, attn__hold *kept, attn__hold *inverse)
{
    const attn_tensor *y = node->y;
    norm_detail *detail = node->detail;
    detail->dropout = *dropout;
    detail->from_output = invertible(node->x[GAIN], node->x[BIAS]);
    *inverse = attn__scratch(tape, (size_t)attn__row_count(y) * attn_dtype_size(y->dtype));
    if (!inverse->data)
        return false;
    attn__node_save_hold(node, SAVED_INVERSE, *inverse);
    attn__node_save(node, SAVED_GAIN, node->x[GAIN]);
    if (detail->from_output) {
        attn__node_save(node, SAVED_ROWS, y);
        attn__node_save(node, SAVED_BIAS, node->x[BIAS]);
        return true;
    }
    *kept = attn__scratch(tape, attn__tensor_bytes(y));
    if (kept->data)
        attn__node_save_hold(node, SAVED_ROWS, *kept);
    return kept->data != NULL;
}

static attn_tensor *normalize(attn_tape *tape, attn_tensor *x, attn_tensor *residual, attn__dropout dropout,
                              attn_tensor *g, attn_tensor *b, double eps, attn__normalize kind)
{
    if (!shapes_fit(tape, x, residual, g, b))
        return NULL;
    attn_tensor *y = attn__op_result(tape, x->dtype, x->rank, x->shape), *inputs[INPUTS] = {x, residual, g, b};
    attn__node *node;
    attn__hold kept = {0}, inverse = {0};
    if (!y || !attn__op_record(tape, &node, layer_norm_backward, y, INPUTS, inputs, SAVED_COUNT, sizeof(norm_detail)) ||
        (node && !save(tape, node, &dropout, &kept, &inverse)))
        return NULL;
    if (node)
        ((norm_detail *)node->detail)->kind = kind;
    attn__elementwise_args args = {.x = x->data,
                                   .x2 = residual ? residual->data : NULL,
                                   .x3 = g->data,
                                   .x4 = b->data,
                                   .y = y->data,
                                   .y2 = kept.data,
                                   .y3 = inverse.data,
                                   .n = x->shape[x->rank - 1],
                                   .s = {eps},
                                   .kind = (int)kind};
    attn__dropout_set(&args, &dropout);
    attn__elementwise_run(tape, y->dtype, ATTN__ELEMENTWISE_LAYER_NORM, &args, attn__row_count(x), args.n);
    return y;
}

attn_tensor *attn_layer_norm(attn_tape *tape, attn_tensor *x, attn_tensor *g, attn_tensor *b, double eps)
{
    ATTN__TAPE_CALL(tape->context);
    if (!attn__op_accepts(tape, "layer_norm", 3, x, g, b))
        return NULL;
    return normalize(tape, x, NULL, (attn__dropout){.scale = 1}, g, b, eps, ATTN__NORMALIZE_DEVIATION);
}

attn_tensor *attn_add_layer_norm(attn_tape *tape, attn_tensor *x, attn_tensor *y, double p, attn_tensor *g,
                                 attn_tensor *b, double eps)
{
    ATTN__TAPE_CALL(tape->context);
    if (!attn__op_accepts(tape, "add_layer_norm", 4, x, y, g, b) || !attn__dropout_accepts(tape, "add_layer_norm", p))
        return NULL;
    return normalize(tape, x, y, attn__dropout_site(tape, x, p), g, b, eps, ATTN__NORMALIZE_DEVIATION);
}

attn_tensor *attn_rms_norm(attn_tape *tape, attn_tensor *x, attn_tensor *g, attn_tensor *b, double eps)
{
    ATTN__TAPE_CALL(tape->context);
    if (!attn__op_accepts(tape, "rms_norm", 3, x, g, b))
        return NULL;
    return normalize(tape, x, NULL, (attn__dropout){.scale = 1}, g, b, eps, ATTN__NORMALIZE_ROOT_MEAN_SQUARE);
}
