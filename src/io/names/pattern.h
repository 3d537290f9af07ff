/* SPDX-License-Identifier: MIT
 *
 * pattern.h - regular expressions for whole names, in time proportional to name times pattern.
 *
 * A pattern has literals, '.', [a-z] and [^a-z], ( ), |, * + ?, \d, and \ before a special character. All alternatives
 * are followed at once (Thompson's construction, with the groups of each alternative). Therefore no pattern and no name
 * can make the time exponential. */
#ifndef ATTN_IO_PATTERN_H
#define ATTN_IO_PATTERN_H

#include "base/context.h"

enum { ATTN__GROUPS = 10, ATTN__PATTERN_MOST = 256, ATTN__NAME_MOST = 1024 };

typedef struct attn__pattern attn__pattern;

/* The range of a group in a name; begin > end: the group did not match. Group 0 is the whole name. */
typedef struct attn__span {
    uint16_t begin, end;
} attn__span;

/* Compiles a pattern. *pattern is NULL on failure. *wrong is then a constant text that describes the fault, unless
 * memory ran out. */
attn_status attn__pattern_create(attn__pattern **pattern, attn_context *context, const char *text, size_t size,
                                 const char **wrong);
void attn__pattern_destroy(attn_context *context, attn__pattern *pattern);
int attn__pattern_groups(const attn__pattern *pattern); /* the number of the last group */
/* Returns the maximum number of steps for a name of `size` bytes. */
int64_t attn__pattern_steps(const attn__pattern *pattern, size_t size);
/* Returns whether the whole name matches. Names longer than ATTN__NAME_MOST never match. `groups` may be NULL. */
bool attn__pattern_matches(const attn__pattern *pattern, const char *name, size_t size,
                           attn__span groups[ATTN__GROUPS]);

#endif
