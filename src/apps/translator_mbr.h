/* SPDX-License-Identifier: MIT
 * translator_mbr.h - the choice among hypotheses by minimum Bayes risk. */
#ifndef ATTN_APPS_TRANSLATOR_MBR_H
#define ATTN_APPS_TRANSLATOR_MBR_H

#include "apps/translator.h"

/* Sorts the n hypotheses of a sentence by their expected chrF, which becomes their score, highest first, and frees all but the
 * first `wanted`.  Hypotheses without ids come last.  ATTN_ERROR_MEMORY; errors of making text. */
attn_status attn__translator_rank(const attn_translator *translator, attn_hypothesis *hypotheses, int64_t n,
                                  int64_t wanted);

#endif
