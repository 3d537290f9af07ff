/* SPDX-License-Identifier: MIT
 *
 * layout.h - text in lines, the scale of colours and the numbers of positions, which the pictures have in common. Each
 * is measured with the same function that draws it, before the size of the picture is set. Lengths are in points. */
#ifndef ATTN_PLOT_LAYOUT_H
#define ATTN_PLOT_LAYOUT_H

#include "plot/canvas.h"

typedef struct attn__text_style {
    double size, width; /* size of the font; the width that a line may have */
    bool bold;
    attn__anchor anchor;
    double angle;
} attn__text_style;
/* Returns the distance between two lines of text, a whole number. */
double attn__leading(double size);
/* Breaks a text at its spaces, and within words that are too long, into lines. The first line is at (x, y), and the
 * others follow it. Returns the number of lines. There are at most 12; then the last one ends in an ellipsis. NULL has
 * no lines. `draw` false: the lines are only counted. */
int attn__text_lines(cairo_t *cr, double x, double y, const char *text, const attn__text_style *style, bool draw);
/* Returns the width of a text in a font, at most `most`. NULL has the width 0. */
double attn__text_extent(cairo_t *cr, const char *text, double size, bool bold, double most);
/* Draws a text in the current font. If it is wider than `width`, it is cut after a whole character and ends in an
 * ellipsis. */
void attn__text_fitted(cairo_t *cr, double x, double y, const char *text, double width, attn__anchor anchor,
                       double angle);

/* A bar with the colours of the values from low to high, and numbers to the right of it. */
typedef struct attn__scale {
    attn_colours colours;
    double low, high;
    const char *name; /* written upright behind the numbers; NULL: none */
} attn__scale;
double attn__scale_width(cairo_t *cr, const attn__scale *scale); /* width of the bar with its numbers and name */
void attn__scale_draw(cairo_t *cr, const attn__scale *scale, double x, double y, double height);

/* Draws the numbers of n positions, which are `cell` points apart and count from `first`. They are centred below y if
 * `down` is false; otherwise they are to the left of x. If there is no room for all numbers, round ones are drawn. */
void attn__positions_draw(cairo_t *cr, int64_t first, int64_t n, double cell, double x, double y, bool down);
/* Returns the width of the area for the numbers of n rows. */
double attn__positions_width(cairo_t *cr, int64_t n);
/* Returns the height of the area for the numbers of columns. */
double attn__positions_height(void);

#endif
