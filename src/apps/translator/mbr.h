/* SPDX-License-Identifier: MIT
 *
 * mbr.h - chooses among hypotheses by minimum Bayes risk.
 */
#ifndef ATTN_APPS_TRANSLATOR_MBR_H
#define ATTN_APPS_TRANSLATOR_MBR_H

#include "apps/translator/translator.h"

/* Sets the score of each of the n hypotheses of a sentence to its expected chrF. Sorts the hypotheses by falling score,
 * and frees all except the first `keep`. Hypotheses without ids must be at the end of the array. Returns
 * ATTN_ERROR_MEMORY, or an error of attn__translation_make. */
attn_status attn__translator_rank(const attn_translator *translator, attn_hypothesis *hypotheses, int64_t n,
                                  int64_t keep);

#endif
