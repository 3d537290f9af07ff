/* SPDX-License-Identifier: MIT
 * Corpus BLEU with sacreBLEU's defaults. */
#include "attn/train.h"

#include "base/context.h"
#include "train/tokenise_13a.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ORDERS = 4 };

/* An n-gram: the number of its first n - 1 words, its last word, and where it starts. */
typedef struct gram {
    int64_t head;
    const char *last;
    int64_t start;
} gram;

static int by_words(const void *a, const void *b)
{
    const gram *x = a, *y = b;
    return x->head != y->head ? (x->head > y->head) - (x->head < y->head) : strcmp(x->last, y->last);
}

/* The n-grams of a sentence whose words are numbered from `first` on in `heads`. */
static int64_t list_grams(gram *grams, const attn__words *words, const int64_t *heads, int64_t first, int n)
{
    int64_t count = words->n - n + 1;
    for (int64_t i = 0; i < count; i++)
        grams[i] = (gram){heads[first + i], words->word[i + n - 1], first + i};
    return count > 0 ? count : 0;
}

/* Sorts the n-grams of both sentences, numbers equal ones alike for the next order, and returns how many of the
 * prediction, whose starts come before `border`, are found in the reference, each of that as often as it is there. */
static int64_t match_grams(gram *grams, int64_t n, int64_t border, int64_t *heads)
{
    int64_t matches = 0, next;
    qsort(grams, (size_t)n, sizeof *grams, by_words);
    for (int64_t i = 0; i < n; i = next) {
        int64_t predicted = 0;
        for (next = i; next < n && by_words(grams + i, grams + next) == 0; next++) {
            predicted += grams[next].start < border;
            heads[grams[next].start] = i;
        }
        int64_t wanted = next - i - predicted;
        matches += predicted < wanted ? predicted : wanted;
    }
    return matches;
}

/* Adds one sentence's clipped matches and n-grams. */
static attn_status count_sentence(attn_context *context, const attn__words *prediction, const attn__words *reference,
                                  int64_t correct[ORDERS], int64_t total[ORDERS])
{
    size_t words = attn__size_add((size_t)prediction->n, (size_t)reference->n);
    gram *grams = attn__alloc(context, attn__size_mul(words, sizeof *grams));
    int64_t *heads = attn__alloc_zero(context, attn__size_mul(words, sizeof *heads));
    attn_status status = grams && heads ? ATTN_OK : ATTN_MEMORY;
    for (int n = 1; status == ATTN_OK && n <= ORDERS; n++) {
        int64_t predicted = list_grams(grams, prediction, heads, 0, n);
        int64_t wanted = list_grams(grams + predicted, reference, heads, prediction->n, n);
        correct[n - 1] += match_grams(grams, predicted + wanted, prediction->n, heads);
        total[n - 1] += predicted;
    }
    attn__free(context, heads);
    attn__free(context, grams);
    return status;
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
            status = count_sentence(context, &prediction, &reference, correct, total);
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
