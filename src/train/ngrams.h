/* SPDX-License-Identifier: MIT
 * ngrams.h - the n-grams that two texts share, of words or of characters, for measures of translations. */
#ifndef ATTN_TRAIN_NGRAMS_H
#define ATTN_TRAIN_NGRAMS_H

#include "train/tokenize_13a.h"

/* Of one order, over all sentences so far. */
typedef struct attn__ngrams {
    int64_t predicted, wanted; /* n-grams of the predictions, and of the references */
    int64_t matches;           /* of the predictions, each as often as its reference has it at most */
} attn__ngrams;

/* Adds a sentence's n-grams of the orders 1 to n to orders[0] to orders[n - 1].  ATTN_ERROR_MEMORY. */
attn_status attn__ngrams_add(attn_context *context, const attn__words *prediction, const attn__words *reference,
                             attn__ngrams *orders, int n);

#endif
