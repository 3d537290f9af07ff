/* SPDX-License-Identifier: MIT
 * Computes chrF, the F-score of character n-grams, with sacreBLEU's defaults. */
#include "attn/train.h"

#include "base/context.h"
#include "train/chrf.h"
#include "train/ngrams.h"

#include <string.h>

enum { ORDERS = 6 };

/* Returns the length in bytes of the character at `s`. `s` must not be at the end of the text. A byte that is not valid
 * UTF-8 counts as one character. */
static size_t character_at(const char *s)
{
    unsigned char c = (unsigned char)*s;
    size_t n = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
    for (size_t i = 1; i < n; i++)
        if (((unsigned char)s[i] & 0xC0) != 0x80)
            return 1;
    return n;
}

/* Splits a line into its characters, without white space. Each character becomes one of the "words" in `words`. */
static attn_status split(attn__tokens *words, attn_context *context, const char *line)
{
    size_t length = strlen(line), at = 0;
    *words = (attn__tokens){0};
    words->buffer = attn__alloc(context, attn__size_add(attn__size_mul(length, 2), 1));
    words->word = attn__alloc(context, attn__size_mul(attn__size_add(length, 1), sizeof *words->word));
    if (!words->buffer || !words->word) {
        attn__tokens_free(words, context);
        return ATTN_ERROR_MEMORY;
    }
    while (*line) {
        size_t space = attn__space_at(line), bytes = space ? space : character_at(line);
        if (!space) {
            words->word[words->n++] = words->buffer + at;
            memcpy(words->buffer + at, line, bytes);
            words->buffer[at + bytes] = '\0';
            at += bytes + 1;
        }
        line += bytes;
    }
    return ATTN_OK;
}

/* Returns the F-score, in which recall is twice as important as precision. Precision and recall are averaged over the
 * orders of n-grams that both the prediction and the reference have. */
static double score(const attn__ngrams orders[ORDERS])
{
    const double beta2 = 4;
    double precision = 0, recall = 0;
    int counted = 0;
    for (int n = 0; n < ORDERS; n++) {
        if (orders[n].predicted == 0 || orders[n].wanted == 0)
            continue;
        precision += (double)orders[n].matches / (double)orders[n].predicted;
        recall += (double)orders[n].matches / (double)orders[n].wanted;
        counted++;
    }
    if (counted == 0 || precision + recall <= 0)
        return 0;
    precision /= counted;
    recall /= counted;
    return 100 * (1 + beta2) * precision * recall / (beta2 * precision + recall);
}

static attn_status compare(attn_context *context, const attn__tokens *predicted, const char *reference,
                           attn__ngrams own[ORDERS])
{
    attn__tokens wanted;
    attn_status status = split(&wanted, context, reference);
    if (status != ATTN_OK)
        return status;
    memset(own, 0, ORDERS * sizeof *own);
    status = attn__ngrams_add(context, predicted, &wanted, 1, own, ORDERS);
    attn__tokens_free(&wanted, context);
    /* as in sacreBLEU, the prediction's n-grams of an order count only if the reference has n-grams of this order */
    for (int n = 0; n < ORDERS; n++)
        own[n].predicted = own[n].wanted > 0 ? own[n].predicted : 0;
    return status;
}

/* Adds a sentence's counts of n-grams to `orders`. As in sacreBLEU, they are the counts with the reference that gives
 * the sentence the highest score. The first of equally good references is used. */
static attn_status add(attn_context *context, const char *prediction, const char *const *references, int64_t count,
                       attn__ngrams *orders)
{
    attn__tokens predicted;
    attn__ngrams own[ORDERS], best[ORDERS] = {{0}};
    double highest = -1;
    attn_status status = split(&predicted, context, prediction);
    if (status != ATTN_OK)
        return status;
    for (int64_t r = 0; r < count && status == ATTN_OK; r++) {
        status = compare(context, &predicted, references[r], own);
        if (status == ATTN_OK && score(own) > highest) {
            highest = score(own);
            memcpy(best, own, sizeof best);
        }
    }
    attn__tokens_free(&predicted, context);
    for (int n = 0; n < ORDERS; n++) {
        orders[n].predicted += best[n].predicted;
        orders[n].wanted += best[n].wanted;
        orders[n].matches += best[n].matches;
    }
    return status;
}

attn_status attn_chrf_corpus(double *chrf, attn_context *context, const char *const *predictions,
                             const char *const *references, const int64_t *counts, int64_t n)
{
    ATTN__CALL(context);
    attn__ngrams orders[ORDERS] = {{0}};
    *chrf = 0;
    attn_status status = attn__reference_counts_fit(context, counts, n);
    for (int64_t i = 0; i < n && status == ATTN_OK; i++) {
        int64_t each = attn__reference_count(counts, i);
        status = add(context, predictions[i], references, each, orders);
        references += each;
    }
    if (status == ATTN_OK)
        *chrf = score(orders);
    return status;
}

/* Computes chrf[i * n + j] for n texts, from the number of n-grams that texts i and j have in common. */
static void score_pairs(int64_t n, const int64_t *counts, const int64_t *shared, double *chrf)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            attn__ngrams orders[ORDERS];
            for (int order = 0; order < ORDERS; order++)
                orders[order] =
                    (attn__ngrams){counts[order * n + i], counts[order * n + j], shared[(order * n + i) * n + j]};
            chrf[i * n + j] = score(orders);
        }
}

attn_status attn__chrf_pairs(attn_context *context, const char *const *texts, int64_t n, double *chrf)
{
    int64_t split_up = 0;
    size_t numbers = attn__size_mul(ORDERS, attn__size_mul((size_t)n, (size_t)n + 1));
    attn__tokens *words = attn__alloc(context, attn__size_mul((size_t)n, sizeof *words));
    int64_t *counts = attn__alloc(context, attn__size_mul(numbers, sizeof *counts));
    attn_status status = words && counts ? ATTN_OK : ATTN_ERROR_MEMORY;
    while (status == ATTN_OK && split_up < n) {
        status = split(&words[split_up], context, texts[split_up]);
        split_up += status == ATTN_OK;
    }
    if (status == ATTN_OK)
        status = attn__ngrams_shared(context, words, n, ORDERS, counts, counts + ORDERS * n);
    if (status == ATTN_OK)
        score_pairs(n, counts, counts + ORDERS * n, chrf);
    while (split_up > 0)
        attn__tokens_free(&words[--split_up], context);
    attn__free(context, counts);
    attn__free(context, words);
    return status;
}
