/* SPDX-License-Identifier: MIT
 *
 * lines.h - stepping through the lines of a text.
 */
#ifndef ATTN_DATA_LINES_H
#define ATTN_DATA_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* The next line without its end (LF, CR LF, or CR alone); *at moves behind it.  False after the last one. */
static inline bool attn__next_line(const char *text, size_t size, size_t *at, const char **line, size_t *length)
{
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
