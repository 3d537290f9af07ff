/* SPDX-License-Identifier: MIT
 *
 * Draws curves in panels side by side, which have the same axes. */
#include "attn/plot.h"

#include "base/context.h"
#include "plot/layout.h"

#include <math.h>
#include <string.h>

static const double WIDTH = 480, HEIGHT = 300, PANEL = 210, PANEL_HEIGHT = 250, RIGHT = 16, GAP = 18, TEXT = 9,
                    MARK = 18, TITLE = 12, LINE = 14, EDGE = 4, LEAST = 40;
/* EDGE: distance of texts from the picture's border; LEAST: minimum width and height of a panel */
enum { MOST_COLOURS = 8, MOST_CURVES = 256, MOST_PANELS = 32, TICKS = 12 };

/* Colours that differ in lightness as well as in hue, so that colour-blind readers can distinguish them. */
static const attn__colour hues[MOST_COLOURS] = {{0.11, 0.30, 0.55}, {0.85, 0.37, 0.13}, {0.20, 0.55, 0.35},
                                                {0.55, 0.20, 0.45}, {0.60, 0.60, 0.10}, {0.10, 0.65, 0.70},
                                                {0.40, 0.25, 0.15}, {0.35, 0.35, 0.38}};

/* An axis: its range of values (low, high), and its position on the page (from, to). If the axis is logarithmic, the
 * range is that of the logarithms. */
typedef struct axis {
    double low, high, from, to;
    bool log;
    double ticks[TICKS];
    int nticks;
} axis;

typedef struct frame {
    const attn_curves *curves;
    axis x, y;
    int64_t panels;
    double step, gap; /* distance from one panel to the next, and between two panels, in points */
    double width, height, left, right, top;
    double beside; /* x of the end of the y axis' name, to the left of all other texts */
    int hue_of[MOST_CURVES], nhues;
    double legend_x[MOST_COLOURS], legend_y[MOST_COLOURS]; /* positions of the curves' names in the legend, in points */
} frame;

/* ---------------------------------------------------------------------------------------------- checking */

static attn_status refuse_point(attn_context *context, const attn_curve *curve, const char *which, int64_t i,
                                double value)
{
    return attn__fail(context, ATTN_ERROR_ARGUMENT,
                      "curves: %s of point %lld of \"%s\" is %g; a logarithmic axis needs numbers above 0", which,
                      (long long)i + 1, curve->name ? curve->name : "", value);
}

static bool is_drawn(const attn_curve *curve, int64_t i)
{
    return isfinite(curve->x[i]) && isfinite(curve->y[i]);
}

/* Checks a curve, and adds the number of its finite points to *points. */
static attn_status check_curve(attn_context *context, const frame *f, const attn_curve *curve, int64_t *points)
{
    attn_status known = attn__check_choice(context, "the style of a curve", (int)curve->style, ATTN_CURVE_DOTS);
    if (known != ATTN_OK)
        return known;
    if (curve->panel < 0 || curve->panel >= f->panels)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "curves: the panel of \"%s\" is %lld, counted from 0, but the picture has %lld panels",
                          curve->name ? curve->name : "", (long long)curve->panel, (long long)f->panels);
    for (int64_t i = 0; i < curve->n; i++) {
        if (!is_drawn(curve, i))
            continue;
        ++*points;
        if (f->x.log && !(curve->x[i] > 0))
            return refuse_point(context, curve, "x", i, curve->x[i]);
        if (f->y.log && !(curve->y[i] > 0))
            return refuse_point(context, curve, "y", i, curve->y[i]);
    }
    return ATTN_OK;
}

static attn_status check_size(attn_context *context, const attn_curves *curves)
{
    double width = curves->width, height = curves->height;
    if ((width == 0 || (width >= 120 && width <= 4096)) && (height == 0 || (height >= 120 && height <= 4096)))
        return ATTN_OK;
    return attn__fail(context, ATTN_ERROR_ARGUMENT,
                      "curves: the picture has %g x %g points; each side must be 120 to 4096, or 0 for the default",
                      width, height);
}

