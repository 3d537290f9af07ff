/* SPDX-License-Identifier: MIT
 *
 * pattern.h - regular expressions that match whole names. The time of a match is at most proportional to the product of
 * the lengths of the name and the pattern.
 *
 * A pattern has literals, '.', [a-z] and [^a-z], ( ), |, * + ?, \d, and \ before a special character. All alternatives
 * of a pattern are followed at once (Thompson's construction), and each has its own groups, so the time is never
 * exponential.
 */
#ifndef ATTN_IO_PATTERN_H
#define ATTN_IO_PATTERN_H

#include "base/context.h"

enum { ATTN__GROUPS = 10, ATTN__PATTERN_MOST = 256, ATTN__NAME_MOST = 1024 };

typedef struct attn__pattern attn__pattern;

/* The range of a group in a name. If begin > end, the group did not match. Group 0 is the whole name. */
typedef struct attn__span {
    uint16_t begin, end;
} attn__span;

/* On failure *pattern is NULL, and *wrong is a constant text that describes what is wrong in the pattern. If memory ran
 * out, *wrong is not set. */
attn_status attn__pattern_create(attn__pattern **pattern, attn_context *context, const char *text, size_t size,
                                 const char **wrong);
void attn__pattern_destroy(attn_context *context, attn__pattern *pattern);
/* returns the number of groups; the whole match, group 0, is not counted */
int attn__pattern_groups(const attn__pattern *pattern);
/* Returns the maximum number of steps that matching a name of `size` bytes can take. */
int64_t attn__pattern_steps(const attn__pattern *pattern, size_t size);
/* Returns whether the whole name matches. Names longer than ATTN__NAME_MOST never match. `groups` may be NULL. */
bool attn__pattern_matches(const attn__pattern *pattern, const char *name, size_t size,
                           attn__span groups[ATTN__GROUPS]);

#endif
