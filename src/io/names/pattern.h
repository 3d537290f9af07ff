/* SPDX-License-Identifier: MIT
 *
 * pattern.h - regular expressions for whole names, in time proportional to name times pattern.
 *
 * Literals, '.', [a-z] and [^a-z], ( ), |, * + ?, \d, and \ before a sign that has a meaning.  All ways through a
 * pattern are followed at once (Thompson's construction, with the groups that each way has passed), so that no
 * pattern and no name can make the work explode. */
#ifndef ATTN_IO_PATTERN_H
#define ATTN_IO_PATTERN_H

#include "base/context.h"

enum { ATTN__GROUPS = 10, ATTN__PATTERN_MOST = 256, ATTN__NAME_MOST = 1024 };

typedef struct attn__pattern attn__pattern;

/* The range of a group in a name; begin > end: it took no part.  Group 0 is the whole name. */
typedef struct attn__span {
    uint16_t begin, end;
} attn__span;

/* *pattern is NULL on failure; `wrong` gets what is wrong, a text that stays, where it is no lack of memory. */
attn_status attn__pattern_create(attn__pattern **pattern, attn_context *context, const char *text, size_t size,
                                 const char **wrong);
void attn__pattern_destroy(attn_context *context, attn__pattern *pattern);
int attn__pattern_groups(const attn__pattern *pattern); /* the number of the last one */
/* The most steps that a name of `size` bytes can take. */
int64_t attn__pattern_steps(const attn__pattern *pattern, size_t size);
/* Names longer than ATTN__NAME_MOST match nothing.  `groups` may be NULL. */
bool attn__pattern_matches(const attn__pattern *pattern, const char *name, size_t size,
                           attn__span groups[ATTN__GROUPS]);

#endif
