/* SPDX-License-Identifier: MIT
 * real.h - numbers as text, with a point in every language. */
#ifndef ATTN_BASE_REAL_H
#define ATTN_BASE_REAL_H

/* Decimal numbers as strtod() reads them in the C locale: a host program that has chosen a language with a decimal comma
 * would else read 0.1 as 0, and "2,causal" past the comma.  *end gets where the number ends (end NULL: not). */
double attn__real_of_text(const char *text, char **end);
/* The other way: numbers that printf() has just written, and nothing else that could hold its mark, get points. */
void attn__text_points(char *text);

#endif
