/* SPDX-License-Identifier: MIT
 *
 * vocab.h - the internal form of a vocabulary. */
#ifndef ATTN_DATA_VOCAB_H
#define ATTN_DATA_VOCAB_H

#include "data/sentences.h"
#include "base/context.h"
#include "base/words.h"
#include "data/subword.h"

enum { ATTN__SPECIALS = 4 };
extern const char *const attn__special_names[ATTN__SPECIALS];

/* A token that is recognized wherever its text occurs. The flags tell how it affects the spaces around it. */
typedef struct attn__added_token {
    int32_t id;
    bool strips_left, strips_right, special; /* special: the token is not part of the decoded text */
} attn__added_token;

struct attn_vocab {
    attn_context *context;
    attn__words words; /* the words in `text`, each terminated by 0 */
    char *text;
    attn__subword *subword; /* splits texts into pieces; NULL: tokens are words, which are separated by spaces */
    /* true: names of special tokens, and a >>language<< at the beginning of a text, are tokens and not pieces */
    bool marian;
    /* only if `marian` is true: remove spaces before punctuation, like clean_up_tokenization_spaces of transformers */
    bool tidy;
    attn__added_token *added;
    int64_t nadded;
    int32_t special[ATTN__SPECIALS];
};

/* Creates a vocabulary of n words. Their ids are their indices. The words are copied. */
attn_status attn__vocab_create(attn_vocab **vocab, attn_context *context, const attn__word *words, int64_t n);
/* The vocabulary owns `subword` afterwards, even if this fails. */
attn_status attn__vocab_of_subwords(attn_vocab **vocab, attn_context *context, attn__subword *subword,
                                    const char *name);

/* Returns whether a token is a word or a piece, and not a special token or a byte. */
bool attn__vocab_is_text(const attn_vocab *vocab, int64_t id);

/* Splits a text into tokens (words or pieces), and calls `take` for each token. */
attn_status attn__vocab_split(const attn_vocab *vocab, const char *text, attn__subword_take *take, void *user);
/* Returns the id of a token that attn__vocab_split has found. Returns -1 if the vocabulary does not have it. */
int32_t attn__vocab_id(const attn_vocab *vocab, const char *token, size_t length);
/* Does the same as attn__vocab_split, with the rules of MarianTokenizer. */
attn_status attn__marian_split(const attn_vocab *vocab, const char *text, attn__subword_take *take, void *user);
/* Joins tokens to the text from which they were made. The tokens must be subwords, because the rule for words depends
 * on the language (attn_text_detokenize). Free the text with attn__free. May return ATTN_ERROR_MEMORY. */
attn_status attn__vocab_join(const attn_vocab *vocab, const char *tokens, char **text);

#endif
