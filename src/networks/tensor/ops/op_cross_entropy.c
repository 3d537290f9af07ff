/* SPDX-License-Identifier: MIT
 * Implements cross-entropy of logits and labels, with an ignored label and label smoothing. The backward pass needs the
 * log-sum-exp of each row. It is stored in two parts, the largest logit and the rest, because their sum would lose
 * digits if logits are large. The gradient overwrites the logits. */
#include "tensor/op.h"
#include "tensor/tape.h"

typedef struct entropy_detail {
    attn_cross_entropy_options options;
    double divisor;
} entropy_detail;

enum { SAVED_LOGITS, SAVED_LABELS, SAVED_LSE, SAVED_COUNT };

static attn__elementwise_args arguments(const attn_tensor *logits, const void *x, const int32_t *labels,
                                        const attn_cross_entropy_options *options)
{
    return (attn__elementwise_args){.x = x,
                                    .n = logits->shape[logits->rank - 1],
                                    .ids = labels,
                                    .has_ignore = options->use_ignore_index,
                                    .ignore = options->ignore_index,
                                    .s = {options->label_smoothing}};
}

/* Returns the buffer for the gradient. This is the buffer of the logits, unless the logits are a leaf, a view of a
 * leaf, or needed by another node. In these cases a new buffer is made. */
static attn__hold place_for_gradient(attn_tape *tape, const attn_tensor *logits, attn__hold saved)
{
    if (logits->computed && !saved.storage->leaf && saved.storage->saves == 1) {
        attn__storage_ref(saved.storage);
        return saved;
    }
    attn__hold fresh = attn__scratch(tape, attn__tensor_bytes(logits));
    tape->failed |= !fresh.data;
    return fresh;
}

static void cross_entropy_backward(attn_tape *tape, attn__node *node)
{
    const entropy_detail *detail = node->detail;
    attn_tensor *logits = node->x[0], *dy = node->y->grad;
    attn__hold dx = place_for_gradient(tape, logits, node->saved[SAVED_LOGITS]);
    if (!dx.data)
        return;
    double upper = dy->dtype == ATTN_F64 ? *(double *)dy->data : (double)*(float *)dy->data;
    attn__elementwise_args args =
        arguments(logits, node->saved[SAVED_LOGITS].data, node->saved[SAVED_LABELS].data, &detail->options);
    args.x2 = node->saved[SAVED_LSE].data;
    args.y = dx.data;
    args.s[1] = detail->divisor > 0 ? upper / detail->divisor : 0;
    attn__elementwise_run(tape, logits->dtype, ATTN__ELEMENTWISE_CROSS_ENTROPY_BACKWARD, &args, attn__row_count(logits),
                          args.n);
    attn__grad_give(tape, logits, dx);
}

/* Counts the labels that are not ignored. Returns -1 and records an error if a label is not a valid class. */
static int64_t count_labels(attn_tape *tape, const attn_tensor *labels, int64_t classes,
                            const attn_cross_entropy_options *options)
{
    const int32_t *label = labels->data;
    int64_t counted = 0;
    for (int64_t i = 0; i < labels->size; i++) {
        if (options->use_ignore_index && label[i] == options->ignore_index)
            continue;
        if (label[i] < 0 || label[i] >= classes) {
            attn__fail(tape->context, ATTN_ERROR_ARGUMENT, "cross_entropy: labels[%lld] is %d; it must be 0 to %lld",
                       (long long)i, label[i], (long long)classes - 1);
            return -1;
        }
        counted++;
    }
    return counted;
}

static bool accepts(attn_tape *tape, const attn_tensor *logits, const attn_tensor *labels)
{
    if (!labels || !attn__op_accepts(tape, "cross_entropy", 1, logits))
        return false;
    if (labels->dtype != ATTN_I32 || !labels->data) {
        attn__fail(tape->context, ATTN_ERROR_ARGUMENT, "cross_entropy: the labels are %s; expected i32",
                   attn_dtype_name(labels->dtype));
        return false;
    }
    if (logits->rank >= 1 && logits->shape[logits->rank - 1] > 0 && labels->size == attn__row_count(logits))
        return true;
    char tx[ATTN__SHAPE_TEXT], tl[ATTN__SHAPE_TEXT];
    attn__op_shape_error(tape, "cross_entropy: logits %s, labels %s; expected logits [...,C] and labels [...]",
                         attn__shape_text(logits, tx), attn__shape_text(labels, tl));
    return false;
}

/* Stores in `loss` the sum of the losses of all rows, divided by `divisor`. The sum is computed in double, in the order
 * of the rows. */
static void total(attn_tensor *loss, const void *rows, int64_t n, double divisor)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += loss->dtype == ATTN_F64 ? ((const double *)rows)[i] : (double)((const float *)rows)[i];
    sum = divisor > 0 ? sum / divisor : 0;
    if (loss->dtype == ATTN_F64)
        *(double *)loss->data = sum;
    else
        *(float *)loss->data = (float)sum;
}

attn_tensor *attn_cross_entropy(attn_tape *tape, attn_tensor *logits, const attn_tensor *labels,
                                const attn_cross_entropy_options *options)
{
    ATTN__TAPE_CALL(tape->context);
    if (ATTN__CHECK_RESERVED(tape->context, options, attn_cross_entropy_options) != ATTN_OK)
        return NULL;
    static const attn_cross_entropy_options defaults;
    options = options ? options : &defaults;
    if (!accepts(tape, logits, labels))
        return NULL;
    attn__elementwise_args args = arguments(logits, logits->data, labels->data, options);
    int64_t counted = count_labels(tape, labels, args.n, options), rows = labels->size;
    attn_tensor *loss = counted < 0 ? NULL : attn__op_result(tape, logits->dtype, 0, NULL);
    attn__node *node;
    if (!loss ||
        !attn__op_record(tape, &node, cross_entropy_backward, loss, 1, &logits, SAVED_COUNT, sizeof(entropy_detail)))
        return NULL;
    size_t bytes = (size_t)rows * attn_dtype_size(logits->dtype);
    attn__hold lse = attn__scratch(tape, 2 * bytes), losses = attn__scratch(tape, bytes);
    double divisor = options->divisor > 0 ? options->divisor : (double)counted;
    bool done = lse.data && losses.data;
    if (done) {
        args.y = losses.data;
        args.y3 = lse.data;
        attn__elementwise_run(tape, logits->dtype, ATTN__ELEMENTWISE_CROSS_ENTROPY, &args, rows, args.n);
        total(loss, losses.data, rows, divisor);
    }
    if (done && node) {
        *(entropy_detail *)node->detail = (entropy_detail){*options, divisor};
        attn__node_save(node, SAVED_LOGITS, logits);
        attn__node_save(node, SAVED_LABELS, labels);
        attn__storage_ref(lse.storage);
        attn__node_save_hold(node, SAVED_LSE, lse);
    }
    attn__scratch_release(lse);
    attn__scratch_release(losses);
    return done ? loss : NULL;
}
