/* SPDX-License-Identifier: MIT
 * real.h - converts between numbers and text, with a point in every locale. */
#ifndef ATTN_BASE_REAL_H
#define ATTN_BASE_REAL_H

/* Reads decimal numbers like strtod() in the C locale. A host program may have chosen a locale with a decimal comma, in
 * which strtod() reads 0.1 as 0. *end becomes the address after the number; `end` may be NULL. */
double attn__real_of_text(const char *text, char **end);
/* Replaces the locale's decimal mark by points in numbers that printf() has just written. Nothing else in the text may
 * contain the mark. */
void attn__text_points(char *text);

#endif
