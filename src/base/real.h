/* SPDX-License-Identifier: MIT
 * real.h - numbers as text, with a point in every language. */
#ifndef ATTN_BASE_REAL_H
#define ATTN_BASE_REAL_H

/* Reads decimal numbers as strtod() does in the C locale. A host program may have chosen a locale with a decimal
 * comma, in which strtod() reads 0.1 as 0. *end becomes the address behind the number; `end` may be NULL. */
double attn__real_of_text(const char *text, char **end);
/* Replaces the locale's decimal mark by points in numbers that printf() has just written. The text may hold nothing
 * else that contains the mark. */
void attn__text_points(char *text);

#endif
