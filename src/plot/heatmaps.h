/* SPDX-License-Identifier: MIT
 * heatmaps.h - the same heatmaps as a page to explore. */
#ifndef ATTN_PLOT_HEATMAPS_H
#define ATTN_PLOT_HEATMAPS_H

#include "attn/plot.h"

/* Refuses what cannot be drawn. */
attn_status attn__heatmaps_check(attn_context *context, const attn_heatmaps *heatmaps);

/* `heatmaps` has been checked. */
attn_status attn__heatmaps_page(attn_bytes *page, attn_context *context, const attn_heatmaps *heatmaps);

#endif
