/* SPDX-License-Identifier: MIT
 *
 * Implements the softmax over the last axis. Each row can have a length, beyond which its elements are ignored. */
#include "tensor/op.h"

typedef struct softmax_detail {
    int64_t lens_rows;
} softmax_detail;

enum { SAVED_Y, SAVED_LENS, SAVED_COUNT };

static void softmax_backward(attn_tape *tape, attn__node *node)
{
    attn_tensor *y = node->y;
    attn__hold dx = attn__grad_reuse(tape, y);
    if (!dx.data)
        return;
    attn__elementwise_args args = {.x = y->grad->data,
                                   .x2 = node->saved[SAVED_Y].data,
                                   .y = dx.data,
                                   .n = y->shape[y->rank - 1],
                                   .lens = node->saved[SAVED_LENS].data,
                                   .lens_rows = ((softmax_detail *)node->detail)->lens_rows};
    attn__elementwise_run(tape, y->dtype, ATTN__ELEMENTWISE_SOFTMAX_BACKWARD, &args, attn__row_count(y), args.n);
    attn__grad_give(tape, node->x[0], dx);
}

/* Returns the number of rows that have the same length: one row, or all rows with the same index of the first axis.
 * Returns 0 and records an error if the shape of `lens` does not fit x. */
static int64_t rows_of_a_length(attn_tape *tape, const attn_tensor *x, const attn_tensor *lens)
{
    int64_t rows = attn__row_count(x);
    if (!lens)
        return 1;
    if (lens->dtype == ATTN_I32 && lens->data && (lens->size == rows || lens->size == x->shape[0]))
        return lens->size == rows || lens->size == 0 || rows == 0 ? 1 : rows / lens->size;
    char tx[ATTN__SHAPE_TEXT], tl[ATTN__SHAPE_TEXT];
    attn__op_shape_error(
        tape, "softmax: x %s, lens %s of %s; expected lens of i32, one for each row or for each leading index",
        attn__shape_text(x, tx), attn__shape_text(lens, tl), attn_dtype_name(lens->dtype));
    return 0;
}

attn_tensor *attn_softmax(attn_tape *tape, attn_tensor *x, const attn_tensor *lens, double fill)
{
    ATTN__TAPE_CALL(tape->context);
    if (!attn__op_accepts(tape, "softmax", 1, x))
        return NULL;
    if (x->rank == 0)
        return attn__op_shape_error(tape, "softmax: x has no axis");
    int64_t lens_rows = rows_of_a_length(tape, x, lens);
    if (lens_rows == 0)
        return NULL;
    attn_tensor *y = attn__op_result(tape, x->dtype, x->rank, x->shape);
    attn__node *node;
    if (!y || !attn__op_record(tape, &node, softmax_backward, y, 1, &x, SAVED_COUNT, sizeof(softmax_detail)))
        return NULL;
    attn__elementwise_args args = {.x = x->data,
                                   .y = y->data,
                                   .n = x->shape[x->rank - 1],
                                   .s = {fill},
                                   .lens = lens ? lens->data : NULL,
                                   .lens_rows = lens_rows};
    attn__elementwise_run(tape, x->dtype, ATTN__ELEMENTWISE_SOFTMAX, &args, attn__row_count(x), args.n);
    if (node) {
        *(softmax_detail *)node->detail = (softmax_detail){lens_rows};
        attn__node_save(node, SAVED_Y, y);
        if (lens)
            attn__node_save(node, SAVED_LENS, lens);
    }
    return y;
}
