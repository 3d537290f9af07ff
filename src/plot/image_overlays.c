/* SPDX-License-Identifier: MIT
 *
 * Draws pictures side by side, each with a map of weights over it. */
#include "attn/plot.h"

#include "base/context.h"
#include "base/real.h"
#include "plot/layout.h"

#include <math.h>
#include <stdio.h>

static const double MARGIN = 14, GAP = 12, TITLE = 10, HEAD = 13, PANEL = 168, BAR = 100;
static const char LEGEND[] = "0 to the panel's largest weight";
enum { MOST = 4096 };

typedef struct layout {
    const attn_overlays *overlays;
    int64_t per_line, lines;
    double top, above, panel_height, line_height; /* above: height of the titles of a line of panels */
    double width, height;
} layout;

/* Chooses the grey of a pixel of the picture. The picture is grey, so that only the map has colours. If there is a map,
 * the grey is never black or white, because the map would be hardly visible on black or white. */
static void set_grey(cairo_t *cr, const attn_overlay *o, int64_t x, int64_t y)
{
    const unsigned char *p = o->pixels + (y * o->width + x) * o->channels;
    double c[3];
    for (int i = 0; i < 3; i++)
        c[i] = p[o->channels == 3 ? i : 0] / 255.0;
    double grey = 0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2];
    grey = o->weights ? 0.12 + 0.78 * grey : grey;
    cairo_set_source_rgb(cr, grey, grey, grey);
}

/* Chooses a red whose opacity grows with the weight `share`. At weight 0 the picture is unchanged. Red is visible on
 * black and on white, while a scale from light to dark would be invisible on one of them. */
static void set_colour(cairo_t *cr, double share)
{
    cairo_set_source_rgba(cr, 0.93, 0.10, 0.14, 0.85 * pow(fmax(share, 0), 0.8));
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
        set_colour(cr, share);
        cairo_rectangle(cr, (double)col * w, (double)row * h, w, h);
        cairo_fill(cr);
    }
}

/* Draws a blue frame with a white rim around the query's cell. The frame is visible on black, on white and on the map's
 * colours. */
static void mark_query(cairo_t *cr, const attn_overlay *o, double width, double height)
{
    double w = width / (double)(o->query_cols > 0 ? o->query_cols : o->cols);
    double h = height / (double)(o->query_rows > 0 ? o->query_rows : o->rows);
    if (o->query_row < 0 || o->query_col < 0)
        return;
    for (int i = 0; i < 2; i++) {
        double out = i ? 0 : 1.25;
        cairo_set_source_rgb(cr, i ? 0 : 1, i ? 0.35 : 1, i ? 0.9 : 1);
        cairo_set_line_width(cr, i ? 1.75 : 1.25);
        cairo_rectangle(cr, (double)o->query_col * w - out, (double)o->query_row * h - out, w + 2 * out, h + 2 * out);
        cairo_stroke(cr);
    }
}

/* Writes the largest weight of a panel, which has the strongest colour. */
static void write_largest(const attn_overlay *o, char text[32])
{
    double share = 100 * largest(o);
    snprintf(text, 32, share < 9.95 ? "to %.1f %%" : "to %.0f %%", share);
    attn__text_points(text);
}

/* Returns the style of a panel's title, to the right of which there is room for the largest weight. */
static attn__text_style title_style(const attn_overlay *o, cairo_t *cr)
{
    char text[32] = "";
    if (o->weights)
        write_largest(o, text);
    double room = attn__text_extent(cr, text, TITLE - 1, false, PANEL / 2);
    return (attn__text_style){.size = TITLE, .width = PANEL - (room > 0 ? room + 6 : 0)};
}

static attn__text_style head_style(const layout *l)
{
    return (attn__text_style){.size = HEAD, .width = l->width - 2 * MARGIN, .bold = true};
}

static void draw_titles(cairo_t *cr, const attn_overlay *o)
{
    const attn__text_style style = title_style(o, cr);
    char text[32];
    int lines = attn__text_lines(cr, 0, 0, o->title, &style, false);
    attn__set_colour(cr, attn__ink);
    attn__text_lines(cr, 0, -5 - (lines - 1) * attn__leading(TITLE), o->title, &style, true);
    if (!o->weights)
        return;
    write_largest(o, text);
    attn__set_colour(cr, attn__grey);
    attn__font(cr, TITLE - 1, false);
    attn__text(cr, PANEL, -5, text, ATTN_RIGHT, 0);
}

