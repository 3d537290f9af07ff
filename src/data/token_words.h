/* SPDX-License-Identifier: MIT
 *
 * token_words.h - finds the word of a text to which each token belongs.
 */
#ifndef ATTN_DATA_TOKEN_WORDS_H
#define ATTN_DATA_TOKEN_WORDS_H

#include "data/sentences.h"

/* Numbers words while their tokens are read in order. Initialize to zero except for `subwords`. */
typedef struct attn__word_counter {
    bool subwords; /* true: tokens are pieces, and a word begins after a space. false: each token is a word */
    bool space;
    int64_t n; /* number of words begun */
} attn__word_counter;
/* Returns the number, from 0, of the word to which the token belongs or that the token begins. */
int64_t attn__word_number(attn__word_counter *counter, const char *token, size_t length);

/* The words of a text's tokens. */
typedef struct attn__token_words {
    attn_context *context;
    int64_t *words; /* [n]; -1: no word */
    int64_t n, room;
} attn__token_words;
/* Finds the word, from 0, of each token of `text` in the vocabulary. Words are separated by the text's spaces, even if
 * the vocabulary begins a word at another blank (the narrow space of French). Initialize to zero except for `context`.
 * The struct may be filled again. */
attn_status attn__token_words_fill(attn__token_words *tokens, const attn_vocab *vocab, const char *text);
void attn__token_words_free(attn__token_words *tokens);

/* Maps words of the original text of pairs to normalized words. One word becomes several words if punctuation is split
 * off. */
typedef struct attn__prepared_words {
    attn_context *context;
    int64_t n;      /* number of words of the text */
    int64_t *first; /* [n+1]: first normalized word of each word */
    int64_t room;
    char *out; /* a word after normalization */
    size_t size;
} attn__prepared_words;
/* Maps the words of `text`. `same` means that the text is not normalized. */
attn_status attn__prepared_words_fill(attn__prepared_words *prepared, const char *text, bool same, attn_compat compat);
/* Returns the original word of normalized word `number`, or -1 if there is none. */
int64_t attn__prepared_words_origin(const attn__prepared_words *prepared, int64_t number);
void attn__prepared_words_free(attn__prepared_words *prepared);

#endif
