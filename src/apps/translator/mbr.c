/* SPDX-License-Identifier: MIT
 *
 * Chooses a translation by minimum Bayes risk (Kumar and Byrne 2004; Eikema and Aziz 2020). It chooses the translation
 * that, on average, is most similar to all translations:
 *
 *     argmax_i  sum_j w_j chrF(i, j)          w_j = sqrt(p_j)
 *
 * Here i and j are translations of one sentence, and p_j is the probability of translation j. The weight w_j is the
 * square root of the probability, because a beam holds only the likeliest translations. With p_j itself the first
 * translation would outweigh all others. */
#include "apps/translator/mbr.h"

#include "base/context.h"
#include "train/chrf.h"

#include <math.h>

static void set_scores(attn_hypothesis *hypotheses, int64_t n, const double *chrf)
{
    double most = -INFINITY, weights = 0;
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, hypotheses[i].log_prob);
        hypotheses[i].score = 0;
    }
    for (int64_t j = 0; j < n; j++) {
        double weight = exp((hypotheses[j].log_prob - most) / 2);
        weights += weight;
        for (int64_t i = 0; i < n; i++)
            hypotheses[i].score += weight * chrf[i * n + j];
    }
    for (int64_t i = 0; i < n; i++)
        hypotheses[i].score /= weights;
}

/* Sorts hypotheses by falling score with an insertion sort. Hypotheses with equal scores stay in their order. */
static void sort(attn_hypothesis *hypotheses, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        attn_hypothesis one = hypotheses[i];
        int64_t at = i;
        for (; at > 0 && hypotheses[at - 1].score < one.score; at--)
            hypotheses[at] = hypotheses[at - 1];
        hypotheses[at] = one;
    }
}

attn_status attn__translator_rank(const attn_translator *t, attn_hypothesis *hypotheses, int64_t n, int64_t keep)
{
    attn_context *context = t->context;
    int64_t found = 0;
    while (found < n && hypotheses[found].ids)
        found++;
    attn_translation *made = attn__alloc_zero(context, attn__size_mul((size_t)found, sizeof *made));
    const char **text = attn__alloc(context, attn__size_mul((size_t)found, sizeof *text));
    double *chrf = attn__alloc(context, attn__size_mul((size_t)(found * found), sizeof *chrf));
    attn_status status = made && text && chrf ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < found && status == ATTN_OK; i++) {
        status = attn__translation_make(t, &hypotheses[i], &made[i]);
        text[i] = made[i].text;
    }
    if (status == ATTN_OK)
        status = attn__chrf_pairs(context, text, found, chrf);
    if (status == ATTN_OK) {
        set_scores(hypotheses, found, chrf);
        sort(hypotheses, found);
        attn_hypotheses_free(context, hypotheses + keep, n - keep);
    }
    if (made)
        attn_translations_free(context, made, found);
    attn__free(context, chrf);
    attn__free(context, text);
    attn__free(context, made);
    return status;
}
