/* SPDX-License-Identifier: MIT
 * heatmaps.h - checks heatmaps, and renders them as an interactive page. */
#ifndef ATTN_PLOT_HEATMAPS_H
#define ATTN_PLOT_HEATMAPS_H

#include "attn/plot.h"

attn_status attn__heatmaps_check(attn_context *context, const attn_heatmaps *heatmaps);

/* Renders heatmaps as an interactive HTML page. `heatmaps` must have passed attn__heatmaps_check. */
attn_status attn__heatmaps_page(attn_bytes *page, attn_context *context, const attn_heatmaps *heatmaps);

#endif