static attn_status check(attn_context *context, const frame *f)
{
    const attn_curves *curves = f->curves;
    int64_t points = 0;
    if (curves->n < 1 || curves->n > MOST_CURVES)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "curves: %lld curves are given; 1 to %d can be drawn",
                          (long long)curves->n, MOST_CURVES);
    if (f->panels < 1 || f->panels > MOST_PANELS)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "curves: panels is %lld; 1 to %d can be drawn",
                          (long long)f->panels, MOST_PANELS);
    attn_status status = check_size(context, curves);
    for (int64_t c = 0; c < curves->n && status == ATTN_OK; c++)
        status = check_curve(context, f, &curves->curves[c], &points);
    if (status == ATTN_OK && points == 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "curves: no curve has a point with finite x and y");
    return status;
}

/* Curves with the same name have the same colour. Each curve without a name has a colour of its own. */
static attn_status find_hues(attn_context *context, frame *f)
{
    const attn_curve *curves = f->curves->curves;
    for (int64_t c = 0; c < f->curves->n; c++) {
        f->hue_of[c] = -1;
        for (int64_t b = 0; b < c && curves[c].name; b++)
            if (curves[b].name && strcmp(curves[b].name, curves[c].name) == 0)
                f->hue_of[c] = f->hue_of[b];
        if (f->hue_of[c] < 0)
            f->hue_of[c] = f->nhues++;
    }
    if (f->nhues > MOST_COLOURS)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "curves: found %d different names; at most %d can be told apart", f->nhues, MOST_COLOURS);
    return ATTN_OK;
}

/* ----------------------------------------------------------------------------------------------- measuring */

static double on_axis(const axis *a, double value)
{
    return a->log ? log10(value) : value;
}

static void widen(axis *a, double value)
{
    a->low = fmin(a->low, on_axis(a, value));
    a->high = fmax(a->high, on_axis(a, value));
}

/* Widens the range by the margin. An empty range is also widened, because the range's length must not be 0 in
 * divisions. */
static void finish_range(axis *a, double margin)
{
    if (!(a->high > a->low))
        a->high = a->low + fmax(1, 0.1 * fabs(a->low));
    double more = margin * (a->high - a->low);
    a->low -= more, a->high += more;
}

static void find_range(frame *f)
{
    bool dots = false;
    f->x.low = f->y.low = INFINITY;
    f->x.high = f->y.high = -INFINITY;
    for (int64_t c = 0; c < f->curves->n; c++) {
        const attn_curve *curve = &f->curves->curves[c];
        dots = dots || curve->style == ATTN_CURVE_DOTS;
        for (int64_t i = 0; i < curve->n; i++)
            if (is_drawn(curve, i))
                widen(&f->x, curve->x[i]), widen(&f->y, curve->y[i]);
    }
    /* the y axis begins at zero unless the curve would then look flat: the smallest value must be below half of the
     * largest */
    bool from_zero = !f->y.log && f->y.low >= 0 && f->y.low < 0.5 * f->y.high;
    finish_range(&f->x, dots ? 0.02 : 0);
    finish_range(&f->y, 0.03);
    if (from_zero)
        f->y.low = 0;
}

/* Makes ticks within the range: powers of ten, multiplied by each of the n `multiples`. `every` = 1 uses every power of
 * ten, `every` = 2 every second one, and so on. */
static void find_multiples(axis *a, const int *multiples, int n, double every)
{
    a->nticks = 0;
    for (int p = 0; floor(a->low) + p * every <= a->high; p++) {
        for (int i = 0; i < n && a->nticks < TICKS; i++) {
            double power = floor(a->low) + p * every, at = power + log10(multiples[i]);
            if (at >= a->low - 1e-9 && at <= a->high + 1e-9)
                a->ticks[a->nticks++] = pow(10, power) * multiples[i];
        }
    }
}

/* A logarithmic axis has ticks at powers of ten, and if it spans less than three, also at 2 and 5 times these powers.
 * If it spans at most one and has fewer than three such ticks, other round numbers are used. */
static void find_ticks(axis *a)
{
    static const int multiples[] = {1, 2, 5};
    if (a->log) {
        double decades = a->high - a->low;
        find_multiples(a, multiples, decades < 3 ? 3 : 1, fmax(1, ceil(decades / 8)));
        if (a->nticks >= 3 || decades > 1)
            return;
    }
    a->nticks = attn__ticks(a->log ? pow(10, a->low) : a->low, a->log ? pow(10, a->high) : a->high, a->ticks);
}

