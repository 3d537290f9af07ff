/* SPDX-License-Identifier: MIT
 * ngrams.h - counts the n-grams of words or characters that texts share, for translation metrics. */
#ifndef ATTN_TRAIN_NGRAMS_H
#define ATTN_TRAIN_NGRAMS_H

#include "train/tokenize_13a.h"

/* Counts of one order over all sentences so far. */
typedef struct attn__ngrams {
    int64_t predicted, wanted; /* number of n-grams of the predictions, and of all references */
    /* matches of the predictions; each n-gram counts at most as often as in the reference that has it most often */
    int64_t matches;
} attn__ngrams;

/* Adds a sentence's n-grams of the orders 1 to n to orders[0] to orders[n - 1]. ATTN_ERROR_MEMORY. */
attn_status attn__ngrams_add(attn_context *context, const attn__tokens *prediction, const attn__tokens *references,
                             int64_t nreferences, attn__ngrams *orders, int n);

/* Counts the n-grams of the orders 1 to `orders` of n texts. counts[order - 1][i] is the number in text i. shared[order
 * - 1][i][j] is the sum over n-grams of the smaller of the two counts in texts i and j. ATTN_ERROR_MEMORY. */
attn_status attn__ngrams_shared(attn_context *context, const attn__tokens *texts, int64_t n, int orders,
                                int64_t *counts, int64_t *shared);

/* Checks that each prediction has references. `counts` holds their numbers; NULL means one each. Returns
 * ATTN_ERROR_ARGUMENT, with an error recorded, if a prediction has none. */
attn_status attn__reference_counts_fit(attn_context *context, const int64_t *counts, int64_t n);
static inline int64_t attn__reference_count(const int64_t *counts, int64_t i)
{
    return counts ? counts[i] : 1;
}

#endif