static void draw_overlay(cairo_t *cr, const attn_overlay *o)
{
    double scale = PANEL / (double)o->width;
    draw_titles(cr, o);
    /* antialiasing would leave visible seams between neighbouring pixels */
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

/* Draws the colour scale, with the opacity of the overlay, over medium grey. */
static void draw_legend(cairo_t *cr, double top)
{
    const double height = 8;
    cairo_set_source_rgb(cr, 0.5, 0.5, 0.5);
    cairo_rectangle(cr, MARGIN, top, BAR, height);
    cairo_fill(cr);
    cairo_set_antialias(cr, CAIRO_ANTIALIAS_NONE);
    for (int i = 0; i < 50; i++) {
        set_colour(cr, i / 49.0);
        cairo_rectangle(cr, MARGIN + i * BAR / 50, top, BAR / 50, height);
        cairo_fill(cr);
    }
    cairo_set_antialias(cr, CAIRO_ANTIALIAS_DEFAULT);
    attn__set_colour(cr, attn__grey);
    attn__font(cr, TITLE - 1, false);
    attn__text(cr, MARGIN + BAR + 6, top + height, LEGEND, ATTN_LEFT, 0);
}

static void measure(layout *l, cairo_t *cr)
{
    double legend = BAR + 6 + attn__text_extent(cr, LEGEND, TITLE - 1, false, INFINITY);
    l->width = fmax((double)l->per_line * (PANEL + GAP) - GAP, legend) + 2 * MARGIN;
    const attn__text_style head = head_style(l);
    int lines = attn__text_lines(cr, 0, 0, l->overlays->title, &head, false);
    l->top = MARGIN + lines * attn__leading(HEAD) + (lines > 0 ? GAP - 4 : 0);
    for (int64_t i = 0; i < l->overlays->n; i++) {
        const attn_overlay *o = &l->overlays->items[i];
        const attn__text_style style = title_style(o, cr);
        int titles = attn__text_lines(cr, 0, 0, o->title, &style, false);
        l->above = fmax(l->above, (titles > 1 ? titles : 1) * attn__leading(TITLE) + 3);
        l->panel_height = fmax(l->panel_height, PANEL * (double)o->height / (double)o->width);
    }
    l->line_height = l->above + l->panel_height + GAP;
    l->height = l->top + (double)l->lines * l->line_height + 8 + MARGIN;
}

static void draw(void *user, cairo_t *cr)
{
    const layout *l = user;
    const attn__text_style head = head_style(l);
    attn__set_colour(cr, attn__ink);
    attn__text_lines(cr, MARGIN, MARGIN + HEAD, l->overlays->title, &head, true);
    draw_legend(cr, l->height - MARGIN - 8);
    for (int64_t i = 0; i < l->overlays->n; i++) {
        int64_t line = i / l->per_line, column = i % l->per_line;
        cairo_save(cr);
        cairo_translate(cr, MARGIN + (double)column * (PANEL + GAP), l->top + l->above + (double)line * l->line_height);
        draw_overlay(cr, &l->overlays->items[i]);
        cairo_restore(cr);
    }
}

static attn_status check(attn_context *context, const attn_overlays *overlays)
{
    if (overlays->n < 1)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "overlays: there are no pictures to draw: n is %lld; it must be at least 1",
                          (long long)overlays->n);
    for (int64_t i = 0; i < overlays->n; i++) {
        const attn_overlay *o = &overlays->items[i];
        if (o->width < 1 || o->height < 1 || o->width > MOST || o->height > MOST)
            return attn__fail(context, ATTN_ERROR_ARGUMENT,
                              "overlays: picture %lld has %lld x %lld pixels; each side must be 1 to %d", (long long)i,
                              (long long)o->width, (long long)o->height, (int)MOST);
        if (o->rows < 1 || o->cols < 1 || o->rows > MOST || o->cols > MOST)
            return attn__fail(context, ATTN_ERROR_ARGUMENT,
                              "overlays: the map of picture %lld has %lld x %lld weights; each side must be 1 to %d",
                              (long long)i, (long long)o->rows, (long long)o->cols, (int)MOST);
        if (o->channels != 1 && o->channels != 3)
            return attn__fail(context, ATTN_ERROR_ARGUMENT, "overlays: picture %lld has %d channels; expected 1 or 3",
                              (long long)i, o->channels);
    }
    return ATTN_OK;
}

attn_status attn_overlays_render(attn_bytes *picture, attn_context *context, const attn_overlays *overlays,
                                 attn_plot_format format)
{
    ATTN__CALL(context);
    layout l = {.overlays = overlays, .per_line = overlays->per_line > 0 ? overlays->per_line : 5};
    *picture = (attn_bytes){0};
    if (ATTN__CHECK_RESERVED(context, overlays, attn_overlays) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    attn_status status = check(context, overlays);
    if (status != ATTN_OK)
        return status;
    l.per_line = l.per_line < overlays->n ? l.per_line : overlays->n;
    l.lines = (overlays->n + l.per_line - 1) / l.per_line;
    cairo_t *measuring = attn__measuring();
    measure(&l, measuring);
    cairo_destroy(measuring);
    return attn__canvas_render(picture, context, format, l.width, l.height, draw, &l);
}