static void tick_text(const axis *a, int i, char text[32])
{
    double step = a->nticks > 1 ? a->ticks[1] - a->ticks[0] : fmax(fabs(a->ticks[0]), 1e-300);
    attn__tick_text(a->ticks[i], a->log ? fmin(a->ticks[i], step) : step, text, 32);
}

static double widest_tick(const axis *a, cairo_t *cr)
{
    char text[32];
    double most = 0;
    for (int i = 0; i < a->nticks; i++) {
        tick_text(a, i, text);
        most = fmax(most, attn__text_width(cr, text));
    }
    return most;
}

/* Returns the first curve with this colour, whose name the legend shows. Returns NULL if that curve has no name. */
static const attn_curve *named(const frame *f, int hue)
{
    for (int64_t c = 0; c < f->curves->n; c++)
        if (f->hue_of[c] == hue)
            return f->curves->curves[c].name ? &f->curves->curves[c] : NULL;
    return NULL;
}

/* A name that is too wide has several lines. */
static attn__text_style legend_style(const frame *f)
{
    return (attn__text_style){.size = TEXT, .width = f->width - f->right - f->left - MARK - 4, .bold = true};
}

/* Arranges the legend in lines that fit the page's width. Returns the y position of the legend's end. */
static double place_legend(frame *f, double y, cairo_t *cr)
{
    double x = f->left;
    bool any = false;
    const attn__text_style style = legend_style(f);
    for (int h = 0; h < f->nhues; h++) {
        const attn_curve *curve = named(f, h);
        double width = curve ? MARK + 4 + attn__text_extent(cr, curve->name, TEXT, true, style.width) + 16 : 0;
        if (x > f->left && x + width - 16 > f->width - f->right)
            x = f->left, y += LINE;
        f->legend_x[h] = x, f->legend_y[h] = y;
        x += width;
        if (curve)
            y += fmax(attn__text_lines(cr, 0, 0, curve->name, &style, false) - 1, 0) * attn__leading(TEXT);
        any = any || curve;
    }
    return any ? y + LINE : y;
}

/* The measuring and the drawing of a text use the same style. */
static attn__text_style title_style(const frame *f)
{
    return (attn__text_style){.size = TITLE, .width = f->width - f->left - EDGE, .bold = true};
}

static attn__text_style x_style(const frame *f)
{
    return (attn__text_style){.size = TEXT, .width = f->width - EDGE - f->beside, .anchor = ATTN_CENTRE};
}

static attn__text_style y_style(const frame *f)
{
    return (attn__text_style){.size = TEXT, .width = f->height - 2 * EDGE, .anchor = ATTN_CENTRE, .angle = -M_PI / 2};
}

static attn__text_style panel_style(const frame *f)
{
    return (attn__text_style){.size = TEXT, .width = f->step - EDGE, .bold = true, .anchor = ATTN_CENTRE};
}

static int panel_lines(const frame *f, int64_t panel, cairo_t *cr)
{
    const attn__text_style style = panel_style(f);
    return attn__text_lines(cr, 0, 0, f->curves->panel_names[panel], &style, false);
}

/* Places the panels side by side. */
static void measure_width(frame *f, cairo_t *cr)
{
    const attn_curves *curves = f->curves;
    attn__font(cr, TEXT, false);
    double across = widest_tick(&f->x, cr) / 2 + EDGE, panels = (double)f->panels;
    const attn__text_style down = y_style(f);
    int lines = attn__text_lines(cr, 0, 0, curves->y_name, &down, false);
    f->beside = lines > 0 ? TEXT + 8 + (lines - 1) * attn__leading(TEXT) : EDGE;
    f->left = fmax(f->beside + widest_tick(&f->y, cr) + 12, across);
    f->right = fmax(RIGHT, across);
    f->gap = fmax(GAP, 2 * across);
    double width = panels > 1 ? f->left + f->right + panels * PANEL - f->gap : WIDTH;
    f->width = fmax(curves->width > 0 ? curves->width : width, f->left + f->right + panels * (LEAST + f->gap) - f->gap);
    f->step = (f->width - f->left - f->right + f->gap) / panels;
    f->x.from = f->left, f->x.to = f->left + f->step - f->gap;
}

