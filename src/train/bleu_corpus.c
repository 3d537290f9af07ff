/* SPDX-License-Identifier: MIT
 * Corpus BLEU with sacreBLEU's defaults. */
#include "attn/train.h"

#include "base/context.h"
#include "train/tokenise_13a.h"

#include <math.h>
#include <string.h>

enum { ORDERS = 4 };

static bool same_gram(const char *const *a, const char *const *b, int n)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(a[i], b[i]) != 0)
            return false;
    }
    return true;
}

static int64_t count_gram(const attn__words *words, int64_t starts, const char *const *gram, int n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < starts; i++)
        count += same_gram(words->word + i, gram, n);
    return count;
}

/* Adds one sentence's clipped matches and n-grams.  Quadratic in its length. */
static void count_sentence(const attn__words *prediction, const attn__words *reference, int64_t correct[ORDERS],
                           int64_t total[ORDERS])
{
    for (int n = 1; n <= ORDERS; n++) {
        int64_t grams = prediction->n - n + 1, reference_grams = reference->n - n + 1;
        for (int64_t i = 0; i < grams; i++) {
            const char *const *gram = prediction->word + i;
            correct[n - 1] += count_gram(prediction, i, gram, n) < count_gram(reference, reference_grams, gram, n);
        }
        total[n - 1] += grams > 0 ? grams : 0;
    }
}

/* An order without any match counts as half a match, the next one as a quarter, and so on. */
static void score(attn_bleu *bleu, const int64_t correct[ORDERS], const int64_t total[ORDERS])
{
    double halves = 1, log_sum = 0;
    bool any = false;
    for (int n = 0; n < ORDERS && total[n] > 0; n++) {
        any |= correct[n] > 0;
        if (correct[n] == 0)
            halves *= 2;
        double matches = correct[n] ? (double)correct[n] : 1 / halves;
        bleu->precisions[n] = 100 * matches / (double)total[n];
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
    int64_t correct[ORDERS] = {0}, total[ORDERS] = {0};
    *bleu = (attn_bleu){0};
    for (int64_t i = 0; i < n; i++) {
        attn__words prediction, reference;
        attn_status status = attn__tokenise_13a(&prediction, context, predictions[i]);
        if (status != ATTN_OK)
            return status;
        status = attn__tokenise_13a(&reference, context, references[i]);
        if (status == ATTN_OK) {
            count_sentence(&prediction, &reference, correct, total);
            bleu->prediction_length += prediction.n;
            bleu->reference_length += reference.n;
            attn__words_free(&reference, context);
        }
        attn__words_free(&prediction, context);
        if (status != ATTN_OK)
            return status;
    }
    score(bleu, correct, total);
    return ATTN_OK;
}
