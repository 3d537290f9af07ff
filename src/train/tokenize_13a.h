/* SPDX-License-Identifier: MIT
 *
 * tokenize_13a.h - the tokenizer of mteval-v13a, which corpus BLEU uses. */
#ifndef ATTN_TRAIN_TOKENIZE_13A_H
#define ATTN_TRAIN_TOKENIZE_13A_H

#include "attn/attn.h"

typedef struct attn__tokens {
    int64_t n;
    char *buffer;      /* the words, each terminated by 0 */
    const char **word; /* n pointers into `buffer` */
} attn__tokens;

/* Splits UTF-8 text into words. Entities are decoded, and ASCII punctuation is split off. Periods and commas are split
 * off unless they are between digits. A dash is split off after a digit. Free with attn__tokens_free.
 * ATTN_ERROR_MEMORY. */
attn_status attn__tokenize_13a(attn__tokens *words, attn_context *context, const char *line);
/* Returns the bytes of the white space (of any kind in Unicode) at `s`, or 0 if `s` is no white space. */
size_t attn__space_at(const char *s);
void attn__tokens_free(attn__tokens *words, attn_context *context);

#endif
