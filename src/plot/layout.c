/* SPDX-License-Identifier: MIT */
#include "plot/layout.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double NUMBER = 8.5, BAR = 12;
enum { MOST_LINES = 12, LINE = 1024 };
static const char ELLIPSIS[] = "\xE2\x80\xA6";

/* ------------------------------------------------------------------------------------------------- text */

double attn__leading(double size)
{
    return ceil(1.3 * size);
}

double attn__text_extent(cairo_t *cr, const char *text, double size, bool bold, double most)
{
    attn__font(cr, size, bold);
    return text ? fmin(attn__text_width(cr, text), most) : 0;
}

/* Returns the number of bytes of the first n bytes of a text that end with a whole character. */
static size_t whole(const char *text, size_t n)
{
    while (n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80)
        n--;
    return n;
}

static double width_of(cairo_t *cr, const char *text, size_t length, char line[LINE])
{
    memcpy(line, text, length); /* NOLINT: the next line adds the terminating zero */
    line[length] = '\0';
    return attn__text_width(cr, line);
}

/* Returns the number of bytes of the longest first part of the text that fits the width: whole words if one fits, else
 * whole characters, at least one. */
static size_t fitting(cairo_t *cr, const char *text, double width, char line[LINE])
{
    size_t end = 0, next;
    while (text[end]) {
        next = end + 1 + strcspn(text + end + 1, " ");
        if (next >= LINE || width_of(cr, text, next, line) > width)
            break;
        end = next;
    }
    if (end > 0)
        return end;
    for (; text[end]; end = next) {
        next = end + 1;
        while (((unsigned char)text[next] & 0xC0) == 0x80)
            next++;
        if (end > 0 && (next >= LINE || width_of(cr, text, next, line) > width))
            break;
    }
    return end;
}

void attn__text_fitted(cairo_t *cr, double x, double y, const char *text, double width, attn__anchor anchor,
                       double angle)
{
    char cut[LINE];
    size_t length = strlen(text);
    if (length >= sizeof cut - sizeof ELLIPSIS || attn__text_width(cr, text) > width) {
        length = length < sizeof cut - sizeof ELLIPSIS ? length : sizeof cut - sizeof ELLIPSIS;
        do {
            length = whole(text, length);
            memcpy(cut, text, length); /* NOLINT: the next line adds the terminating zero */
            memcpy(cut + length, ELLIPSIS, sizeof ELLIPSIS);
        } while (attn__text_width(cr, cut) > width && length-- > 1);
        text = cut;
    }
    attn__text(cr, x, y, text, anchor, angle);
}

int attn__text_lines(cairo_t *cr, double x, double y, const char *text, const attn__text_style *style, bool draw)
{
    char line[LINE];
    int n = 0;
    attn__font(cr, style->size, style->bold);
    while (text && *text) {
        double down = n * attn__leading(style->size);
        double at_x = x - down * sin(style->angle), at_y = y + down * cos(style->angle);
        size_t length = n + 1 < MOST_LINES ? fitting(cr, text, style->width, line) : strlen(text);
        if (n + 1 < MOST_LINES) {
            memcpy(line, text, length); /* NOLINT: the next line adds the terminating zero */
            line[length] = '\0';
        }
        if (draw)
            attn__text_fitted(cr, at_x, at_y, n + 1 < MOST_LINES ? line : text,
                              n + 1 < MOST_LINES ? INFINITY : style->width, style->anchor, style->angle);
        text += length;
        text += strspn(text, " ");
        n++;
    }
    return n;
}

/* ----------------------------------------------------------------------------------- the scale of colours */

static double widest_number(cairo_t *cr, const attn__scale *scale, double ticks[12], int *n)
{
    double most = 0;
    *n = attn__ticks(scale->low, scale->high, ticks);
    attn__font(cr, NUMBER, false);
    for (int i = 0; i < *n; i++) {
        char text[32];
        attn__tick_text(ticks[i], *n > 1 ? ticks[1] - ticks[0] : 1, text, sizeof text);
        most = fmax(most, attn__text_width(cr, text));
    }
    return most;
}

double attn__scale_width(cairo_t *cr, const attn__scale *scale)
{
    double ticks[12];
    int n;
    return BAR + 4 + widest_number(cr, scale, ticks, &n) + (scale->name ? attn__leading(NUMBER) + 4 : 0);
}

void attn__scale_draw(cairo_t *cr, const attn__scale *scale, double x, double y, double height)
{
    enum { STEPS = 128 };
    double ticks[12], last = INFINITY;
    int n;
    double room = widest_number(cr, scale, ticks, &n);
    for (int i = 0; i < STEPS; i++) {
        attn__set_colour(cr, attn__colour_of(scale->colours, 1 - (i + 0.5) / STEPS));
        cairo_rectangle(cr, x, y + height * i / STEPS, BAR, height / STEPS + 0.3);
        cairo_fill(cr);
    }
    attn__set_colour(cr, attn__grey);
    cairo_set_line_width(cr, 0.6);
    cairo_rectangle(cr, x, y, BAR, height);
    cairo_stroke(cr);
    attn__set_colour(cr, attn__ink);
    for (int i = 0; i < n; i++) {
        char text[32];
        attn__tick_text(ticks[i], n > 1 ? ticks[1] - ticks[0] : 1, text, sizeof text);
        double at = y + height * (1 - (ticks[i] - scale->low) / (scale->high - scale->low));
        if (at > last - NUMBER)
            continue; /* no number for this tick, because it would touch the number of the tick before */
        attn__text(cr, x + BAR + 4, at + NUMBER * 0.36, text, ATTN_LEFT, 0);
        last = at;
    }
    attn__set_colour(cr, attn__grey);
    if (scale->name)
        attn__text(cr, x + BAR + 4 + room + 4 + NUMBER, y + height / 2, scale->name, ATTN_CENTRE, -M_PI / 2);
}

/* ------------------------------------------------------------------------------------ numbers of positions */

double attn__positions_width(cairo_t *cr, int64_t n)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)n);
    return attn__text_extent(cr, text, NUMBER, false, INFINITY) + 4;
}

double attn__positions_height(void)
{
    return NUMBER + 4;
}

/* Returns the smallest of 1, 2, 5, 10, ... with which numbers of positions are at least `room` points apart. */
static int64_t step_of(double cell, double room)
{
    for (int64_t ten = 1;; ten *= 10) {
        static const int multiples[] = {1, 2, 5};
        for (int i = 0; i < 3; i++)
            if ((double)(ten * multiples[i]) * cell >= room)
                return ten * multiples[i];
    }
}

void attn__positions_draw(cairo_t *cr, int64_t first, int64_t n, double cell, double x, double y, bool down)
{
    int64_t step = step_of(cell, down ? NUMBER * 1.45 : attn__positions_width(cr, n) + 2);
    attn__set_colour(cr, attn__ink);
    attn__font(cr, NUMBER, false);
    int64_t from = (first + step - 1) / step * step;
    for (int64_t i = from < first + n ? from : first; i < first + n; i += step) {
        char text[32];
        double at = ((double)(i - first) + 0.5) * cell;
        snprintf(text, sizeof text, "%lld", (long long)i);
        if (down)
            attn__text(cr, x - 4, y + at + NUMBER * 0.36, text, ATTN_RIGHT, 0);
        else
            attn__text(cr, x + at, y + NUMBER + 3, text, ATTN_CENTRE, 0);
    }
}
