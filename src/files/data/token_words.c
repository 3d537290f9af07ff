/* SPDX-License-Identifier: MIT */
#include "data/token_words.h"

#include "data/vocab.h"

#include <string.h>

static const char mark[] = "\xe2\x96\x81"; /* the character U+2581, which marks a space in SentencePiece's pieces */

static bool take_mark(const char *token, size_t length, size_t *at)
{
    bool is = length - *at >= 3 && memcmp(token + *at, mark, 3) == 0;
    *at += is ? 3 : 0;
    return is;
}

int64_t attn__word_number(attn__word_counter *c, const char *token, size_t length)
{
    int64_t first = -1;
    if (!c->subwords)
        return c->n++;
    for (size_t at = 0; at < length;) {
        if (take_mark(token, length, &at)) {
            c->space = true;
            continue;
        }
        c->n += c->space || c->n == 0;
        c->space = false;
        first = first < 0 ? c->n - 1 : first;
        at++;
    }
    return first < 0 ? c->n : first; /* a piece that is only a space belongs to the word that follows */
}

/* ------------------------------------------------------------------------------------ tokens of a text */

typedef struct numbering {
    attn__word_counter counter;
    attn__token_words *tokens; /* gets the word of each token; NULL: the words are only counted */
    attn_status status;
} numbering;

static attn_status make_room(attn_context *context, int64_t **numbers, int64_t *room, int64_t n)
{
    if (n <= *room)
        return ATTN_OK;
    int64_t more = 2 * n + 64;
    int64_t *larger = attn__realloc(context, *numbers, attn__size_mul((size_t)more, sizeof *larger));
    if (!larger)
        return ATTN_ERROR_MEMORY;
    *numbers = larger;
    *room = more;
    return ATTN_OK;
}

static void number_token(void *user, const char *token, size_t length)
{
    numbering *n = user;
    int64_t word = attn__word_number(&n->counter, token, length);
    if (!n->tokens || n->status != ATTN_OK)
        return;
    n->status = make_room(n->tokens->context, &n->tokens->words, &n->tokens->room, n->tokens->n + 1);
    if (n->status == ATTN_OK)
        n->tokens->words[n->tokens->n++] = word;
}

/* Counts the words of a text, as the vocabulary divides it into words. */
static attn_status count_seen(const attn_vocab *vocab, const char *text, int64_t *n)
{
    numbering all = {.counter = {.subwords = true}};
    attn_status status = attn__vocab_split(vocab, text, number_token, &all);
    *n = all.counter.n;
    return status;
}

/* The vocabulary divides the text into `seen` words. For each of them, finds the space-separated word to which it
 * belongs. To do this, each space-separated word is divided by the vocabulary separately. */
static attn_status join_words(attn__token_words *tokens, const attn_vocab *vocab, char *text, int64_t seen)
{
    int64_t *origin = attn__alloc(tokens->context, attn__size_mul((size_t)seen, sizeof *origin)), at = 0, number = 0;
    attn_status status = origin || seen == 0 ? ATTN_OK : ATTN_ERROR_MEMORY;
    const char *rest = text, *word;
    for (size_t length; status == ATTN_OK && attn_text_word(&rest, &word, &length); number++) {
        char *end = text + (word - text) + length, kept = *end;
        int64_t n = 0;
        *end = '\0';
        status = count_seen(vocab, word, &n);
        *end = kept;
        while (n-- > 0 && at < seen)
            origin[at++] = number;
    }
    for (int64_t i = 0; i < tokens->n && status == ATTN_OK; i++)
        tokens->words[i] = tokens->words[i] < at ? origin[tokens->words[i]] : -1;
    attn__free(tokens->context, origin);
    return status;
}

attn_status attn__token_words_fill(attn__token_words *tokens, const attn_vocab *vocab, const char *text)
{
    numbering n = {.counter = {.subwords = attn_vocab_has_subwords(vocab)}, .tokens = tokens};
    const char *rest = text, *word;
    int64_t words = 0;
    tokens->n = 0;
    attn_status status = attn__vocab_split(vocab, text, number_token, &n);
    status = status == ATTN_OK ? n.status : status;
    for (size_t length; attn_text_word(&rest, &word, &length);)
        words++;
    if (status != ATTN_OK || !n.counter.subwords || words == n.counter.n)
        return status;
    char *copy = attn__strdup(tokens->context, text);
    status = copy ? join_words(tokens, vocab, copy, n.counter.n) : ATTN_ERROR_MEMORY;
    attn__free(tokens->context, copy);
    return status;
}

void attn__token_words_free(attn__token_words *tokens)
{
    attn__free(tokens->context, tokens->words);
    *tokens = (attn__token_words){.context = tokens->context};
}

/* ----------------------------------------------------------------------------------- words of the data */

/* Determines how many normalized words a word becomes. */
static attn_status prepare_word(attn__prepared_words *p, const char *word, size_t length, attn_compat compat,
                                int64_t *n)
{
    size_t size = 2 * length + 1;
    if (size > p->size) {
        char *larger = attn__realloc(p->context, p->out, size);
        if (!larger)
            return ATTN_ERROR_MEMORY;
        p->out = larger;
        p->size = size;
    }
    attn_status status = attn_text_normalize(p->context, word, length, compat, p->out, p->size, NULL);
    const char *rest = p->out, *part;
    for (*n = 0; status == ATTN_OK && attn_text_word(&rest, &part, &length);)
        ++*n;
    return status;
}

attn_status attn__prepared_words_fill(attn__prepared_words *p, const char *text, bool same, attn_compat compat)
{
    const char *word;
    int64_t at = 0;
    attn_status status = make_room(p->context, &p->first, &p->room, 1);
    p->n = 0;
    for (size_t length; status == ATTN_OK && attn_text_word(&text, &word, &length);) {
        int64_t n = 1;
        status = make_room(p->context, &p->first, &p->room, p->n + 2);
        if (status == ATTN_OK && !same)
            status = prepare_word(p, word, length, compat, &n);
        if (status != ATTN_OK)
            break;
        p->first[p->n++] = at;
        at += n;
    }
    if (status == ATTN_OK)
        p->first[p->n] = at;
    return status;
}

int64_t attn__prepared_words_origin(const attn__prepared_words *p, int64_t number)
{
    for (int64_t i = 0; number >= 0 && i < p->n; i++)
        if (number < p->first[i + 1])
            return i;
    return -1;
}

void attn__prepared_words_free(attn__prepared_words *p)
{
    attn__free(p->context, p->first);
    attn__free(p->context, p->out);
    *p = (attn__prepared_words){.context = p->context};
}
