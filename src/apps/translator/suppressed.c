/* SPDX-License-Identifier: MIT
 *
 * Collects the tokens and the sequences of tokens that no translation of a call contains.
 */
#include "apps/translator/lines.h"

#include "base/context.h"
#include "data/vocab.h"

#include <string.h>

static attn_status add_token(const attn_translator *t, int32_t **list, int64_t *n, int32_t token)
{
    int32_t *more = attn__grow(t->context, *list, *n, sizeof *more);
    if (!more)
        return ATTN_ERROR_MEMORY;
    *list = more;
    more[(*n)++] = token;
    return ATTN_OK;
}

static attn_status add_tokens(const attn_translator *t, attn__resolved *to, const int32_t *tokens, int64_t n)
{
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < n && status == ATTN_OK; i++)
        status = add_token(t, &to->suppressed, &to->nsuppressed, tokens[i]);
    return status;
}

/* A sequence that is being divided. Its tokens are added to to->ids. */
typedef struct dividing {
    const attn_translator *t;
    attn__resolved *to;
    bool impossible; /* true: the sequence has a word that no translation contains */
    attn_status status;
} dividing;

static void take_word(void *user, const char *word, size_t length)
{
    dividing *d = user;
    const attn_vocab *vocab = d->t->target;
    int32_t id = attn__vocab_id(vocab, word, length);
    if (id < 0 || id == attn_vocab_special(vocab, ATTN_SPECIAL_UNK) ||
        id == attn_vocab_special(vocab, ATTN_SPECIAL_EOS))
        d->impossible = true;
    if (d->status == ATTN_OK)
        d->status = add_token(d->t, &d->to->ids, &d->to->nids, id);
}

static attn_status take_text(dividing *d, const char *given)
{
    char *text = NULL;
    attn_status status = attn__normalized(d->t, given, &text);
    if (status == ATTN_OK)
        status = attn__vocab_split(d->t->target, text, take_word, d);
    attn__free(d->t->context, text);
    return status == ATTN_OK ? d->status : status;
}

/* `number` is the number of the sequence, counted from 1. */
static attn_status take_tokens(dividing *d, const char *given, int64_t number)
{
    const char *token;
    size_t length;
    while (d->status == ATTN_OK && attn_text_word(&given, &token, &length)) {
        int32_t id = attn__words_find(&d->t->target->words, token, length);
        d->status = id >= 0 ? add_token(d->t, &d->to->ids, &d->to->nids, id)
                            : attn__fail(d->t->context, ATTN_ERROR_ARGUMENT,
                                         "suppressed sequence %lld: \"%.*s\" is not a token of the target vocabulary",
                                         (long long)number, (int)(length < 64 ? length : 64), token);
    }
    return d->status;
}

/* Adds the sequence that begins at to->ids[begin]. A single token is added to the suppressed tokens, which the search
 * checks faster. */
static attn_status add_sequence(const attn_translator *t, attn__resolved *to, int64_t begin)
{
    int64_t n = to->nids - begin;
    if (n == 1) {
        to->nids = begin;
        return add_tokens(t, to, to->ids + begin, 1);
    }
    attn_token_sequence *more = attn__grow(t->context, to->sequences, to->nsequences, sizeof *more);
    if (!more)
        return ATTN_ERROR_MEMORY;
    to->sequences = more;
    more[to->nsequences++] = (attn_token_sequence){.n = n};
    return ATTN_OK;
}

/* Adds the model's own sequences. */
static attn_status add_own(const attn_translator *t, attn__resolved *to)
{
    attn_status status = add_tokens(t, to, t->search.banned, t->search.nbanned);
    for (int64_t i = 0; i < t->search.nsequences && status == ATTN_OK; i++) {
        const attn_token_sequence *own = &t->search.sequences[i];
        const int64_t begin = to->nids;
        for (int64_t j = 0; j < own->n && status == ATTN_OK; j++)
            status = add_token(t, &to->ids, &to->nids, own->ids[j]);
        if (status == ATTN_OK)
            status = add_sequence(t, to, begin);
    }
    return status;
}

static attn_status divide(const attn_translator *t, const attn_translator_options *o, int64_t i, attn__resolved *to)
{
    dividing d = {.t = t, .to = to};
    const char *given = o->suppressed_sequences[i];
    const int64_t begin = to->nids;
    attn_status status = o->sequences_are_tokens ? take_tokens(&d, given, i + 1) : take_text(&d, given);
    if (status != ATTN_OK)
        return status;
    if (to->nids == begin)
        return attn__fail(t->context, ATTN_ERROR_ARGUMENT,
                          "suppressed sequence %lld has no tokens; expected one or more", (long long)i + 1);
    if (!d.impossible)
        return add_sequence(t, to, begin);
    to->nids = begin;
    return ATTN_OK;
}

attn_status attn__suppress(const attn_translator *t, attn__resolved *to)
{
    attn_translator_options *o = &to->options;
    const int32_t unknown = attn_vocab_special(t->target, ATTN_SPECIAL_UNK);
    attn_status status = add_own(t, to);
    if (status == ATTN_OK && o->suppressed)
        status = add_tokens(t, to, o->suppressed, o->nsuppressed);
    if (status == ATTN_OK && o->suppress_unk && unknown >= 0)
        status = add_tokens(t, to, &unknown, 1);
    for (int64_t i = 0; status == ATTN_OK && o->suppressed_sequences && o->suppressed_sequences[i]; i++)
        status = divide(t, o, i, to);
    /* only now, because `ids` moves while it grows */
    for (int64_t i = 0, at = 0; status == ATTN_OK && i < to->nsequences; at += to->sequences[i++].n)
        to->sequences[i].ids = to->ids + at;
    o->suppressed = to->suppressed;
    o->nsuppressed = to->nsuppressed;
    return status;
}

void attn__resolved_free(const attn_translator *t, attn__resolved *resolved)
{
    attn__free(t->context, resolved->suppressed);
    attn__free(t->context, resolved->ids);
    attn__free(t->context, resolved->sequences);
}
