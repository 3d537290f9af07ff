/* SPDX-License-Identifier: MIT
 *
 * utf8.h - converts code points from and to UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF).
 */
#ifndef ATTN_BASE_UTF8_H
#define ATTN_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Decodes the code point at `text`. `end` is the end of the text (text < end). Returns the code point's length, 1 to
 * 4 bytes, or 0 if the bytes are invalid or cut off. */
int attn__utf8_decode(const char *text, const char *end, uint32_t *code);
/* Writes the UTF-8 bytes of a valid code point, and returns the number of bytes. */
int attn__utf8_encode(uint32_t code, char out[4]);
/* Returns the offset of the first byte that does not begin a valid sequence, or SIZE_MAX if the whole text is valid. */
size_t attn__utf8_first_invalid(const char *text, size_t size);

#endif
