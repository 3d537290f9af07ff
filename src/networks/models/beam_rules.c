/* SPDX-License-Identifier: MIT
 *
 * Forbids tokens or makes them less likely, depending on the hypothesis's earlier tokens, as Hugging Face transformers
 * does. Logits are changed in place. The logit of a forbidden token becomes -inf.
 */
#include "models/beam.h"

#include <math.h>

/* The search is binary, because the tokens of a row are ascending. */
int64_t attn__beam_place(const attn__beam_row *x, int32_t token)
{
    int64_t low = 0, high = x->n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (attn__beam_token(x, middle) < token)
            low = middle + 1;
        else
            high = middle;
    }
    return low < x->n && attn__beam_token(x, low) == token ? low : -1;
}

static void set_logit(const attn__beam_row *x, int64_t i, double value)
{
    if (x->is_double)
        ((double *)(void *)x->data)[i] = value;
    else
        ((float *)(void *)x->data)[i] = (float)value;
}

static void forbid(const attn__beam_row *x, int32_t token)
{
    int64_t i = attn__beam_place(x, token);
    if (i >= 0)
        set_logit(x, i, -(double)INFINITY);
}

void attn__beam_forbid_banned(const attn__beam *beam, const attn__beam_row *x)
{
    for (int64_t i = 0; i < beam->options.nbanned; i++)
        forbid(x, beam->options.banned[i]);
}

static int32_t token_at(const attn__beam *beam, const int32_t *ids, int64_t i)
{
    return i == 0 ? beam->options.bos : ids[i - 1];
}

/* Applies the repetition penalty (Keskar et al. 2019, arXiv:1909.05858). It makes every token that is already in the
 * hypothesis less likely. */
static void penalize(const attn__beam *beam, const int32_t *ids, const attn__beam_row *x, double lse)
{
    const double penalty = beam->options.repetition_penalty;
    for (int64_t i = 0; i <= beam->step; i++) {
        int32_t token = token_at(beam, ids, i);
        int64_t earlier = 0, place = attn__beam_place(x, token);
        while (token_at(beam, ids, earlier) != token)
            earlier++;
        if (earlier == i && place >= 0) {
            double value = attn__beam_logit(x, place) - lse;
            set_logit(x, place, (value < 0 ? value * penalty : value / penalty) + lse);
        }
    }
}

/* Forbids every token that would end a repetition: `size` tokens in a row that already occur in the hypothesis. */
static void forbid_repeated(const attn__beam *beam, const int32_t *ids, const attn__beam_row *x)
{
    const int64_t size = beam->options.no_repeat_ngram, n = beam->step + 1;
    for (int64_t begin = 0; begin + size <= n; begin++) {
        int64_t same = 0;
        while (same < size - 1 && token_at(beam, ids, begin + same) == token_at(beam, ids, n - size + 1 + same))
            same++;
        if (same == size - 1)
            forbid(x, token_at(beam, ids, begin + size - 1));
    }
}

/* Forbids the last token of each banned sequence whose other tokens are the newest tokens of the hypothesis. The newest
 * token is compared first, because it usually differs. */
static void forbid_sequences(const attn__beam *beam, const int32_t *ids, const attn__beam_row *x)
{
    const int64_t n = beam->step + 1;
    for (int64_t i = 0; i < beam->options.nbanned_sequences; i++) {
        const attn_token_sequence *banned = &beam->options.banned_sequences[i];
        int64_t left = banned->n - 1, after = n - left;
        while (left > 0 && after >= 0 && token_at(beam, ids, after + left - 1) == banned->ids[left - 1])
            left--;
        if (left == 0)
            forbid(x, banned->ids[banned->n - 1]);
    }
}

void attn__beam_rules(const attn__beam *beam, int64_t row, const attn__beam_row *x, double lse)
{
    const attn_beam_search_options *o = &beam->options;
    const int32_t *ids = beam->old_ids + row * beam->max_len;
    if (o->repetition_penalty > 0 && o->repetition_penalty != 1)
        penalize(beam, ids, x, lse);
    if (o->no_repeat_ngram > 0)
        forbid_repeated(beam, ids, x);
    forbid_sequences(beam, ids, x);
    if (beam->step + 1 < o->min_len)
        forbid(x, o->eos);
}
