/* SPDX-License-Identifier: MIT
 *
 * lines.h - iterates over the lines of a text.
 */
#ifndef ATTN_DATA_LINES_H
#define ATTN_DATA_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Returns the length, 3 or 0, of a UTF-8 byte order mark at the beginning of a text. Editors on Windows write this
 * mark. */
static inline size_t attn__byte_order_mark(const char *text, size_t size)
{
    return size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

/* Returns the size of a text without the NUL bytes that ffindex databases write at its end, and without the line ends
 * between these bytes. */
static inline size_t attn__without_final_nuls(const char *text, size_t size)
{
    size_t end = size;
    while (end > 0 && (text[end - 1] == 0 || text[end - 1] == '\n'))
        size = text[--end] == 0 ? end : size;
    return size;
}

/* Gets the next line without its end (LF, CR LF, or CR alone) and without a byte order mark. *at moves past the line.
 * Returns false after the last line. */
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
