/* SPDX-License-Identifier: MIT
 *
 * Implements vocabularies whose tokens are the pieces of a SentencePiece model.
 */
#include "data/vocab.h"
#include "base/downloaded.h"

#include <inttypes.h>
#include <string.h>

static attn_status collect(attn__word *words, const attn__subword *subword, attn_context *context, const char *name)
{
    for (int64_t i = 0; i < attn__subword_size(subword); i++) {
        size_t length;
        char kind;
        const char *piece = attn__subword_piece(subword, i, &length, &kind);
        if (length == 0 || length > UINT16_MAX)
            return attn__fail(context, ATTN_ERROR_FORMAT,
                              "%s: piece %" PRId64 " has %zu bytes; it must have 1 to %d bytes", name, i, length,
                              UINT16_MAX);
        if (memchr(piece, 0, length))
            return attn__fail(context, ATTN_ERROR_FORMAT, "%s: piece %" PRId64 " has a zero byte", name, i);
        words[i] = (attn__word){piece, (uint32_t)length, 0};
    }
    return ATTN_OK;
}

static attn_status check_specials(const attn_vocab *vocab, const char *name)
{
    for (int i = 0; i < ATTN__SPECIALS; i++)
        if (i != ATTN_SPECIAL_BOS && vocab->special[i] < 0)
            return attn__fail(vocab->context, ATTN_ERROR_FORMAT, "%s: the vocabulary has no piece %s", name,
                              attn__special_names[i]);
    return ATTN_OK;
}

attn_status attn__vocab_of_subwords(attn_vocab **vocab, attn_context *context, attn__subword *subword, const char *name)
{
    size_t n = (size_t)attn__subword_size(subword);
    attn__word *words = attn__alloc(context, attn__size_mul(n + 1, sizeof *words));
    attn_vocab *made = NULL;
    attn_status status = words ? collect(words, subword, context, name) : ATTN_ERROR_MEMORY;
    *vocab = NULL;
    if (status == ATTN_OK)
        status = attn__vocab_create(&made, context, words, (int64_t)n);
    attn__free(context, words);
    if (status == ATTN_OK)
        status = check_specials(made, name);
    if (status == ATTN_OK) {
        made->subword = subword;
        *vocab = made;
        return ATTN_OK;
    }
    attn_vocab_destroy(made);
    attn__subword_destroy(subword);
    return status;
}

attn_status attn_vocab_parse_subwords(attn_vocab **vocab, attn_context *context, const char *bytes, size_t size,
                                      const char *name)
{
    ATTN__CALL(context);
    attn__subword *subword;
    *vocab = NULL;
    attn_status status = attn__check_downloaded(context, name, bytes, size);
    if (status == ATTN_OK)
        status = attn__subword_parse(&subword, context, bytes, size, name);
    return status == ATTN_OK ? attn__vocab_of_subwords(vocab, context, subword, name) : status;
}

bool attn_subwords_available(void)
{
#ifdef ATTN_HAVE_SENTENCEPIECE
    return true;
#else
    return false;
#endif
}

bool attn_vocab_has_subwords(const attn_vocab *vocab)
{
    return vocab->subword != NULL;
}

/* Replaces the marks of spaces by spaces, and removes spaces at the ends. The library leaves these marks in pieces that
 * belong to the other side's model. */
static void write_spaces(char *text)
{
    static const char mark[] = "\xe2\x96\x81";
    char *out = text;
    for (const char *at = text; *at;) {
        bool is_mark = strncmp(at, mark, 3) == 0;
        bool space = is_mark || *at == ' ';
        if (!space || out > text)
            *out++ = space ? ' ' : *at;
        at += is_mark ? 3 : 1;
    }
    while (out > text && out[-1] == ' ')
        out--;
    *out = '\0';
}

/* Applies the replacements of transformers' clean_up_tokenization in the same order. */
static void tidy(char *text)
{
    static const char *const marks[][2] = {{" .", "."},     {" ?", "?"},     {" !", "!"},   {" ,", ","},
                                           {" ' ", "'"},    {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"},
                                           {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        size_t from = strlen(marks[i][0]), to = strlen(marks[i][1]);
        char *out = text;
        for (const char *at = text; *at;) {
            bool found = strncmp(at, marks[i][0], from) == 0;
            memmove(out, found ? marks[i][1] : at, found ? to : 1);
            out += found ? to : 1;
            at += found ? from : 1;
        }
        *out = '\0';
    }
}

/* Replaces control characters by spaces. A piece for a single byte may be a line end or a tab, which would break a
 * message into several lines. */
static void clear_controls(char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            text[i] = ' ';
}

/* Returns whether a token is left out of the joined text. Special added tokens are left out. <unk> is left out too,
 * because the library would write its own mark for it. */
static bool is_silent(const attn_vocab *vocab, int32_t id)
{
    bool silent = id == vocab->special[ATTN_SPECIAL_UNK];
    for (int64_t i = 0; i < vocab->nadded && !silent; i++)
        silent = vocab->added[i].special && vocab->added[i].id == id;
    return silent;
}

attn_status attn__vocab_join(const attn_vocab *vocab, const char *tokens, char **text)
{
    attn_context *context = vocab->context;
    /* one more than the maximum number of words, because a failed search for a word also writes to its slot */
    int64_t most = (int64_t)strlen(tokens) / 2 + 2, n = 0;
    const char **pieces = attn__alloc(context, attn__size_mul((size_t)most, sizeof *pieces));
    size_t *lengths = attn__alloc(context, attn__size_mul((size_t)most, sizeof *lengths));
    attn_status status = pieces && lengths ? ATTN_OK : ATTN_ERROR_MEMORY;
    size_t size = 0;
    *text = NULL;
    while (status == ATTN_OK && attn_text_word(&tokens, &pieces[n], &lengths[n]))
        n += !is_silent(vocab, attn__words_find(&vocab->words, pieces[n], lengths[n]));
    if (status == ATTN_OK)
        status = attn__subword_decode(vocab->subword, pieces, lengths, n, text, &size);
    if (status == ATTN_OK)
        clear_controls(*text, size);
    if (status == ATTN_OK && vocab->marian)
        write_spaces(*text);
    if (status == ATTN_OK && vocab->tidy)
        tidy(*text);
    attn__free(context, pieces);
    attn__free(context, lengths);
    return status;
}
