/* SPDX-License-Identifier: MIT
 *
 * bleu.h - BLEU as Dive into Deep Learning defines it. The BLEU of sacreBLEU is in attn/train.h. */
#ifndef ATTN_TRAIN_BLEU_H
#define ATTN_TRAIN_BLEU_H

#include "attn/train.h"

/* Computes BLEU as Dive into Deep Learning defines it, for two lines of words separated by single spaces. The score is
 * exp(min(0, 1 - |label|/|prediction|)) * prod_{n=1..min(k,|prediction|)} p_n^(1/2^n). |x| is the number of words of x.
 * p_n is the share of the prediction's n-grams that match the label. A match counts at most as often as it occurs in
 * the label. */
double attn_bleu_d2l(const char *prediction, const char *label, int k);

#endif
