/* SPDX-License-Identifier: MIT
 *
 * tokenize_13a.h - the tokenizer mteval-v13a, which is used for corpus BLEU.
 */
#ifndef ATTN_TRAIN_TOKENIZE_13A_H
#define ATTN_TRAIN_TOKENIZE_13A_H

#include "attn/attn.h"

typedef struct attn__tokens {
    int64_t n;
    char *buffer; /* the words, each terminated by 0 */
    const char **word;
} attn__tokens;

/* Splits UTF-8 text into words. Entities such as "&lt;" are decoded. Punctuation in ASCII becomes a word of its own,
 * with two exceptions: a period or comma between digits does not, and a dash does only after a digit. Free the words
 * with attn__tokens_free. May return ATTN_ERROR_MEMORY. */
attn_status attn__tokenize_13a(attn__tokens *words, attn_context *context, const char *line);
/* Returns the number of bytes of the white-space character at `s` (any white space of Unicode). Returns 0 if `s` is
 * not white space. */
size_t attn__space_at(const char *s);
void attn__tokens_free(attn__tokens *words, attn_context *context);

#endif
