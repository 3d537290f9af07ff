/* SPDX-License-Identifier: MIT
 * heatmaps.h - checks heatmaps, and renders them as an interactive page. */
#ifndef ATTN_PLOT_HEATMAPS_H
#define ATTN_PLOT_HEATMAPS_H

#include "attn/plot.h"

/* Refuses heatmaps that cannot be drawn. */
attn_status attn__heatmaps_check(attn_context *context, const attn_heatmaps *heatmaps);

/* `heatmaps` must have been checked. */
attn_status attn__heatmaps_page(attn_bytes *page, attn_context *context, const attn_heatmaps *heatmaps);

#endif
