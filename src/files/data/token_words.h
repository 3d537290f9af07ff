/* SPDX-License-Identifier: MIT
 *
 * token_words.h - determines to which word of a text each token belongs.
 */
#ifndef ATTN_DATA_TOKEN_WORDS_H
#define ATTN_DATA_TOKEN_WORDS_H

#include "data/sentences.h"

/* Numbers the words while their tokens are read in order. All fields except `subwords` must be zero at the start. */
typedef struct attn__word_counter {
    bool subwords; /* true: tokens are pieces, and a space begins a word; false: each token is a word */
    bool space;
    int64_t n; /* number of words that have begun so far */
} attn__word_counter;
/* Returns the number of the word to which the token belongs, counted from 0. The token may be the first one of this
 * word. */
int64_t attn__word_number(attn__word_counter *counter, const char *token, size_t length);

/* For each token of a text, the word to which it belongs. */
typedef struct attn__token_words {
    attn_context *context;
    int64_t *words; /* [n]: number of the word; -1: the token belongs to no word */
    int64_t n, room;
} attn__token_words;
/* Splits `text` into tokens, and finds the number of each token's word, counted from 0. Words are separated by spaces,
 * even if the vocabulary also begins a word at another blank, such as the narrow space of French. All fields except
 * `context` must be zero before the first call. The struct may be filled several times. */
attn_status attn__token_words_fill(attn__token_words *tokens, const attn_vocab *vocab, const char *text);
void attn__token_words_free(attn__token_words *tokens);

/* Maps the words of an original text to its normalized words. One word becomes several normalized words if
 * punctuation is split off. */
typedef struct attn__prepared_words {
    attn_context *context;
    int64_t n;      /* number of words of the original text */
    int64_t *first; /* [n+1]: number of the first normalized word of each word */
    int64_t room;
    char *out; /* buffer for one normalized word */
    size_t size;
} attn__prepared_words;
/* Fills the map for the words of `text`. If `same` is true, the text is not normalized, so each word is its own
 * normalized word. */
attn_status attn__prepared_words_fill(attn__prepared_words *prepared, const char *text, bool same, attn_compat compat);
/* Returns the number of the original word that became normalized word `number`. Returns -1 if there is none. */
int64_t attn__prepared_words_origin(const attn__prepared_words *prepared, int64_t number);
void attn__prepared_words_free(attn__prepared_words *prepared);

#endif
