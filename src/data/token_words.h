/* SPDX-License-Identifier: MIT
 *
 * token_words.h - which word of a text each of its tokens belongs to.
 */
#ifndef ATTN_DATA_TOKEN_WORDS_H
#define ATTN_DATA_TOKEN_WORDS_H

#include "data/sentences.h"

/* Numbers words while their tokens pass by.  Begins with zeros but for `subwords`. */
typedef struct attn__word_counter {
    bool subwords; /* tokens are pieces: a word begins behind a space.  Else each token is a word */
    bool space;
    int64_t n; /* words begun */
} attn__word_counter;
/* The number, from 0, of the word that the token belongs to, or begins with. */
int64_t attn__word_number(attn__word_counter *counter, const char *token, size_t length);

/* The words of a text's tokens. */
typedef struct attn__token_words {
    attn_context *context;
    int64_t *words; /* [n]; -1: of none */
    int64_t n, room;
} attn__token_words;
/* The word, from 0, of each token that the vocabulary divides `text` into; words are separated by its spaces,
 * also where other blanks (the narrow space of French) begin a new word for the vocabulary.  Begins with zeros but for
 * `context`; may be filled again. */
attn_status attn__token_words_fill(attn__token_words *tokens, const attn_vocab *vocab, const char *text);
void attn__token_words_free(attn__token_words *tokens);

/* Words of the text that is kept when pairs are read become one or several, as punctuation is divided from them. */
typedef struct attn__prepared_words {
    attn_context *context;
    int64_t n;      /* words of the text */
    int64_t *first; /* [n+1]: of what becomes of each */
    int64_t room;
    char *out; /* a word, prepared */
    size_t size;
} attn__prepared_words;
/* `same`: the text stays as it is. */
attn_status attn__prepared_words_fill(attn__prepared_words *prepared, const char *text, bool same, attn_compat compat);
/* The word that became the prepared word `number`; -1: none did. */
int64_t attn__prepared_words_origin(const attn__prepared_words *prepared, int64_t number);
void attn__prepared_words_free(attn__prepared_words *prepared);

#endif
