/* SPDX-License-Identifier: MIT
 *
 * bleu.h - BLEU as Dive into Deep Learning defines it. attn/train.h has the BLEU of sacreBLEU.
 */
#ifndef ATTN_TRAIN_BLEU_H
#define ATTN_TRAIN_BLEU_H

#include "attn/train.h"

/* Computes BLEU as Dive into Deep Learning defines it, for two lines of words separated by single spaces. The score is
 * exp(min(0, 1 - |label|/|pred|)) * prod_{n=1..min(k,|pred|)} p_n^(1/2^n). |x| is the number of words of x, and p_n is
 * the share of n-grams of the prediction that match, with clipped matches. */
double attn_bleu_d2l(const char *prediction, const char *label, int k);

#endif