/* The picture is larger than requested if its texts would leave no room for the curves. */
static void measure(frame *f, cairo_t *cr)
{
    const attn_curves *curves = f->curves;
    find_ticks(&f->x);
    find_ticks(&f->y);
    f->height = curves->height > 0 ? curves->height : f->panels > 1 ? PANEL_HEIGHT : HEIGHT;
    measure_width(f, cr);
    const attn__text_style title = title_style(f), across = x_style(f);
    int titles = attn__text_lines(cr, 0, 0, curves->title, &title, false), names = 0;
    int below = attn__text_lines(cr, 0, 0, curves->x_name, &across, false);
    for (int64_t p = 0; curves->panel_names && p < f->panels; p++)
        names = panel_lines(f, p, cr) > names ? panel_lines(f, p, cr) : names;
    double legend = titles > 0 ? TITLE + 20 + (titles - 1) * attn__leading(TITLE) : LINE + 2;
    f->top = place_legend(f, legend, cr) + (names > 0 ? LINE + (names - 1) * attn__leading(TEXT) : 0) - 6;
    double bottom = below > 0 ? 46 + (below - 1) * attn__leading(TEXT) : 30;
    f->height = fmax(f->height, f->top + LEAST + bottom);
    f->y.from = f->height - bottom;
    f->y.to = f->top;
}

/* ------------------------------------------------------------------------------------------------- drawing */

static double place(const axis *a, double value)
{
    return a->from + (on_axis(a, value) - a->low) / (a->high - a->low) * (a->to - a->from);
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
    char text[32];
    double last = -INFINITY;
    for (int i = 0; i < f->x.nticks; i++) {
        double x = place(&f->x, f->x.ticks[i]);
        grid_line(cr, x, f->y.from, x, f->y.to);
        tick_text(&f->x, i, text);
        double half = attn__text_width(cr, text) / 2;
        if (x - half < last + 3)
            continue; /* no text for this tick, because it would touch the text of the tick before */
        attn__text(cr, x, f->y.from + TEXT + 4, text, ATTN_CENTRE, 0);
        last = x + half;
    }
}

static void draw_y_axis(const frame *f, bool first, cairo_t *cr)
{
    char text[32];
    for (int i = 0; i < f->y.nticks; i++) {
        double y = place(&f->y, f->y.ticks[i]);
        grid_line(cr, f->x.from, y, f->x.to, y);
        tick_text(&f->y, i, text);
        if (first)
            attn__text(cr, f->x.from - 6, y + TEXT * 0.36, text, ATTN_RIGHT, 0);
    }
}

static void dot(cairo_t *cr, double x, double y)
{
    cairo_new_sub_path(cr);
    cairo_arc(cr, x, y, 2.3, 0, 2 * M_PI);
    cairo_fill(cr);
}

static void set_style(const attn_curve *curve, int hue, cairo_t *cr)
{
    static const double dashes[] = {5, 4};
    attn__colour c = hues[hue];
    cairo_new_path(cr); /* drawing text has moved cairo's current point, so start a new path */
    cairo_set_source_rgba(cr, c.r, c.g, c.b, curve->style == ATTN_CURVE_DOTS ? 0.6 : 1);
    cairo_set_line_width(cr, 1.6);
    cairo_set_line_join(cr, CAIRO_LINE_JOIN_ROUND);
    cairo_set_line_cap(cr, curve->style == ATTN_CURVE_DASHES ? CAIRO_LINE_CAP_BUTT : CAIRO_LINE_CAP_ROUND);
    cairo_set_dash(cr, dashes, curve->style == ATTN_CURVE_DASHES ? 2 : 0, 0);
}

/* A single point between two gaps becomes a line of length 0, which its round cap makes visible. */
static void draw_curve(const frame *f, const attn_curve *curve, int hue, cairo_t *cr)
{
    bool goes_on = false;
    set_style(curve, hue, cr);
    for (int64_t i = 0; i < curve->n; i++) {
        bool drawn = is_drawn(curve, i);
        double x = drawn ? place(&f->x, curve->x[i]) : 0, y = drawn ? place(&f->y, curve->y[i]) : 0;
        if (drawn && curve->style == ATTN_CURVE_DOTS)
            dot(cr, x, y);
        else if (drawn && !goes_on)
            cairo_move_to(cr, x, y);
        if (drawn && curve->style != ATTN_CURVE_DOTS)
            cairo_line_to(cr, x, y);
        goes_on = drawn;
    }
    cairo_stroke(cr);
    cairo_set_dash(cr, NULL, 0, 0);
}

