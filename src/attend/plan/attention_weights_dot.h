/* SPDX-License-Identifier: MIT
 *
 * attention_weights_dot.h - the usual scores, without gathers: dot products of adjacent f32 channels.
 */
#ifndef ATTN_ATTEND_ATTENTION_WEIGHTS_DOT_H
#define ATTN_ATTEND_ATTENTION_WEIGHTS_DOT_H

#include "attend/block/row.h"

/* Whether a problem's scores are such dot products; bias, masks, bands and windows are allowed, tables are not. */
bool attn__dot_applies(const attn__canonical *canonical);
/* scale * q.k + bias of a key inside that is not masked. */
double attn__dot_score(const attn__row *row, const attn__spot *spot);

#endif
