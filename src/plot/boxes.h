/* SPDX-License-Identifier: MIT
 * boxes.h - a picture with labelled boxes in it. */
#ifndef ATTN_PLOT_BOXES_H
#define ATTN_PLOT_BOXES_H

#include "attn/plot.h"

typedef struct attn__drawn_box {
    double left, top, right, bottom; /* in pixels of the picture; what is outside is not drawn */
    const char *label;               /* NULL: none */
    double score;                    /* printed behind the label; NaN: not */
    int64_t kind;                    /* boxes of one kind have one colour */
} attn__drawn_box;

typedef struct attn__drawn_boxes {
    int64_t width, height;
    int channels;                /* 1 or 3 */
    const unsigned char *pixels; /* [height][width][channels] */
    int64_t n;
    const attn__drawn_box *items; /* the first is on top of the others */
} attn__drawn_boxes;

/* ATTN_ERROR_ARGUMENT: no picture, text that is not UTF-8; ATTN_ERROR_UNSUPPORTED: ATTN_PLOT_HTML, or a build without
 * cairo; ATTN_ERROR_MEMORY. */
attn_status attn__boxes_render(attn_bytes *picture, attn_context *context, const attn__drawn_boxes *boxes,
                               attn_plot_format format);

#endif
