/* SPDX-License-Identifier: MIT
 * boxes.h - draws a picture with labelled boxes. */
#ifndef ATTN_PLOT_BOXES_H
#define ATTN_PLOT_BOXES_H

#include "attn/plot.h"

typedef struct attn__drawn_box {
    /* edges of the box in pixels of the picture; the part of a box that is outside the picture is not drawn */
    double left, top, right, bottom;
    const char *label; /* NULL: the box has no label */
    double score;      /* printed after the label; NaN: the box has no score */
    int64_t kind;      /* number of the box's class; boxes of the same class have the same colour */
} attn__drawn_box;

typedef struct attn__drawn_boxes {
    int64_t width, height;
    int channels;
    const unsigned char *pixels; /* pixels [height][width][channels] */
    int64_t n;
    const attn__drawn_box *items; /* the first box is drawn on top of the others */
} attn__drawn_boxes;

/* ATTN_ERROR_ARGUMENT: there is no picture, or a text is not UTF-8. ATTN_ERROR_UNSUPPORTED: the format is
 * ATTN_PLOT_HTML, or the build has no cairo. ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn__boxes_render(attn_bytes *picture, attn_context *context, const attn__drawn_boxes *boxes,
                               attn_plot_format format);

#endif
