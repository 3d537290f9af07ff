/* SPDX-License-Identifier: MIT */
#include "data/corpus.h"

#include "data/pairs.h"

/* Computes the length of each encoded sentence, before any ids are written. The memory for the ids can then be
 * allocated in the exact size. */
static attn_status measure(attn__encoded *e, const attn_pairs *pairs, attn_side side, const attn_vocab *vocab,
                           const attn_encode_options *options)
{
    enum { SCRATCH = 1024 };
    int32_t scratch[SCRATCH];
    e->begin[0] = 0;
    for (int64_t i = 0; i < pairs->n; i++) {
        int64_t n, unknown;
        attn_status status =
            attn_vocab_encode(vocab, attn__pairs_side(pairs, i, side), options, scratch, SCRATCH, &n, &unknown);
        if (status != ATTN_OK)
            return status;
        e->begin[i + 1] = e->begin[i] + n;
        e->unknown += unknown;
        e->longest = n > e->longest ? n : e->longest;
    }
    return ATTN_OK;
}

static attn_status encode_side(attn_corpus *c, const attn_pairs *pairs, attn_side side, const attn_vocab *vocab,
                               const attn_encode_options *options)
{
    attn__encoded *e = &c->side[side];
    e->pad = attn_vocab_special(vocab, ATTN_SPECIAL_PAD);
    e->begin = attn__alloc(c->context, attn__size_mul((size_t)c->n + 1, sizeof *e->begin));
    if (!e->begin)
        return ATTN_ERROR_MEMORY;
    attn_status status = measure(e, pairs, side, vocab, options);
    if (status != ATTN_OK)
        return status;
    e->ids = attn__alloc(c->context, attn__size_mul((size_t)e->begin[c->n] + 1024, sizeof *e->ids));
    if (!e->ids)
        return ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < c->n && status == ATTN_OK; i++)
        status =
            attn_vocab_encode(vocab, attn__pairs_side(pairs, i, side), options, e->ids + e->begin[i], 1024, NULL, NULL);
    return status;
}

attn_status attn_corpus_create(attn_corpus **corpus, const attn_pairs *pairs, const attn_vocab *source,
                               const attn_vocab *target, const attn_encode_options *options)
{
    ATTN__CALL(pairs->context);
    *corpus = NULL;
    int32_t bos = attn_vocab_special(target, ATTN_SPECIAL_BOS);
    if (bos < 0)
        return attn__fail(pairs->context, ATTN_ERROR_ARGUMENT, "the target vocabulary has no <bos>");
    attn_corpus *c = attn__alloc_zero(pairs->context, sizeof *c);
    if (!c)
        return ATTN_ERROR_MEMORY;
    c->context = pairs->context;
    c->n = pairs->n;
    c->bos = bos;
    c->end_in_input = options && options->compat == ATTN_COMPAT_D2L;
    attn_status status = encode_side(c, pairs, ATTN_SIDE_SOURCE, source, options);
    if (status == ATTN_OK)
        status = encode_side(c, pairs, ATTN_SIDE_TARGET, target, options);
    if (status == ATTN_OK)
        status = attn__corpus_link(c, pairs, source, target);
    if (status == ATTN_OK)
        *corpus = c;
    else
        attn_corpus_destroy(c);
    return status;
}

void attn_corpus_destroy(attn_corpus *corpus)
{
    if (!corpus)
        return;
    for (int side = 0; side < 2; side++) {
        attn__free(corpus->context, corpus->side[side].ids);
        attn__free(corpus->context, corpus->side[side].begin);
    }
    attn__free(corpus->context, corpus->link);
    attn__free(corpus->context, corpus->link_begin);
    attn__free(corpus->context, corpus);
}

int64_t attn_corpus_size(const attn_corpus *corpus)
{
    return corpus->n;
}

int64_t attn_corpus_tokens(const attn_corpus *corpus, attn_side side)
{
    return (unsigned)side <= ATTN_SIDE_TARGET ? corpus->side[side].begin[corpus->n] : 0;
}

int64_t attn_corpus_unknown(const attn_corpus *corpus, attn_side side)
{
    return (unsigned)side <= ATTN_SIDE_TARGET ? corpus->side[side].unknown : 0;
}

int64_t attn_corpus_longest(const attn_corpus *corpus, attn_side side)
{
    return (unsigned)side <= ATTN_SIDE_TARGET ? corpus->side[side].longest : 0;
}
