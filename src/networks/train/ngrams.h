/* SPDX-License-Identifier: MIT
 * ngrams.h - counts the n-grams of words or characters that texts have in common, for metrics of translations. */
#ifndef ATTN_TRAIN_NGRAMS_H
#define ATTN_TRAIN_NGRAMS_H

#include "train/tokenize_13a.h"

/* Counts of the n-grams of one length, summed over all sentences so far. */
typedef struct attn__ngrams {
    /* number of n-grams of the predictions, and number of n-grams of all references */
    int64_t predicted, wanted;
    /* number of the predictions' n-grams that match a reference; a match counts at most as often as the n-gram occurs
     * in the reference that has it most often */
    int64_t matches;
} attn__ngrams;

/* Adds the n-grams of one sentence to the counts. orders[k - 1] gets the n-grams of k words, for k from 1 to n. May
 * return ATTN_ERROR_MEMORY. */
attn_status attn__ngrams_add(attn_context *context, const attn__tokens *prediction, const attn__tokens *references,
                             int64_t nreferences, attn__ngrams *orders, int n);

/* Counts the n-grams of n texts, for each order from 1 to `orders`. counts[order - 1][i] is the number of n-grams in
 * text i. shared[order - 1][i][j] is the number of n-grams that texts i and j have in common: the sum over n-grams of
 * min(count in i, count in j). May return ATTN_ERROR_MEMORY. */
attn_status attn__ngrams_shared(attn_context *context, const attn__tokens *texts, int64_t n, int orders,
                                int64_t *counts, int64_t *shared);

/* Checks that each prediction has at least one reference. counts[i] is the number of references of prediction i. If
 * `counts` is NULL, each has one. If a prediction has none, records an error and returns ATTN_ERROR_ARGUMENT. */
attn_status attn__reference_counts_fit(attn_context *context, const int64_t *counts, int64_t n);
static inline int64_t attn__reference_count(const int64_t *counts, int64_t i)
{
    return counts ? counts[i] : 1;
}

#endif
