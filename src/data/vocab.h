/* SPDX-License-Identifier: MIT
 *
 * vocab.h - a table of words as the files of this floor use it.
 */
#ifndef ATTN_DATA_VOCAB_H
#define ATTN_DATA_VOCAB_H

#include "data/sentences.h"
#include "base/context.h"
#include "base/words.h"
#include "data/subword.h"

enum { ATTN__SPECIALS = 4 };
extern const char *const attn__special_names[ATTN__SPECIALS];

/* A token that is one wherever its text is, and its effect on spaces there. */
typedef struct attn__added_token {
    int32_t id;
    bool strips_left, strips_right, special; /* special: no part of the text */
} attn__added_token;

struct attn_vocab {
    attn_context *context;
    attn__words words; /* texts ended by 0, in `text` */
    char *text;
    attn__subword *subword; /* what splits texts; NULL: spaces do */
    bool marian;            /* names of specials and a leading >>language<< in a text are tokens, not pieces */
    bool tidy;              /* with those: no spaces before marks, as transformers' clean_up_tokenization_spaces */
    attn__added_token *added;
    int64_t nadded;
    int32_t special[ATTN__SPECIALS];
};

/* A vocabulary of `n` words in this order, which are copied. */
attn_status attn__vocab_create(attn_vocab **vocab, attn_context *context, const attn__word *words, int64_t n);
/* One whose words are the pieces of `subword`, which belongs to it from now on, on failure too. */
attn_status attn__vocab_of_subwords(attn_vocab **vocab, attn_context *context, attn__subword *subword,
                                    const char *name);

/* Whether a token is a word or a piece, and no special or byte. */
bool attn__vocab_is_text(const attn_vocab *vocab, int64_t id);

/* Calls `take` for each token of a text: its words, or its pieces. */
attn_status attn__vocab_split(const attn_vocab *vocab, const char *text, attn__subword_take *take, void *user);
/* The id of a token that attn__vocab_split gave; -1: unknown. */
int32_t attn__vocab_id(const attn_vocab *vocab, const char *token, size_t length);
/* The same as MarianTokenizer does it. */
attn_status attn__marian_split(const attn_vocab *vocab, const char *text, attn__subword_take *take, void *user);
/* Tokens joined by spaces as the text they came from; ATTN_ERROR_MEMORY; freed by attn__free.  Only where there are
 * subwords: what words are joined by is the language's (attn_text_detokenize). */
attn_status attn__vocab_join(const attn_vocab *vocab, const char *tokens, char **text);

#endif
