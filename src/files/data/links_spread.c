/* SPDX-License-Identifier: MIT
 *
 * Converts links between words to links between tokens. If two words are linked, each token of one word is linked to
 * each token of the other.
 */
#include "data/corpus.h"
#include "data/pairs.h"
#include "data/token_words.h"
#include "data/vocab.h"

#include <string.h>

typedef struct spreading {
    attn_corpus *corpus;
    attn__token_words side[2];
    unsigned char *marks; /* marks[i]: source token i is linked to the current target token */
    int64_t n;
} spreading;

/* Returns the number of tokens of sentence i that belong to words. These are all tokens except <eos> and tokens that
 * truncation removed. */
static int64_t tokens_of(const spreading *s, attn_side side, int64_t i, int32_t eos)
{
    const attn__encoded *e = &s->corpus->side[side];
    int64_t n = attn__corpus_length(s->corpus, side, i);
    n -= n > 0 && e->ids[e->begin[i] + n - 1] == eos;
    return n < s->side[side].n ? n : s->side[side].n;
}

static attn_status add(spreading *s, int64_t source, int64_t target)
{
    attn__link *larger = attn__grow(s->corpus->context, s->corpus->link, s->n, sizeof *larger);
    if (!larger)
        return ATTN_ERROR_MEMORY;
    s->corpus->link = larger;
    s->corpus->link[s->n++] = (attn__link){(int32_t)source, (int32_t)target};
    return ATTN_OK;
}

/* Links target token j to source tokens. These are the tokens of all words that are linked to the word of j. n is
 * the number of source tokens of the sentence. */
static attn_status spread_token(spreading *s, const attn__links *links, int64_t j, int64_t n)
{
    const int64_t *words = s->side[ATTN_SIDE_SOURCE].words, word = s->side[ATTN_SIDE_TARGET].words[j];
    attn_status status = ATTN_OK;
    memset(s->marks, 0, (size_t)n);
    for (int64_t l = 0; l < links->n; l++)
        for (int64_t k = 0; k < n && links->items[l].target == word; k++)
            s->marks[k] |= words[k] == links->items[l].source;
    for (int64_t k = 0; k < n && status == ATTN_OK; k++)
        status = s->marks[k] ? add(s, k, j) : ATTN_OK;
    return status;
}

static attn_status spread(spreading *s, const attn_pairs *pairs, int64_t i, const attn_vocab *const *vocabs)
{
    int64_t n[2] = {0, 0};
    for (int side = 0; side < 2; side++) {
        attn_status status =
            attn__token_words_fill(&s->side[side], vocabs[side], attn__pairs_side(pairs, i, (attn_side)side));
        if (status != ATTN_OK)
            return status;
        n[side] = tokens_of(s, (attn_side)side, i, attn_vocab_special(vocabs[side], ATTN_SPECIAL_EOS));
    }
    attn_status status = ATTN_OK;
    for (int64_t j = 0; j < n[ATTN_SIDE_TARGET] && status == ATTN_OK; j++)
        status = spread_token(s, &pairs->links[i], j, n[ATTN_SIDE_SOURCE]);
    return status;
}

static bool has_links(const attn_pairs *pairs)
{
    for (int64_t i = 0; i < pairs->n; i++)
        if (pairs->links[i].n > 0)
            return true;
    return false;
}

attn_status attn__corpus_link(attn_corpus *c, const attn_pairs *pairs, const attn_vocab *source,
                              const attn_vocab *target)
{
    const attn_vocab *const vocabs[2] = {source, target};
    spreading s = {.corpus = c, .side = {{.context = c->context}, {.context = c->context}}};
    if (!has_links(pairs))
        return ATTN_OK;
    c->link_begin = attn__alloc_zero(c->context, attn__size_mul((size_t)c->n + 1, sizeof *c->link_begin));
    s.marks = attn__alloc(c->context, (size_t)c->side[ATTN_SIDE_SOURCE].longest + 1);
    attn_status status = c->link_begin && s.marks ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < c->n && status == ATTN_OK; i++) {
        status = pairs->links[i].n > 0 ? spread(&s, pairs, i, vocabs) : ATTN_OK;
        c->link_begin[i + 1] = s.n;
    }
    attn__free(c->context, s.marks);
    attn__token_words_free(&s.side[0]);
    attn__token_words_free(&s.side[1]);
    return status;
}

bool attn__corpus_guide(const attn_corpus *c, const attn_batch *batch, float *wanted)
{
    bool any = false;
    for (int64_t row = 0; c->link_begin && row < batch->size; row++) {
        const attn__link *link = c->link + c->link_begin[batch->indices[row]],
                         *end = c->link + c->link_begin[batch->indices[row] + 1];
        while (link < end) {
            const attn__link *first = link;
            while (link < end && link->target == first->target)
                link++;
            float *map = wanted + (row * batch->target_steps + first->target) * batch->source_steps;
            for (const attn__link *l = first; l < link; l++)
                map[l->source] = 1 / (float)(link - first);
            any = true;
        }
    }
    return any;
}
