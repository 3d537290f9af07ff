/* SPDX-License-Identifier: MIT
 * Pictures with a map of weights over each, side by side. */
#include "attn/plot.h"

#include "base/context.h"
#include "plot/canvas.h"

#include <math.h>

static const double MARGIN = 14, GAP = 12, TITLE = 10, HEAD = 13, PANEL = 168;
enum { MOST = 4096 };

typedef struct layout {
    const attn_overlays *overlays;
    int64_t per_line, lines;
    double panel_height, width, height;
} layout;

/* Grey, so that the colours of the map are the only ones; light, so that they are seen. */
static void set_grey(cairo_t *cr, const attn_overlay *o, int64_t x, int64_t y)
{
    const unsigned char *p = o->pixels + (y * o->width + x) * o->channels;
    double c[3];
    for (int i = 0; i < 3; i++)
        c[i] = p[o->channels == 3 ? i : 0] / 255.0;
    double grey = 0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2];
    cairo_set_source_rgb(cr, grey, grey, grey);
}

static double largest(const attn_overlay *o)
{
    double most = 0;
    for (int64_t i = 0; o->weights && i < o->rows * o->cols; i++)
        most = isfinite(o->weights[i]) ? fmax(most, (double)o->weights[i]) : most;
    return most;
}

static void fill_cells(cairo_t *cr, const attn_overlay *o, double width, double height)
{
    double most = largest(o), w = width / (double)o->cols, h = height / (double)o->rows;
    for (int64_t i = 0; o->weights && i < o->rows * o->cols; i++) {
        int64_t row = i / o->cols, col = i % o->cols;
        double share = most > 0 && isfinite(o->weights[i]) ? (double)o->weights[i] / most : 0;
        attn__colour c = attn__colour_of(share);
        /* What has no weight leaves the picture as it is. */
        cairo_set_source_rgba(cr, c.r, c.g, c.b, 0.1 * (share > 0) + 0.65 * sqrt(fmax(share, 0)));
        cairo_rectangle(cr, (double)col * w, (double)row * h, w, h);
        cairo_fill(cr);
    }
}

static void mark_query(cairo_t *cr, const attn_overlay *o, double width, double height)
{
    double w = width / (double)o->cols, h = height / (double)o->rows;
    if (o->query_row < 0 || o->query_col < 0)
        return;
    cairo_set_source_rgb(cr, 0, 0.45, 0.85);
    cairo_set_line_width(cr, 1.5);
    cairo_rectangle(cr, (double)o->query_col * w, (double)o->query_row * h, w, h);
    cairo_stroke(cr);
}

static void draw_overlay(cairo_t *cr, const attn_overlay *o)
{
    double scale = PANEL / (double)o->width;
    attn__set_colour(cr, attn__ink);
    attn__font(cr, TITLE, false);
    if (o->title)
        attn__text(cr, 0, -5, o->title, ATTN_LEFT, 0);
    /* Pixels as squares without seams between them. */
    cairo_set_antialias(cr, CAIRO_ANTIALIAS_NONE);
    for (int64_t y = 0; y < o->height; y++) {
        for (int64_t x = 0; x < o->width; x++) {
            set_grey(cr, o, x, y);
            cairo_rectangle(cr, (double)x * scale, (double)y * scale, scale, scale);
            cairo_fill(cr);
        }
    }
    fill_cells(cr, o, PANEL, (double)o->height * scale);
    mark_query(cr, o, PANEL, (double)o->height * scale);
    cairo_set_antialias(cr, CAIRO_ANTIALIAS_DEFAULT);
}

static void draw(void *user, cairo_t *cr)
{
    const layout *l = user;
    double top = MARGIN;
    if (l->overlays->title) {
        attn__set_colour(cr, attn__ink);
        attn__font(cr, HEAD, true);
        attn__text(cr, MARGIN, top + HEAD, l->overlays->title, ATTN_LEFT, 0);
        top += HEAD + GAP;
    }
    for (int64_t i = 0; i < l->overlays->n; i++) {
        int64_t line = i / l->per_line, column = i % l->per_line;
        cairo_save(cr);
        cairo_translate(cr, MARGIN + (double)column * (PANEL + GAP),
                        top + TITLE + 6 + (double)line * (l->panel_height + TITLE + 6 + GAP));
        draw_overlay(cr, &l->overlays->items[i]);
        cairo_restore(cr);
    }
}

static attn_status check(attn_context *context, const attn_overlays *overlays)
{
    if (overlays->n < 1)
        return attn__fail(context, ATTN_ARGUMENT, "overlays: there is nothing to draw");
    for (int64_t i = 0; i < overlays->n; i++) {
        const attn_overlay *o = &overlays->items[i];
        if (o->width < 1 || o->height < 1 || o->width > MOST || o->height > MOST || o->rows < 1 || o->cols < 1 ||
            o->rows > MOST || o->cols > MOST || (o->channels != 1 && o->channels != 3))
            return attn__fail(context, ATTN_ARGUMENT,
                              "overlays: a picture of %lld x %lld x %d under a map of %lld x %lld; sides are 1 to %d",
                              (long long)o->width, (long long)o->height, o->channels, (long long)o->rows,
                              (long long)o->cols, (int)MOST);
    }
    return ATTN_OK;
}

attn_status attn_overlays_render(attn_picture *picture, attn_context *context, const attn_overlays *overlays,
                                 attn_picture_format format)
{
    layout l = {.overlays = overlays, .per_line = overlays->per_line > 0 ? overlays->per_line : 4};
    *picture = (attn_picture){0};
    attn_status status = check(context, overlays);
    if (status != ATTN_OK)
        return status;
    l.per_line = l.per_line < overlays->n ? l.per_line : overlays->n;
    l.lines = (overlays->n + l.per_line - 1) / l.per_line;
    for (int64_t i = 0; i < overlays->n; i++)
        l.panel_height = fmax(l.panel_height, PANEL * (double)overlays->items[i].height / (double)overlays->items[i].width);
    l.width = 2 * MARGIN + (double)l.per_line * (PANEL + GAP) - GAP;
    l.height = 2 * MARGIN + (overlays->title ? HEAD + GAP : 0) + (double)l.lines * (l.panel_height + TITLE + 6 + GAP) - GAP;
    return attn__canvas_render(picture, context, format, l.width, l.height, draw, &l);
}
