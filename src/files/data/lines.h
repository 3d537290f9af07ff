/* SPDX-License-Identifier: MIT
 *
 * lines.h - iterates over the lines of a text.
 */
#ifndef ATTN_DATA_LINES_H
#define ATTN_DATA_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Returns the length of a UTF-8 byte order mark at the beginning of a text: 3, or 0 if there is none. Editors on
 * Windows write such marks. */
static inline size_t attn__byte_order_mark(const char *text, size_t size)
{
    return size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

/* Returns the size of a text without NUL bytes at its end, and without line ends between these NUL bytes. ffindex
 * databases write such NUL bytes. */
static inline size_t attn__without_final_nuls(const char *text, size_t size)
{
    size_t end = size;
    while (end > 0 && (text[end - 1] == 0 || text[end - 1] == '\n'))
        size = text[--end] == 0 ? end : size;
    return size;
}

/* Gets the next line, without its line end (LF, CR LF, or CR alone) and without a byte order mark. *at becomes the
 * offset after the line. Returns false if there is no line left. */
static inline bool attn__next_line(const char *text, size_t size, size_t *at, const char **line, size_t *length)
{
    if (*at == 0)
        *at = attn__byte_order_mark(text, size);
    if (*at >= size)
        return false;
    size_t begin = *at, end = begin;
    while (end < size && text[end] != '\n' && text[end] != '\r')
        end++;
    *line = text + begin;
    *length = end - begin;
    if (end + 1 < size && text[end] == '\r' && text[end + 1] == '\n')
        end++;
    *at = end < size ? end + 1 : end;
    return true;
}

#endif
