/* SPDX-License-Identifier: MIT
 *
 * chrf.h - computes chrF (Popovic 2015, "chrF: character n-gram F-score") of all pairs of several texts.
 */
#ifndef ATTN_TRAIN_CHRF_H
#define ATTN_TRAIN_CHRF_H

#include "attn/attn.h"

/* Computes chrf[i * n + j], from 0 to 100. Text i is the prediction, and text j is its only reference. May return
 * ATTN_ERROR_MEMORY. */
attn_status attn__chrf_pairs(attn_context *context, const char *const *texts, int64_t n, double *chrf);

#endif