static void draw_legend(const frame *f, cairo_t *cr)
{
    const attn__text_style style = legend_style(f);
    for (int h = 0; h < f->nhues; h++) {
        const attn_curve *curve = named(f, h);
        if (!curve)
            continue;
        double x = f->legend_x[h], y = f->legend_y[h] - TEXT * 0.36;
        set_style(curve, h, cr);
        if (curve->style == ATTN_CURVE_DOTS) {
            dot(cr, x + MARK / 2, y);
        } else {
            cairo_move_to(cr, x, y);
            cairo_line_to(cr, x + MARK, y);
            cairo_stroke(cr);
        }
        cairo_set_dash(cr, NULL, 0, 0);
        attn__set_colour(cr, hues[h]);
        attn__text_lines(cr, x + MARK + 4, f->legend_y[h], curve->name, &style, true);
    }
}

static void draw_panel(const frame *first, int64_t panel, cairo_t *cr)
{
    frame f = *first;
    f.x.from += (double)panel * f.step, f.x.to += (double)panel * f.step;
    attn__set_colour(cr, attn__ink);
    attn__font(cr, TEXT, false);
    draw_x_axis(&f, cr);
    draw_y_axis(&f, panel == 0, cr);
    if (f.curves->panel_names) {
        const attn__text_style style = panel_style(&f);
        double up = (panel_lines(&f, panel, cr) - 1) * attn__leading(TEXT);
        attn__text_lines(cr, (f.x.from + f.x.to) / 2, f.top - 6 - up, f.curves->panel_names[panel], &style, true);
    }
    for (int64_t c = 0; c < f.curves->n; c++)
        if (f.curves->curves[c].panel == panel)
            draw_curve(&f, &f.curves->curves[c], f.hue_of[c], cr);
}

/* Returns the middle of an axis' name: that of the axis, or the nearest with which the name is inside its room, which
 * begins at `from` and has `most` points. */
static double middle(cairo_t *cr, const char *name, double wanted, double from, double most)
{
    double half = attn__text_extent(cr, name, TEXT, false, most) / 2;
    return fmin(fmax(wanted, from + half), from + most - half);
}

static void draw_page(void *user, cairo_t *cr)
{
    const frame *f = user;
    const attn_curves *curves = f->curves;
    const attn__text_style title = title_style(f), x = x_style(f), y = y_style(f);
    attn__set_colour(cr, attn__ink);
    attn__text_lines(cr, f->left, 18, curves->title, &title, true);
    for (int64_t p = 0; p < f->panels; p++)
        draw_panel(f, p, cr);
    attn__set_colour(cr, attn__ink);
    double across = middle(cr, curves->x_name, (f->left + f->width - f->right) / 2, f->beside, x.width);
    attn__text_lines(cr, across, f->y.from + 36, curves->x_name, &x, true);
    double down = middle(cr, curves->y_name, (f->top + f->y.from) / 2, EDGE, y.width);
    attn__text_lines(cr, 14, down, curves->y_name, &y, true);
    draw_legend(f, cr);
}

attn_status attn_curves_render(attn_bytes *picture, attn_context *context, const attn_curves *curves,
                               attn_plot_format format)
{
    ATTN__CALL(context);
    *picture = (attn_bytes){0};
    if (ATTN__CHECK_RESERVED(context, curves, attn_curves) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    frame f = {.curves = curves, .panels = curves->panels ? curves->panels : 1};
    f.x.log = curves->log_x, f.y.log = curves->log_y;
    attn_status status = check(context, &f);
    if (status == ATTN_OK)
        status = find_hues(context, &f);
    if (status != ATTN_OK)
        return status;
    find_range(&f);
    if (!isfinite(f.x.high - f.x.low))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "curves: x from %g to %g is too large a range for an axis",
                          f.x.low, f.x.high);
    if (!isfinite(f.y.high - f.y.low))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "curves: y from %g to %g is too large a range for an axis",
                          f.y.low, f.y.high);
    cairo_t *measuring = attn__measuring();
    measure(&f, measuring);
    cairo_destroy(measuring);
    return attn__canvas_render(picture, context, format, f.width, f.height, draw_page, &f);
}
