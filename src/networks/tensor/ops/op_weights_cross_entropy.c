/* SPDX-License-Identifier: MIT
 * Implements the cross-entropy of attention weights with target weights (Chen et al. 2016, Guided alignment training
 * for topic-aware neural machine translation). Target weights of 0, which are the most frequent, are skipped. */
#include "tensor/op.h"
#include "tensor/parts.h"

#include <math.h>
#include <string.h>

typedef struct guided_detail {
    double divisor;
} guided_detail;

enum { SAVED_WEIGHTS, SAVED_WANTED, SAVED_COUNT };

/* added to each weight, so that a weight of 0 has a finite logarithm and gradient */
static const double least = 1e-6;

typedef struct maps {
    attn_dtype dtype;
    int64_t batch, heads, size; /* size: elements of the map of one head */
    const void *weights, *wanted;
} maps;

static maps maps_of(const attn_tensor *weights, const void *data, const void *wanted)
{
    return (maps){.dtype = weights->dtype,
                  .batch = weights->shape[0],
                  .heads = weights->shape[1],
                  .size = weights->shape[2] * weights->shape[3],
                  .weights = data,
                  .wanted = wanted};
}

static double at(attn_dtype dtype, const void *data, int64_t i)
{
    return dtype == ATTN_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void put(attn_dtype dtype, void *data, int64_t i, double value)
{
    if (dtype == ATTN_F64)
        ((double *)data)[i] = value;
    else
        ((float *)data)[i] = (float)value;
}

/* Returns element i of the map of example b, averaged over the heads. */
static double mean_of(const maps *m, int64_t b, int64_t i)
{
    double sum = 0;
    for (int64_t h = 0; h < m->heads; h++)
        sum += at(m->dtype, m->weights, (b * m->heads + h) * m->size + i);
    return sum / (double)m->heads;
}

static double total(const maps *m)
{
    double sum = 0;
    for (int64_t i = 0; i < m->batch * m->size; i++) {
        double wanted = at(m->dtype, m->wanted, i);
        if (wanted != 0)
            sum -= wanted * log(mean_of(m, i / m->size, i % m->size) + least);
    }
    return sum;
}

/* Writes the nonzero gradients of the attention weights. `scale` is the gradient of the loss, divided by
 * the divisor that the caller of attn_weights_cross_entropy gave. */
static void spread(const maps *m, double scale, void *gradient)
{
    for (int64_t i = 0; i < m->batch * m->size; i++) {
        double wanted = at(m->dtype, m->wanted, i);
        int64_t b = i / m->size, place = i % m->size;
        if (wanted == 0)
            continue;
        double share = -scale * wanted / ((double)m->heads * (mean_of(m, b, place) + least));
        for (int64_t h = 0; h < m->heads; h++)
            put(m->dtype, gradient, (b * m->heads + h) * m->size + place, share);
    }
}

static void guided_backward(attn_tape *tape, attn__node *node)
{
    attn_tensor *weights = node->x[0];
    const attn_tensor *dy = node->y->grad;
    attn__hold share = attn__scratch(tape, attn__tensor_bytes(weights));
    tape->failed |= !share.data;
    if (!share.data)
        return;
    maps m = maps_of(weights, node->saved[SAVED_WEIGHTS].data, node->saved[SAVED_WANTED].data);
    memset(share.data, 0, attn__tensor_bytes(weights));
    spread(&m, at(dy->dtype, dy->data, 0) / ((const guided_detail *)node->detail)->divisor, share.data);
    attn__grad_give(tape, weights, share);
}

static bool accepts(attn_tape *tape, const attn_tensor *weights, const attn_tensor *wanted, double divisor)
{
    if (!attn__op_accepts(tape, "weights_cross_entropy", 2, weights, wanted))
        return false;
    bool fits = weights->rank == 4 && wanted->rank == 3 && weights->shape[1] > 0;
    for (int i = 0; i < 3 && fits; i++)
        fits = wanted->shape[i] == weights->shape[i > 0 ? i + 1 : 0];
    char tx[ATTN__SHAPE_TEXT], ty[ATTN__SHAPE_TEXT];
    if (!fits)
        attn__op_shape_error(
            tape, "weights_cross_entropy: weights %s, target %s; expected weights [B,H,T,S] and target [B,T,S]",
            attn__shape_text(weights, tx), attn__shape_text(wanted, ty));
    else if (!(divisor > 0))
        attn__fail(tape->context, ATTN_ERROR_ARGUMENT, "weights_cross_entropy: the divisor is %g; it must be above 0",
                   divisor);
    return fits && divisor > 0;
}

attn_tensor *attn_weights_cross_entropy(attn_tape *tape, attn_tensor *weights, const attn_tensor *wanted,
                                        double divisor)
{
    ATTN__TAPE_CALL(tape->context);
    attn__node *node;
    if (!accepts(tape, weights, wanted, divisor))
        return NULL;
    attn_tensor *loss = attn__op_result(tape, weights->dtype, 0, NULL);
    if (!loss || !attn__op_record(tape, &node, guided_backward, loss, 1, &weights, SAVED_COUNT, sizeof(guided_detail)))
        return NULL;
    maps m = maps_of(weights, weights->data, wanted->data);
    put(m.dtype, loss->data, 0, total(&m) / divisor);
    if (node) {
        ((guided_detail *)node->detail)->divisor = divisor;
        attn__node_save(node, SAVED_WEIGHTS, weights);
        attn__node_save(node, SAVED_WANTED, wanted);
    }
    return loss;
}
