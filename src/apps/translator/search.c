/* SPDX-License-Identifier: MIT
 *
 * Determines the search options of a translator. For options that the caller does not give, the values in the model's
 * own files are used.
 */
#include "apps/translator/lines.h"

#include "base/context.h"

#include <math.h>

attn_translator_search attn_translator_own_search(const attn_translator *t)
{
    return (attn_translator_search){.options = {.beam = t->search.beam > 1 ? t->search.beam : 1,
                                                .length_penalty = t->search.length_penalty,
                                                .no_repeat_ngram = t->search.no_repeat_ngram,
                                                .repetition_penalty = t->search.repetition_penalty,
                                                .min_len = t->search.min_len,
                                                .max_len = t->max_output,
                                                .length_factor = t->search.length_factor,
                                                .shortlist_first = t->search.shortlist_first,
                                                .shortlist_best = t->search.shortlist_best},
                                    .sampled = t->search.sampled,
                                    .prefixed = t->search.prefixed,
                                    .shortlist = t->search.shortlist};
}

/* Refuses numbers that would otherwise count as "not given", and a minimum that the maximum does not allow. */
static attn_status check_given(const attn_translator *t, const attn_translator_options *o)
{
    const struct {
        const char *name;
        double value;
    } given[] = {{"width of the beam", (double)o->beam},
                 {"number of sentences that are translated at once", (double)o->batch},
                 {"number of translations of a line", (double)o->nbest},
                 {"length penalty", o->length_penalty},
                 {"length of n-grams that do not repeat", (double)o->no_repeat_ngram},
                 {"repetition penalty", o->repetition_penalty},
                 {"minimum number of tokens", (double)o->min_len},
                 {"maximum number of tokens", (double)o->max_len},
                 {"maximum number of tokens of a line", (double)o->max_input},
                 {"patience of the beam", o->patience},
                 {"number of tokens for each token of the line", o->length_factor}};
    for (size_t i = 0; i < sizeof given / sizeof *given; i++)
        if (!(given[i].value >= 0 && isfinite(given[i].value)))
            return attn__fail(t->context, ATTN_ERROR_ARGUMENT,
                              "the %s cannot be %g; it must be 0 (the default) or more", given[i].name, given[i].value);
    int64_t most = o->max_len > 0 && o->max_len < t->max_output ? o->max_len : t->max_output;
    if (o->min_len > most)
        return attn__fail(t->context, ATTN_ERROR_ARGUMENT,
                          "the minimum number of tokens is %lld, but a translation can have at most %lld",
                          (long long)o->min_len, (long long)most);
    return ATTN_OK;
}

/* Fills in the defaults of the search options. If the caller gives a maximum length, it is used instead of the
 * model's maximum, which grows with the line. */
attn_status attn__search_resolve(const attn_translator *t, const attn_translator_options *options,
                                 attn__resolved *resolved)
{
    const attn_translator_options own = attn_translator_own_search(t).options;
    *resolved = (attn__resolved){.options = options ? *options : (attn_translator_options){0}};
    attn_translator_options *o = &resolved->options;
    attn_status status = check_given(t, o);
    if (status != ATTN_OK)
        return status;
    o->beam = o->beam > 0 ? o->beam : own.beam;
    o->batch = o->batch > 0 ? o->batch : 32;
    o->nbest = o->nbest > 0 ? o->nbest : 1;
    o->length_penalty = o->length_penalty > 0 ? o->length_penalty : own.length_penalty;
    o->no_repeat_ngram = o->no_repeat_ngram > 0 ? o->no_repeat_ngram : own.no_repeat_ngram;
    o->repetition_penalty = o->repetition_penalty > 0 ? o->repetition_penalty : own.repetition_penalty;
    o->min_len = o->min_len > 0 ? o->min_len : own.min_len;
    o->length_factor = o->length_factor > 0 ? o->length_factor : o->max_len > 0 ? 0 : own.length_factor;
    o->max_len = o->max_len > 0 && o->max_len < own.max_len ? o->max_len : own.max_len;
    o->max_input = o->max_input > 0 && o->max_input < t->max_tokens ? o->max_input : t->max_tokens;
    return attn__suppress(t, resolved);
}

int64_t attn__translation_limit(const attn_translator *t, const attn_translator_options *o, const attn__sentence *s)
{
    double most = ceil(o->length_factor * (double)s->n);
    if (o->length_factor <= 0)
        return o->max_len;
    most = (most > (double)t->search.least_limit ? most : (double)t->search.least_limit) + (double)s->nprefix;
    return most < (double)o->max_len ? (int64_t)most : o->max_len;
}
