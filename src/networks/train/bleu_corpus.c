/* SPDX-License-Identifier: MIT
 * Computes corpus BLEU with sacreBLEU's defaults. */
#include "attn/train.h"

#include "base/context.h"
#include "train/ngrams.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ORDERS = 4 };

/* The first order of n-grams without a match counts as 1/2 match, the second as 1/4 match, and so on. If no order has a
 * match, the score is 0. */
static void score(attn_bleu *bleu, const attn__ngrams orders[ORDERS])
{
    double halves = 1, log_sum = 0;
    bool any = false;
    for (int n = 0; n < ORDERS && orders[n].predicted > 0; n++) {
        any |= orders[n].matches > 0;
        if (orders[n].matches == 0)
            halves *= 2;
        double matches = orders[n].matches ? (double)orders[n].matches : 1 / halves;
        bleu->precisions[n] = 100 * matches / (double)orders[n].predicted;
    }
    double pred = (double)bleu->prediction_length, ref = (double)bleu->reference_length;
    bleu->brevity_penalty = pred >= ref ? 1 : pred > 0 ? exp(1 - ref / pred) : 0;
    for (int n = 0; n < ORDERS; n++)
        /* without any n-gram the precision is 0, so log() is -inf and the score becomes 0 */
        log_sum += log(bleu->precisions[n]);
    bleu->score = any ? bleu->brevity_penalty * exp(log_sum / ORDERS) : 0;
    if (!any)
        memset(bleu->precisions, 0, sizeof bleu->precisions);
}

/* Returns the length of the reference that is nearest to the prediction's length. If two are equally near, returns the
 * shorter one. */
static int64_t nearest_length(int64_t length, const attn__tokens *references, int64_t n)
{
    int64_t nearest = references[0].n;
    for (int64_t r = 1; r < n; r++) {
        int64_t far = llabs(references[r].n - length), least = llabs(nearest - length);
        if (far < least || (far == least && references[r].n < nearest))
            nearest = references[r].n;
    }
    return nearest;
}

static attn_status add(attn_bleu *bleu, attn__ngrams *orders, attn_context *context, const char *predicted,
                       const char *const *wanted, int64_t n)
{
    attn__tokens prediction = {0},
                 *references = attn__alloc_zero(context, attn__size_mul((size_t)n, sizeof *references));
    attn_status status = references ? attn__tokenize_13a(&prediction, context, predicted) : ATTN_ERROR_MEMORY;
    for (int64_t r = 0; r < n && status == ATTN_OK; r++)
        status = attn__tokenize_13a(&references[r], context, wanted[r]);
    if (status == ATTN_OK)
        status = attn__ngrams_add(context, &prediction, references, n, orders, ORDERS);
    if (status == ATTN_OK) {
        bleu->prediction_length += prediction.n;
        bleu->reference_length += nearest_length(prediction.n, references, n);
    }
    for (int64_t r = 0; references && r < n; r++)
        attn__tokens_free(&references[r], context);
    attn__tokens_free(&prediction, context);
    attn__free(context, references);
    return status;
}

attn_status attn_bleu_corpus(attn_bleu *bleu, attn_context *context, const char *const *predictions,
                             const char *const *references, const int64_t *counts, int64_t n)
{
    ATTN__CALL(context);
    attn__ngrams orders[ORDERS] = {{0}};
    *bleu = (attn_bleu){0};
    attn_status status = attn__reference_counts_fit(context, counts, n);
    for (int64_t i = 0; i < n && status == ATTN_OK; i++) {
        int64_t each = attn__reference_count(counts, i);
        status = add(bleu, orders, context, predictions[i], references, each);
        references += each;
    }
    if (status == ATTN_OK)
        score(bleu, orders);
    return status;
}
