/* SPDX-License-Identifier: MIT
 *
 * canvas.h - renders a cairo surface of any format into memory, and has basic drawing functions. Lengths are in points.
 */
#ifndef ATTN_PLOT_CANVAS_H
#define ATTN_PLOT_CANVAS_H

#include "attn/plot.h"

#include <cairo.h>

typedef struct attn__colour {
    double r, g, b;
} attn__colour;

/* Returns the colour for a share from 0 to 1, from light to dark (DIVERGING: dark, light, dark). Steps of equal size
 * look equally large. */
attn__colour attn__colour_of(attn_colours map, double share);
extern const attn__colour attn__ink, attn__grey, attn__absent;

/* Calls draw(user, cr) on a white page of this size and returns the finished picture. */
attn_status attn__canvas_render(attn_bytes *picture, attn_context *context, attn_plot_format format, double width,
                                double height, void (*draw)(void *user, cairo_t *cr), void *user);

/* Returns a cairo context that can only measure text. Destroy it with cairo_destroy. */
cairo_t *attn__measuring(void);

typedef enum attn__anchor { ATTN_LEFT = 0, ATTN_CENTRE, ATTN_RIGHT } attn__anchor;
/* Sets the font of later texts to DejaVu Sans. A character missing in that font is drawn in another font of the
 * machine. If no font has the character, its code point is printed, such as U+65E5. */
void attn__font(cairo_t *cr, double size, bool bold);
double attn__text_width(cairo_t *cr, const char *text);
/* Draws a text. Its baseline starts, is centred, or ends at (x, y). The text is rotated by `angle` about that point. */
void attn__text(cairo_t *cr, double x, double y, const char *text, attn__anchor anchor, double angle);
void attn__set_colour(cairo_t *cr, attn__colour colour);

/* Computes round numbers that cover [low, high]: at most 12, at distances of 1, 2 or 5 times a power of ten. Returns
 * their number. */
int attn__ticks(double low, double high, double ticks[12]);
/* Formats a number with as few digits as the step between ticks allows. A number that would have many digits gets an
 * exponent. */
void attn__tick_text(double value, double step, char *text, size_t size);

#endif
