/* SPDX-License-Identifier: MIT
 *
 * bleu.h - BLEU as Dive into Deep Learning defines it; sacreBLEU's is in attn/train.h.
 */
#ifndef ATTN_TRAIN_BLEU_H
#define ATTN_TRAIN_BLEU_H

#include "attn/train.h"

/* BLEU as Dive into Deep Learning defines it, of two lines of words separated by single spaces:
 * exp(min(0, 1 - |label|/|pred|)) * prod_{n=1..min(k,|pred|)} p_n^(1/2^n), matches clipped. */
double attn_bleu_d2l(const char *prediction, const char *label, int k);

#endif
