/* SPDX-License-Identifier: MIT
 * Corpus BLEU with sacreBLEU's defaults. */
#include "attn/train.h"

#include "base/context.h"
#include "train/ngrams.h"

#include <math.h>

enum { ORDERS = 4 };

/* An order without any match counts as half a match, the next one as a quarter, and so on. */
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
        log_sum += log(bleu->precisions[n]); /* -inf where there is no n-gram at all: a score of 0 */
    bleu->score = any ? bleu->brevity_penalty * exp(log_sum / ORDERS) : 0;
}

attn_status attn_bleu_corpus(attn_bleu *bleu, attn_context *context, const char *const *predictions,
                             const char *const *references, int64_t n)
{
    attn__call_begin(context);
    attn__ngrams orders[ORDERS] = {{0}};
    *bleu = (attn_bleu){0};
    for (int64_t i = 0; i < n; i++) {
        attn__words prediction, reference;
        attn_status status = attn__tokenize_13a(&prediction, context, predictions[i]);
        if (status != ATTN_OK)
            return status;
        status = attn__tokenize_13a(&reference, context, references[i]);
        if (status == ATTN_OK) {
            status = attn__ngrams_add(context, &prediction, &reference, orders, ORDERS);
            bleu->prediction_length += prediction.n;
            bleu->reference_length += reference.n;
            attn__words_free(&reference, context);
        }
        attn__words_free(&prediction, context);
        if (status != ATTN_OK)
            return status;
    }
    score(bleu, orders);
    return ATTN_OK;
}
