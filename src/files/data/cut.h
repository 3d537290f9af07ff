/* SPDX-License-Identifier: MIT
 *
 * cut.h - writes text to a caller's buffer. The text is cut to the buffer's size, but its whole length is counted. */
#ifndef ATTN_DATA_CUT_H
#define ATTN_DATA_CUT_H

#include <stddef.h>

typedef struct attn__cut {
    char *out;
    size_t size, used;
} attn__cut;

static inline void attn__cut_put(attn__cut *cut, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++, cut->used++)
        if (cut->used + 1 < cut->size)
            cut->out[cut->used] = bytes[i];
}

/* Writes the terminating 0. Returns the length that the text would have without the limit of the buffer. */
static inline size_t attn__cut_end(attn__cut *cut)
{
    if (cut->size > 0)
        cut->out[cut->used < cut->size ? cut->used : cut->size - 1] = '\0';
    return cut->used;
}

#endif
