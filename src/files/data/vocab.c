/* SPDX-License-Identifier: MIT
 *
 * Implements vocabularies, which convert between words and ids, and are stored in text files.
 */
#include "data/vocab.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <string.h>

const char *const attn__special_names[ATTN__SPECIALS] = {[ATTN_SPECIAL_PAD] = "<pad>",
                                                         [ATTN_SPECIAL_BOS] = "<bos>",
                                                         [ATTN_SPECIAL_EOS] = "<eos>",
                                                         [ATTN_SPECIAL_UNK] = "<unk>"};

/* ---------------------------------------------------------------------------------------------- making */

static attn_status fill(attn_vocab *v, const attn__word *words, int64_t n)
{
    size_t bytes = 0;
    for (int64_t i = 0; i < n; i++)
        bytes = attn__size_add(bytes, (size_t)words[i].length + 1);
    char *at = v->text = attn__alloc(v->context, bytes);
    attn_status status = at ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < n && status == ATTN_OK; i++) {
        memcpy(at, words[i].text, words[i].length);
        at[words[i].length] = '\0';
        status = attn__words_count(&v->words, at, words[i].length, words[i].count);
        at += words[i].length + 1;
    }
    return status;
}

attn_status attn__vocab_create(attn_vocab **vocab, attn_context *context, const attn__word *words, int64_t n)
{
    *vocab = NULL;
    attn_vocab *v = attn__alloc_zero(context, sizeof *v);
    if (!v)
        return ATTN_ERROR_MEMORY;
    v->context = context;
    attn_status status = attn__words_create(&v->words, context);
    if (status == ATTN_OK)
        status = fill(v, words, n);
    if (status != ATTN_OK) {
        attn_vocab_destroy(v);
        return status;
    }
    for (int i = 0; i < ATTN__SPECIALS; i++)
        v->special[i] = attn__words_find(&v->words, attn__special_names[i], strlen(attn__special_names[i]));
    *vocab = v;
    return ATTN_OK;
}

void attn_vocab_destroy(attn_vocab *vocab)
{
    if (!vocab)
        return;
    attn__words_destroy(&vocab->words);
    attn__free(vocab->context, vocab->text);
    attn__free(vocab->context, vocab->added);
    attn__subword_destroy(vocab->subword);
    attn__free(vocab->context, vocab);
}

/* -------------------------------------------------------------------------------------------- text file */

attn_status attn_vocab_format(const attn_vocab *vocab, attn_bytes *file)
{
    ATTN__CALL(vocab->context);
    size_t bytes = 0;
    const char *pieces = vocab->subword ? attn__subword_bytes(vocab->subword, &bytes) : NULL;
    for (int64_t i = 0; !pieces && i < vocab->words.n; i++)
        bytes += (size_t)vocab->words.items[i].length + 1;
    char *at = attn__alloc(vocab->context, attn__size_add(bytes, 1));
    *file = (attn_bytes){at, at ? bytes : 0};
    if (!at)
        return ATTN_ERROR_MEMORY;
    if (pieces)
        memcpy(at, pieces, bytes);
    for (int64_t i = 0; !pieces && i < vocab->words.n; i++) {
        const attn__word *word = &vocab->words.items[i];
        memcpy(at, word->text, word->length);
        at += word->length;
        *at++ = '\n';
    }
    file->data[bytes] = '\0';
    return ATTN_OK;
}

typedef struct reader {
    attn_context *context;
    const char *name;
    attn__words words;
} reader;

static attn_status fail_line(const reader *r, const char *what)
{
    return attn__fail(r->context, ATTN_ERROR_FORMAT, "%s:%" PRId64 ": %s", r->name, r->words.n + 1, what);
}

/* A token must not contain a separator of lines or words and must not occur twice, because it could not be read back
 * unchanged. */
static attn_status read_token(reader *r, const char *line, size_t length)
{
    if (length == 0)
        return fail_line(r, "the line is empty; expected a token");
    if (length > 4096)
        return fail_line(r, "the token has more than 4096 bytes");
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)line[i] <= ' ')
            return fail_line(r, "the token has a space or a control character");
    if (attn__utf8_first_invalid(line, length) != SIZE_MAX)
        return fail_line(r, "the token is not UTF-8");
    if (attn__words_find(&r->words, line, length) >= 0)
        return attn__fail(r->context, ATTN_ERROR_FORMAT, "%s:%" PRId64 ": the token \"%.*s\" is already on line %d",
                          r->name, r->words.n + 1, (int)length, line, attn__words_find(&r->words, line, length) + 1);
    return attn__words_count(&r->words, line, length, 0);
}

static attn_status read_tokens(reader *r, const char *text, size_t size)
{
    attn_status status = ATTN_OK;
    if (size == 0)
        return attn__fail(r->context, ATTN_ERROR_FORMAT, "%s: the vocabulary is empty", r->name);
    for (size_t at = 0; at < size && status == ATTN_OK;) {
        const char *line = text + at, *end = memchr(line, '\n', size - at);
        if (!end)
            return fail_line(r, "the last line has no newline: the file is cut off");
        status = read_token(r, line, (size_t)(end - line));
        at = (size_t)(end - text) + 1;
    }
    for (int i = 0; i < ATTN__SPECIALS && status == ATTN_OK; i++) {
        const char *name = attn__special_names[i];
        if (i != ATTN_SPECIAL_BOS && attn__words_find(&r->words, name, strlen(name)) < 0)
            status = attn__fail(r->context, ATTN_ERROR_FORMAT, "%s: the vocabulary has no %s", r->name, name);
    }
    return status;
}

attn_status attn_vocab_parse(attn_vocab **vocab, attn_context *context, const char *text, size_t size, const char *name)
{
    ATTN__CALL(context);
    *vocab = NULL;
    reader r = {context, name, {0}};
    attn_status status = attn__words_create(&r.words, context);
    if (status == ATTN_OK)
        status = read_tokens(&r, text, size);
    if (status == ATTN_OK)
        status = attn__vocab_create(vocab, context, r.words.items, r.words.n);
    attn__words_destroy(&r.words);
    return status;
}

/* --------------------------------------------------------------------------------------------- looking up */

int64_t attn_vocab_size(const attn_vocab *vocab)
{
    return vocab->words.n;
}

const char *attn_vocab_token(const attn_vocab *vocab, int64_t id)
{
    return id >= 0 && id < vocab->words.n ? vocab->words.items[id].text : NULL;
}

int32_t attn_vocab_find(const attn_vocab *vocab, const char *word, size_t length)
{
    int32_t id = attn__words_find(&vocab->words, word, length);
    for (int i = 0; i < ATTN__SPECIALS; i++)
        if (id == vocab->special[i])
            return -1;
    return id;
}

bool attn__vocab_is_text(const attn_vocab *vocab, int64_t id)
{
    const attn__word *word = &vocab->words.items[id];
    bool other = vocab->subword && word->length == 6 && strncmp(word->text, "<0x", 3) == 0 && word->text[5] == '>';
    for (int i = 0; i < ATTN__SPECIALS && !other; i++)
        other = id == vocab->special[i];
    return !other;
}

int32_t attn_vocab_special(const attn_vocab *vocab, attn_special special)
{
    return (unsigned)special < ATTN__SPECIALS ? vocab->special[special] : -1;
}
