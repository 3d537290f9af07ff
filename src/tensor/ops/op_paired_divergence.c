/* SPDX-License-Identifier: MIT
 * The divergence of two predictions of the same labels: what R-Drop adds to a loss. */
#include "tensor/op.h"
#include "tensor/tape.h"

typedef struct divergence_detail {
    attn_cross_entropy_options options;
    double divisor;
} divergence_detail;

enum { SAVED_LOGITS, SAVED_LABELS, SAVED_SUMS, SAVED_COUNT, SUMS = 4 };

static attn__elementwise_args arguments(const attn_tensor *logits, const void *x, const int32_t *labels,
                                        const attn_cross_entropy_options *options)
{
    return (attn__elementwise_args){.x = x,
                                    .n = logits->shape[logits->rank - 1],
                                    .rows = attn__row_count(logits) / 2,
                                    .ids = labels,
                                    .has_ignore = options->use_ignore_index,
                                    .ignore = options->ignore_index};
}

static void divergence_backward(attn_tape *tape, attn__node *node)
{
    const divergence_detail *detail = node->detail;
    attn_tensor *logits = node->x[0], *dy = node->y->grad;
    attn__hold dx = attn__scratch(tape, attn__tensor_bytes(logits));
    tape->failed |= !dx.data;
    if (!dx.data)
        return;
    double upper = dy->dtype == ATTN_F64 ? *(double *)dy->data : (double)*(float *)dy->data;
    attn__elementwise_args args =
        arguments(logits, node->saved[SAVED_LOGITS].data, node->saved[SAVED_LABELS].data, &detail->options);
    args.x2 = node->saved[SAVED_SUMS].data;
    args.y = dx.data;
    args.s[1] = detail->divisor > 0 ? upper / detail->divisor : 0;
    attn__elementwise_run(tape, logits->dtype, ATTN__ELEMENTWISE_DIVERGENCE_BACKWARD, &args, args.rows, 2 * args.n);
    attn__grad_give(tape, logits, dx);
}

static bool accepts(attn_tape *tape, const attn_tensor *logits, const attn_tensor *labels)
{
    if (!labels || !attn__op_accepts(tape, "paired_divergence", 1, logits))
        return false;
    bool fits = logits->rank >= 2 && logits->shape[0] % 2 == 0 && logits->shape[logits->rank - 1] > 0 &&
                labels->dtype == ATTN_I32 && labels->data && labels->size == attn__row_count(logits);
    char tx[ATTN__SHAPE_TEXT], tl[ATTN__SHAPE_TEXT];
    if (!fits)
        attn__op_shape_error(tape, "paired_divergence: logits %s, labels %s of %s; wanted [2B,...,C], [2B,...] of i32",
                             attn__shape_text(logits, tx), attn__shape_text(labels, tl),
                             attn_dtype_name(labels->dtype));
    return fits;
}

/* The mean of the rows that count, added in their order, in double. */
static double mean(const attn__elementwise_args *args, attn_dtype dtype, const void *rows, double *divisor)
{
    double sum = 0;
    int64_t counted = 0;
    for (int64_t i = 0; i < args->rows; i++) {
        sum += dtype == ATTN_F64 ? ((const double *)rows)[i] : (double)((const float *)rows)[i];
        counted += !args->has_ignore || args->ids[i] != args->ignore;
    }
    if (!(*divisor > 0))
        *divisor = (double)counted;
    return *divisor > 0 ? sum / *divisor : 0;
}

attn_tensor *attn_paired_divergence(attn_tape *tape, attn_tensor *logits, const attn_tensor *labels,
                                    const attn_cross_entropy_options *options)
{
    static const attn_cross_entropy_options defaults;
    options = options ? options : &defaults;
    attn__node *node;
    if (!accepts(tape, logits, labels))
        return NULL;
    attn_tensor *loss = attn__op_result(tape, logits->dtype, 0, NULL);
    if (!loss ||
        !attn__op_record(tape, &node, divergence_backward, loss, 1, &logits, SAVED_COUNT, sizeof(divergence_detail)))
        return NULL;
    attn__elementwise_args args = arguments(logits, logits->data, labels->data, options);
    size_t bytes = (size_t)args.rows * attn_dtype_size(logits->dtype);
    attn__hold sums = attn__scratch(tape, SUMS * bytes), losses = attn__scratch(tape, bytes);
    double divisor = options->divisor;
    bool done = sums.data && losses.data;
    if (done) {
        args.y = losses.data;
        args.y2 = sums.data;
        attn__elementwise_run(tape, logits->dtype, ATTN__ELEMENTWISE_DIVERGENCE, &args, args.rows, 2 * args.n);
        double found = mean(&args, logits->dtype, losses.data, &divisor);
        if (loss->dtype == ATTN_F64)
            *(double *)loss->data = found;
        else
            *(float *)loss->data = (float)found;
    }
    if (done && node) {
        *(divergence_detail *)node->detail = (divergence_detail){*options, divisor};
        attn__node_save(node, SAVED_LOGITS, logits);
        attn__node_save(node, SAVED_LABELS, labels);
        attn__storage_ref(sums.storage);
        attn__node_save_hold(node, SAVED_SUMS, sums);
    }
    attn__scratch_release(sums);
    attn__scratch_release(losses);
    return done ? loss : NULL;
}
