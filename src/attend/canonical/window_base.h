/* SPDX-License-Identifier: MIT
 *
 * window_base.h - where the taps of a window stand.
 */
#ifndef ATTN_ATTEND_WINDOW_BASE_H
#define ATTN_ATTEND_WINDOW_BASE_H

#include "attn/attn.h"

/* The position of tap 0 for query index `i` (step and dilation resolved, not 0); a shifted window is moved
 * inwards in steps of the dilation. */
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

#endif
