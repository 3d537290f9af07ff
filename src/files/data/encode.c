/* SPDX-License-Identifier: MIT
 * Converts sentences to ids and ids to sentences. */
#include "data/cut.h"
#include "data/vocab.h"

#include <inttypes.h>
#include <string.h>

/* A buffer for ids. If it is full, further ids are counted but not written. */
typedef struct sink {
    int32_t *ids;
    int64_t capacity, n;
} sink;

static void sink_put(sink *s, int32_t id)
{
    if (s->n < s->capacity)
        s->ids[s->n] = id;
    s->n++;
}

int32_t attn__vocab_id(const attn_vocab *vocab, const char *token, size_t length)
{
    return vocab->marian ? attn__words_find(&vocab->words, token, length) : attn_vocab_find(vocab, token, length);
}

attn_status attn__vocab_split(const attn_vocab *vocab, const char *text, attn__subword_take *take, void *user)
{
    const char *word;
    size_t length;
    if (vocab->marian)
        return attn__marian_split(vocab, text, take, user);
    if (vocab->subword)
        return attn__subword_encode(vocab->subword, text, strlen(text), take, user);
    while (attn_text_word(&text, &word, &length))
        take(user, word, length);
    return ATTN_OK;
}

/* A sentence that is being encoded. Only its first `most` tokens are used. */
typedef struct encoding {
    const attn_vocab *vocab;
    sink *sink;
    int64_t most, unknown;
} encoding;

static void take_token(void *user, const char *token, size_t length)
{
    encoding *e = user;
    if (e->sink->n >= e->most)
        return;
    int32_t id = attn__vocab_id(e->vocab, token, length);
    e->unknown += id < 0;
    sink_put(e->sink, id < 0 ? e->vocab->special[ATTN_SPECIAL_UNK] : id);
}

attn_status attn_vocab_encode(const attn_vocab *vocab, const char *text, const attn_encode_options *options,
                              int32_t *ids, int64_t capacity, int64_t *n, int64_t *unknown)
{
    ATTN__CALL(vocab->context);
    bool d2l = options && options->compat == ATTN_COMPAT_D2L;
    int64_t steps = options && options->steps ? options->steps : d2l ? 9 : 128;
    sink s = {ids, capacity, 0};
    if (steps < 1)
        return attn__fail(vocab->context, ATTN_ERROR_ARGUMENT, "encode: steps is %" PRId64 "; it must be at least 1",
                          steps);
    /* One place is reserved for <eos>, so that a truncated sentence still has an end. With D2L compatibility no
     * place is reserved, so truncation can remove <eos>. */
    encoding e = {.vocab = vocab, .sink = &s, .most = d2l ? steps : steps - 1};
    attn_status status = attn__vocab_split(vocab, text, take_token, &e);
    if (status != ATTN_OK)
        return status;
    if (s.n < steps)
        sink_put(&s, vocab->special[ATTN_SPECIAL_EOS]);
    int64_t valid = s.n;
    while (d2l && s.n < steps)
        sink_put(&s, vocab->special[ATTN_SPECIAL_PAD]);
    if (n)
        *n = valid;
    if (unknown)
        *unknown = e.unknown;
    if (s.n > capacity)
        return attn__fail(vocab->context, ATTN_ERROR_ARGUMENT,
                          "encode: the sentence has %" PRId64 " ids, but the buffer has room for %" PRId64, s.n,
                          capacity);
    return ATTN_OK;
}

size_t attn_vocab_decode(const attn_vocab *vocab, const int32_t *ids, int64_t n, char *out, size_t size)
{
    attn__cut c = {out, size, 0};
    for (int64_t i = 0; i < n && ids[i] != vocab->special[ATTN_SPECIAL_EOS]; i++) {
        if (ids[i] >= 0 && (ids[i] == vocab->special[ATTN_SPECIAL_PAD] || ids[i] == vocab->special[ATTN_SPECIAL_BOS]))
            continue;
        const char *token = attn_vocab_token(vocab, ids[i]);
        token = token ? token : attn__special_names[ATTN_SPECIAL_UNK];
        attn__cut_put(&c, " ", c.used > 0);
        attn__cut_put(&c, token, strlen(token));
    }
    return attn__cut_end(&c);
}
