/* SPDX-License-Identifier: MIT
 * Detects objects in a picture. */
#include "apps/detector/detector.h"

#include "base/context.h"
#include "tensor/tape_state.h"

#include <math.h>
#include <stdlib.h>

int64_t attn_detector_queries(const attn_detector *d)
{
    return attn_config_int(attn_model_config(d->model), "num_queries", 0);
}

/* Runs the model on the pictures `x` with their padding `mask`, which may be NULL. If `aux` is true, the outputs of
 * the earlier decoder blocks are also requested. */
attn_status attn__detector_run(attn_model *model, attn_tape *tape, attn_tensor *x, attn_tensor *mask, bool aux,
                               attn__set_outputs *outputs)
{
    attn_context *context = attn_model_context(model);
    attn_named_list in = {.context = context}, out = {.context = context};
    *outputs = (attn__set_outputs){0};
    attn_status status = x ? attn_named_add(&in, "x", x) : attn__result_status(context, x);
    if (status == ATTN_OK && mask)
        status = attn_named_add(&in, "mask", mask);
    if (status == ATTN_OK && aux)
        status = attn_named_add(&out, "aux_logits", NULL);
    if (status == ATTN_OK && aux)
        status = attn_named_add(&out, "aux_boxes", NULL);
    if (status == ATTN_OK)
        status = attn_model_forward(model, tape, &in, &out);
    if (status == ATTN_OK) {
        *outputs = (attn__set_outputs){attn_named_find(&out, "pred_logits"), attn_named_find(&out, "pred_boxes"),
                                       attn_named_find(&out, "aux_logits"), attn_named_find(&out, "aux_boxes")};
    }
    attn_named_clear(&in);
    attn_named_clear(&out);
    return status;
}

/* The last class, "no object", is left out. The score is the probability of the class among all classes. */
static attn_detection best_class(const float *logits, int64_t outputs)
{
    attn_detection found = {0};
    double largest = (double)logits[0], sum = 0;
    for (int64_t i = 1; i < outputs; i++) {
        largest = fmax(largest, (double)logits[i]);
        found.label = i < outputs - 1 && logits[i] > logits[found.label] ? i : found.label;
    }
    for (int64_t i = 0; i < outputs; i++)
        sum += exp((double)logits[i] - largest);
    found.score = exp((double)logits[found.label] - largest) / sum;
    return found;
}

/* Sorts detections by falling score. Insertion sort is used, because it is stable and fast for few elements. */
static void sort(attn_detection *found, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        attn_detection one = found[i];
        int64_t j = i;
        for (; j > 0 && found[j - 1].score < one.score; j--)
            found[j] = found[j - 1];
        found[j] = one;
    }
}

attn_status attn__found_of(attn_context *context, const attn_tensor *logits, const attn_tensor *boxes, int64_t i,
                           int64_t width, int64_t height, attn_detection *found)
{
    int64_t queries = attn_tensor_length(logits, 1), outputs = attn_tensor_length(logits, 2);
    const float *l = (const float *)attn_tensor_data(logits) + i * queries * outputs;
    const float *b = (const float *)attn_tensor_data(boxes) + i * queries * 4;
    double w = (double)width, h = (double)height;
    for (int64_t q = 0; q < queries; q++, b += 4) {
        found[q] = best_class(l + q * outputs, outputs);
        found[q].query = q;
        found[q].left = ((double)b[0] - (double)b[2] / 2) * w;
        found[q].top = ((double)b[1] - (double)b[3] / 2) * h;
        found[q].right = ((double)b[0] + (double)b[2] / 2) * w;
        found[q].bottom = ((double)b[1] + (double)b[3] / 2) * h;
        if (!isfinite(found[q].score + found[q].left + found[q].top + found[q].right + found[q].bottom))
            return attn__fail(
                context, ATTN_ERROR_UNSUPPORTED,
                "the model's outputs for this picture are not finite: the weights hold NaN, infinity or numbers "
                "that are too large");
    }
    sort(found, queries);
    return ATTN_OK;
}

attn_status attn_detector_detect(attn_detector *d, const attn_image *image, attn_detection *found)
{
    attn_image prepared;
    attn__set_outputs outputs;
    attn_tensor *mask;
    attn_tape_reset(d->tape, NULL);
    attn_status status = attn__view_prepare(&d->view, d->context, image, &prepared);
    if (status == ATTN_OK) {
        attn_tensor *x = attn__view_batch(&d->view, d->tape, &prepared, 1, NULL, &mask);
        status = attn__detector_run(d->model, d->tape, x, mask, false, &outputs);
    }
    attn_image_free(d->context, &prepared);
    if (status == ATTN_OK)
        status = attn__found_of(d->context, outputs.logits, outputs.boxes, 0, image->width, image->height, found);
    return status;
}
