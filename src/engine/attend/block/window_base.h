/* SPDX-License-Identifier: MIT */
#ifndef ATTN_ATTEND_WINDOW_BASE_H
#define ATTN_ATTEND_WINDOW_BASE_H

#include "attn/attn.h"

/* Returns the position of tap 0 for query index `i`. Step and dilation are resolved, so neither is 0.  A window with a
 * shifting border is moved inwards in steps of the dilation. */
static inline int64_t attn__window_base(const attn_window *window, int64_t taps, int64_t i)
{
    int64_t base = i * window->step + window->offset, dilation = window->dilation;
    if (window->border != ATTN_BORDER_SHIFT)
        return base;
    int64_t past = base + (taps - 1) * dilation - (window->size - 1);
    if (past > 0)
        base -= (past + dilation - 1) / dilation * dilation;
    if (base < 0)
        base += (-base + dilation - 1) / dilation * dilation;
    return base;
}

/* Returns the minimum and maximum of j - i over a window's pairs (i, j). Step and dilation are resolved.  A shifting
 * border moves the first query's window up the furthest and the last query's window down the furthest, so these two
 * queries give the minimum and maximum. */
static inline void attn__window_reach(const attn_window *window, int64_t taps, int64_t queries, int64_t *low,
                                      int64_t *high)
{
    int64_t last = (taps - 1) * window->dilation;
    *low = window->offset;
    *high = window->offset + last;
    for (int end = 0; end < 2 && window->border == ATTN_BORDER_SHIFT; end++) {
        int64_t i = end ? queries - 1 : 0, base = attn__window_base(window, taps, i) - i * window->step;
        *low = end == 0 || base < *low ? base : *low;
        *high = end == 0 || base + last > *high ? base + last : *high;
    }
}

#endif
