/* SPDX-License-Identifier: MIT
 * Curves over a common axis: losses by epoch. */
#include "attn/plot.h"

#include "base/context.h"
#include "plot/canvas.h"

#include <math.h>

static const double WIDTH = 480, HEIGHT = 300, LEFT = 56, RIGHT = 16, TOP = 40, BOTTOM = 46, TEXT = 9;
enum { MOST_CURVES = 8 };

/* Told apart by lightness as well as by hue, for readers who do not see all hues. */
static const attn__colour hues[MOST_CURVES] = {{0.11, 0.30, 0.55}, {0.85, 0.37, 0.13}, {0.20, 0.55, 0.35},
                                               {0.55, 0.20, 0.45}, {0.60, 0.60, 0.10}, {0.10, 0.65, 0.70},
                                               {0.40, 0.25, 0.15}, {0.35, 0.35, 0.38}};

typedef struct frame {
    const attn_curves *curves;
    double x0, x1, y0, y1;
} frame;

static double page_x(const frame *f, double x)
{
    return LEFT + (x - f->x0) / (f->x1 - f->x0) * (WIDTH - LEFT - RIGHT);
}

static double page_y(const frame *f, double y)
{
    return HEIGHT - BOTTOM - (y - f->y0) / (f->y1 - f->y0) * (HEIGHT - TOP - BOTTOM);
}

static void widen(double *low, double *high, double value)
{
    if (!isfinite(value))
        return;
    *low = fmin(*low, value);
    *high = fmax(*high, value);
}

static void find_range(frame *f)
{
    f->x0 = f->y0 = INFINITY;
    f->x1 = f->y1 = -INFINITY;
    for (int64_t c = 0; c < f->curves->n; c++) {
        for (int64_t i = 0; i < f->curves->curves[c].n; i++) {
            widen(&f->x0, &f->x1, f->curves->curves[c].x[i]);
            widen(&f->y0, &f->y1, f->curves->curves[c].y[i]);
        }
    }
    if (!(f->x1 > f->x0))
        f->x1 = (f->x0 = isfinite(f->x0) ? f->x0 : 0) + 1;
    if (!(f->y1 > f->y0))
        f->y1 = (f->y0 = isfinite(f->y0) ? f->y0 : 0) + 1;
    if (f->y0 > 0 && f->y0 < 0.5 * f->y1)
        f->y0 = 0; /* a loss is read from zero unless that would flatten it */
}

static void grid_line(cairo_t *cr, double x0, double y0, double x1, double y1)
{
    attn__set_colour(cr, attn__absent);
    cairo_set_line_width(cr, 0.7);
    cairo_move_to(cr, x0, y0);
    cairo_line_to(cr, x1, y1);
    cairo_stroke(cr);
    attn__set_colour(cr, attn__ink);
}

static void draw_x_axis(const frame *f, cairo_t *cr)
{
    double ticks[12];
    char text[32];
    int n = attn__ticks(f->x0, f->x1, ticks);
    for (int i = 0; i < n; i++) {
        double x = page_x(f, ticks[i]);
        grid_line(cr, x, TOP, x, HEIGHT - BOTTOM);
        attn__tick_text(ticks[i], n > 1 ? ticks[1] - ticks[0] : 1, text, sizeof text);
        attn__text(cr, x, HEIGHT - BOTTOM + TEXT + 4, text, ATTN_CENTRE, 0);
    }
    if (f->curves->x_name)
        attn__text(cr, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, f->curves->x_name, ATTN_CENTRE, 0);
}

static void draw_y_axis(const frame *f, cairo_t *cr)
{
    double ticks[12];
    char text[32];
    int n = attn__ticks(f->y0, f->y1, ticks);
    for (int i = 0; i < n; i++) {
        double y = page_y(f, ticks[i]);
        grid_line(cr, LEFT, y, WIDTH - RIGHT, y);
        attn__tick_text(ticks[i], n > 1 ? ticks[1] - ticks[0] : 1, text, sizeof text);
        attn__text(cr, LEFT - 6, y + TEXT * 0.36, text, ATTN_RIGHT, 0);
    }
    if (f->curves->y_name)
        attn__text(cr, 14, (TOP + HEIGHT - BOTTOM) / 2, f->curves->y_name, ATTN_CENTRE, -M_PI / 2);
}

static void draw_curve(const frame *f, const attn_curve *curve, cairo_t *cr)
{
    cairo_new_path(cr); /* text leaves a point behind */
    cairo_set_line_width(cr, 1.6);
    cairo_set_line_join(cr, CAIRO_LINE_JOIN_ROUND);
    for (int64_t i = 0; i < curve->n; i++) {
        if (isnan(curve->y[i]))
            cairo_new_sub_path(cr);
        else
            cairo_line_to(cr, page_x(f, curve->x[i]), page_y(f, curve->y[i]));
    }
    cairo_stroke(cr);
}

static void draw_page(void *user, cairo_t *cr)
{
    const frame *f = user;
    attn__set_colour(cr, attn__ink);
    attn__font(cr, 12, true);
    if (f->curves->title)
        attn__text(cr, LEFT, 18, f->curves->title, ATTN_LEFT, 0);
    attn__font(cr, TEXT, false);
    draw_x_axis(f, cr);
    draw_y_axis(f, cr);
    attn__font(cr, TEXT, true);
    double x = LEFT;
    for (int64_t c = 0; c < f->curves->n; c++) {
        const attn_curve *curve = &f->curves->curves[c];
        const char *name = curve->name ? curve->name : "";
        attn__set_colour(cr, hues[c]);
        draw_curve(f, curve, cr);
        attn__text(cr, x, 32, name, ATTN_LEFT, 0);
        x += attn__text_width(cr, name) + 16;
    }
}

attn_status attn_curves_render(attn_bytes *picture, attn_context *context, const attn_curves *curves,
                               attn_plot_format format)
{
    attn__call_begin(context);
    *picture = (attn_bytes){0};
    if (ATTN__CHECK_RESERVED(context, curves, attn_curves) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    if (curves->n < 1 || curves->n > MOST_CURVES)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "curves: %lld of them; 1 to %d can be drawn",
                          (long long)curves->n, MOST_CURVES);
    frame f = {.curves = curves};
    find_range(&f);
    return attn__canvas_render(picture, context, format, WIDTH, HEIGHT, draw_page, &f);
}
