/* SPDX-License-Identifier: MIT
 *
 * lines.h - stepping through the lines of a text.
 */
#ifndef ATTN_DATA_LINES_H
#define ATTN_DATA_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* The next line without its end (LF or CR LF); *at moves behind it.  False after the last one. */
static inline bool attn__next_line(const char *text, size_t size, size_t *at, const char **line, size_t *length)
{
    if (*at >= size)
        return false;
    *line = text + *at;
    const char *end = memchr(*line, '\n', size - *at);
    *length = end ? (size_t)(end - *line) : size - *at;
    *at += *length + (end != NULL);
    if (*length > 0 && (*line)[*length - 1] == '\r')
        --*length;
    return true;
}

#endif
