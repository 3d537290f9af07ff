/* SPDX-License-Identifier: MIT
 *
 * regex.h - the regular expressions of tokenizer.json, with the meaning that Oniguruma gives them: alternatives, sets
 * of characters, \s \d \w \p{..}, groups, (?i:..), lookahead, and quantifiers on single characters. Other syntax is
 * refused by name. */
#ifndef ATTN_DATA_TOKENIZER_REGEX_H
#define ATTN_DATA_TOKENIZER_REGEX_H

#include "attn/attn.h"

typedef struct attn__regex attn__regex;

/* Makes a pattern from a regular expression, or from a literal string. ATTN_ERROR_UNSUPPORTED: the expression has
 * unknown syntax; the message begins with `name` and `what`. */
attn_status attn__regex_create(attn__regex **pattern, attn_context *context, const char *text, size_t size,
                               bool literal, const char *name, const char *what);
void attn__regex_destroy(attn__regex *pattern); /* NULL is allowed */

/* Finds the leftmost match that begins at or after `from` and is not empty. Returns false if there is none. Also stops
 * if *steps, which is decreased, reaches 0: the pattern tries too many ways. */
bool attn__regex_find(const attn__regex *pattern, const char *text, size_t size, size_t from, size_t *begin,
                      size_t *end, int64_t *steps);

/* Returns the steps that a text of `size` bytes may take, which is enough for every pattern that takes linear time. */
static inline int64_t attn__regex_steps(size_t size)
{
    return 1000 * ((int64_t)size + 1000);
}

#endif
