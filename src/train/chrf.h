/* SPDX-License-Identifier: MIT
 * chrf.h - chrF (Popovic 2015, "chrF: character n-gram F-score") of all pairs of some texts. */
#ifndef ATTN_TRAIN_CHRF_H
#define ATTN_TRAIN_CHRF_H

#include "attn/attn.h"

/* Computes chrf[i * n + j], 0 to 100, with text i as a prediction and text j as its only reference.
 * ATTN_ERROR_MEMORY. */
attn_status attn__chrf_pairs(attn_context *context, const char *const *texts, int64_t n, double *chrf);

#endif
