/* SPDX-License-Identifier: MIT
 *
 * real.h - converts between numbers and text. The decimal mark in the text is a point in every locale. */
#ifndef ATTN_BASE_REAL_H
#define ATTN_BASE_REAL_H

/* Reads a decimal number like strtod() in the C locale. strtod() itself reads 0.1 as 0 if the host program has chosen a
 * locale with a decimal comma. *end becomes the address after the number; `end` may be NULL. */
double attn__real_of_text(const char *text, char **end);
/* Replaces the locale's decimal mark by a point in a text that printf() has just written. The text may have this mark
 * only in numbers. */
void attn__text_points(char *text);

#endif
