/* SPDX-License-Identifier: MIT
 *
 * score.h - the score kinds, on rows that attn__pair holds.
 */
#ifndef ATTN_ATTEND_SCORE_H
#define ATTN_ATTEND_SCORE_H

#include "attend/pair.h"

/* score(q, k), unscaled and without tables. */
double attn__score(const attn__pair *pair);
/* Adds g times the derivatives by q, k, w and w2 to dqs, dks, dws and dw2s. */
void attn__score_gradient(attn__pair *pair, double g);

#endif
