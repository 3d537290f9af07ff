/* SPDX-License-Identifier: MIT
 *
 * canvas.h - draws with cairo and returns the picture in memory, in one of several formats. Lengths are in points. */
#ifndef ATTN_PLOT_CANVAS_H
#define ATTN_PLOT_CANVAS_H

#include "attn/plot.h"

#include <cairo.h>

typedef struct attn__colour {
    double r, g, b;
} attn__colour;

/* Returns the colour for a value from 0 to 1. DIVERGING is dark at both ends and light in the middle. The other colour
 * maps change from light to dark. Equal differences of values look equally large. */
attn__colour attn__colour_of(attn_colours map, double share);
extern const attn__colour attn__ink, attn__grey, attn__absent;

attn_status attn__canvas_render(attn_bytes *picture, attn_context *context, attn_plot_format format, double width,
                                double height, void (*draw)(void *user, cairo_t *cr), void *user);

/* Gives texts the same widths on every kind of surface, so that they can be measured before they are drawn. */
void attn__font_metrics(cairo_t *cr);
/* Returns a cairo context that is used only to measure text. Free it with cairo_destroy. */
cairo_t *attn__measuring(void);

typedef enum attn__anchor { ATTN_LEFT = 0, ATTN_CENTRE, ATTN_RIGHT } attn__anchor;
/* Sets the font of later texts to DejaVu Sans. A character missing in that font is drawn in another font of the
 * machine. If no font has the character, its code point is printed, such as U+65E5. */
void attn__font(cairo_t *cr, double size, bool bold);
double attn__text_width(cairo_t *cr, const char *text);
/* `anchor` says which point of the text's baseline is at (x, y): its begin, its middle or its end. The text is rotated
 * by `angle` about (x, y). */
void attn__text(cairo_t *cr, double x, double y, const char *text, attn__anchor anchor, double angle);
void attn__set_colour(cairo_t *cr, attn__colour colour);

/* Computes at most 12 ticks of an axis. Ticks are round numbers in [low, high], and their distance is 1, 2 or 5 times a
 * power of ten. Returns the number of ticks. */
int attn__ticks(double low, double high, double ticks[12]);
/* Writes the text of a tick's value, with as few digits as possible if neighbouring ticks differ by `step`. A text with
 * too many digits is written with an exponent. */
void attn__tick_text(double value, double step, char *text, size_t size);

#endif
