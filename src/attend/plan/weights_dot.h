/* SPDX-License-Identifier: MIT
 *
 * weights_dot.h - the scores that weights are mostly wanted of, without gathers: dot products of f32 channels
 * that lie next to each other.
 */
#ifndef ATTN_ATTEND_WEIGHTS_DOT_H
#define ATTN_ATTEND_WEIGHTS_DOT_H

#include "attend/task/row.h"

/* Whether the task's scores are such dot products (bias, masks, bands and windows may be there; tables not). */
bool attn__dot_applies(const attn__task *task);
/* scale * q.k + bias of a key inside that is not masked. */
double attn__dot_score(const attn__row *row, const attn__spot *spot);

#endif
