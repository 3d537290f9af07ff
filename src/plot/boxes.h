/* SPDX-License-Identifier: MIT
 * boxes.h - draws a picture with labelled boxes. */
#ifndef ATTN_PLOT_BOXES_H
#define ATTN_PLOT_BOXES_H

#include "attn/plot.h"

typedef struct attn__drawn_box {
    /* edges of the box in pixels of the picture; parts of the box outside the picture are not drawn */
    double left, top, right, bottom;
    const char *label; /* label; NULL: none */
    double score;      /* score, printed after the label; NaN: no score */
    int64_t kind;      /* number of the class of the box; boxes of the same kind have the same colour */
} attn__drawn_box;

typedef struct attn__drawn_boxes {
    int64_t width, height;
    int channels;                /* number of channels, 1 or 3 */
    const unsigned char *pixels; /* pixels [height][width][channels] */
    int64_t n;
    const attn__drawn_box *items; /* the boxes; the first box is drawn on top */
} attn__drawn_boxes;

/* Draws the picture and its boxes in the given format. ATTN_ERROR_ARGUMENT: there is no picture, or a text is not
 * UTF-8. ATTN_ERROR_UNSUPPORTED: the format is ATTN_PLOT_HTML, or the build has no cairo. ATTN_ERROR_MEMORY: there
 * is no memory. */
attn_status attn__boxes_render(attn_bytes *picture, attn_context *context, const attn__drawn_boxes *boxes,
                               attn_plot_format format);

#endif
