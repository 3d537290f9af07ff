/* SPDX-License-Identifier: MIT
 *
 * Implements dropout (Srivastava et al. 2014). The mask is not stored. The backward pass computes it again from the
 * seed and the dropout site. */
#include "tensor/op.h"

#include "tensor/dropout.h"
#include "tensor/tape_state.h"

bool attn__dropout_accepts(attn_tape *tape, const char *op, double p)
{
    if (p >= 0 && p < 1)
        return true;
    attn__fail(tape->context, ATTN_ERROR_ARGUMENT, "%s: dropout %g is not in [0, 1)", op, p);
    return false;
}

attn__drop_rows attn__dropout_shard(const attn_tape *tape, int64_t each)
{
    const attn_shard *s = &tape->share;
    int64_t here = s->count > 0 ? s->count : 1;
    if (s->whole == 0)
        return (attn__drop_rows){0};
    return (attn__drop_rows){s->first * each, here * each, (s->whole - here) * each};
}

/* Returns the number of adjacent rows of x that belong to one example. A row is along the last axis. The axis of the
 * examples may also contain heads. */
static int64_t rows_of_example(const attn_tape *tape, const attn_tensor *x)
{
    int64_t here = tape->share.count > 0 ? tape->share.count : 1, rows = 1;
    for (int i = tape->examples; i < x->rank - 1; i++)
        rows *= x->shape[i];
    return rows / here;
}

attn__dropout attn__dropout_site(attn_tape *tape, const attn_tensor *x, double p)
{
    if (!tape->options.train || p == 0)
        return (attn__dropout){.scale = 1};
    return (attn__dropout){tape->options.seed, tape->stream++, attn__dropout_threshold(p), 1 / (1 - p),
                           attn__dropout_shard(tape, rows_of_example(tape, x))};
}

void attn__dropout_set(attn__elementwise_args *args, const attn__dropout *dropout)
{
    args->seed = dropout->seed;
    args->stream = dropout->stream;
    args->threshold = dropout->threshold;
    args->keep_scale = dropout->scale;
    args->drop_rows = dropout->rows;
}

static void run(attn_tape *tape, const attn__dropout *dropout, const attn_tensor *like, const void *x, void *y)
{
    int64_t n = like->rank ? like->shape[like->rank - 1] : 1;
    attn__elementwise_args args = {.x = x, .y = y, .n = n};
    attn__dropout_set(&args, dropout);
    attn__elementwise_run(tape, like->dtype, ATTN__ELEMENTWISE_DROPOUT, &args, attn__row_count(like), n);
}

static void dropout_backward(attn_tape *tape, attn__node *node)
{
    attn__hold dx = attn__grad_reuse(tape, node->y);
    if (!dx.data)
        return;
    run(tape, node->detail, node->y, node->y->grad->data, dx.data);
    attn__grad_give(tape, node->x[0], dx);
}

attn_tensor *attn_dropout(attn_tape *tape, attn_tensor *x, double p)
{
    ATTN__TAPE_CALL(tape->context);
    if (!attn__op_accepts(tape, "dropout", 1, x) || !attn__dropout_accepts(tape, "dropout", p))
        return NULL;
    attn__dropout dropout = attn__dropout_site(tape, x, p);
    if (dropout.threshold == 0)
        return x;
    attn_tensor *y = attn__op_result(tape, x->dtype, x->rank, x->shape);
    attn__node *node;
    if (!y || !attn__op_record(tape, &node, dropout_backward, y, 1, &x, 0, sizeof dropout))
        return NULL;
    run(tape, &dropout, x, x->data, y->data);
    if (node)
        *(attn__dropout *)node->detail = dropout;
    return y;
}
