/* SPDX-License-Identifier: MIT
 *
 * tokenizer.h - splits texts into the tokens of published models, as the library `tokenizers` of Hugging Face does.
 *
 * apps/checkpoint/tokenizer_files.h opens tokenizers. A tokenizer is immutable. Several threads may encode with one
 * tokenizer at once. */
#ifndef ATTN_DATA_TOKENIZER_H
#define ATTN_DATA_TOKENIZER_H

#include "attn/attn.h"

typedef struct attn__tokenizer attn__tokenizer;

/* The tokens of one text or pair of texts. Begin with {0}; the arrays are used again by the next call, and
 * attn__encoding_free frees them. */
typedef struct attn__encoding {
    int64_t n, capacity;
    int32_t *ids;
    int32_t *types;         /* of the token's segment, mostly 0 for the first text and 1 for the second one */
    uint32_t (*offsets)[2]; /* begin and end of the token in its text, in bytes; 0 and 0 for a special token */
    int8_t *texts;          /* 0 or 1: the text that has the token; -1: the token was added by the template */
} attn__encoding;

typedef struct attn__encode_options {
    bool special;       /* true: the tokens of the template are added, such as [CLS] and [SEP] */
    int64_t max_length; /* most tokens, including those of the template; 0: no limit. The longer text loses tokens */
    bool cut_left;      /* true: tokens at the beginning of a text are cut, not those at its end */
} attn__encode_options;

typedef enum attn__special {
    ATTN__TOKEN_CLS,
    ATTN__TOKEN_SEP,
    ATTN__TOKEN_PAD,
    ATTN__TOKEN_MASK,
    ATTN__TOKEN_UNK,
    ATTN__TOKEN_SPECIALS
} attn__special;

void attn__tokenizer_destroy(attn__tokenizer *tokenizer); /* NULL is allowed */

/* Splits a text into tokens, or a pair of texts if `second` is not NULL. Each maximal part of an invalid UTF-8 sequence
 * becomes U+FFFD, as Python decodes with errors="replace". `options` may be NULL: special tokens, no limit.
 * ATTN_ERROR_ARGUMENT: a text has 2^31 bytes or more, or the limit is smaller than the template.
 * ATTN_ERROR_FORMAT: a token is unknown, and the model has no unknown token. May also return ATTN_ERROR_MEMORY. */
attn_status attn__tokenizer_encode(const attn__tokenizer *tokenizer, const char *text, size_t size, const char *second,
                                   size_t second_size, const attn__encode_options *options, attn__encoding *tokens);
void attn__encoding_free(attn_context *context, attn__encoding *tokens);

/* Returns the largest id plus 1, which is the number of rows that an embedding needs. */
int64_t attn__tokenizer_size(const attn__tokenizer *tokenizer);
/* Returns the text of a token, which the tokenizer owns. Returns NULL if no token has this id. */
const char *attn__tokenizer_token(const attn__tokenizer *tokenizer, int64_t id, size_t *length);
/* Returns the id of a token, or -1. */
int32_t attn__tokenizer_find(const attn__tokenizer *tokenizer, const char *token, size_t length);
/* Returns the id of a special token, or -1 if the tokenizer does not have it. */
int32_t attn__tokenizer_special(const attn__tokenizer *tokenizer, attn__special which);
/* Returns the model's longest input as tokenizer_config.json or tokenizer.json tells, in tokens; 0: unknown. */
int64_t attn__tokenizer_max_length(const attn__tokenizer *tokenizer);

#endif
