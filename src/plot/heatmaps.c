/* SPDX-License-Identifier: MIT
 *
 * Draws heatmaps on a grid. All sizes are computed before anything is drawn, because they depend on the texts. The
 * page looks like this:
 *
 *     title
 *     row title
 *     | queries' labels | panel | gap | panel | ...    | scale
 *     |                 | keys' labels, turned upright |
 *
 * If the page would be too tall, the rows of panels are arranged in several columns. */
#include "attn/plot.h"

#include "base/context.h"
#include "plot/heatmaps.h"
#include "plot/layout.h"

#include <math.h>
#include <string.h>

static const double MARGIN = 14, GAP = 12, LABEL = 8.5, NAME = 9, TITLE = 10, HEAD = 13, FOLD = 26,
                    /* FOLD: gap between columns of rows; TALLEST: maximum ratio of height to width of a page with
                     * one column */
    TALLEST = 1.25,
                    /* NARROWEST: width that titles have even above narrower panels; LONGEST_NAME: width of a panel's
                     * area that its title and the name of an axis may need; SHORTEST: least height of the scale */
    NARROWEST = 230, LONGEST_NAME = 120, SHORTEST = 48;
enum { LONGEST_LABEL = 96 };

typedef struct laid_row {
    double cell;          /* side of the square that shows one weight, in points */
    double cells_h;       /* height of the largest panel */
    double left;          /* width of the area left of a panel, for the queries' labels and the axis name */
    double above;         /* height of the area above a panel, for its title */
    double labels, below; /* height below a panel of the keys' labels, and of these and the axis name */
    double width, height; /* size of the area of a panel, which texts may make larger than the panel */
    double content;       /* width of all panels of a line with `left` */
    double title;         /* height of the row's title */
    int64_t lines;        /* number of lines that the row's panels fill */
    double x, y;
} laid_row;

typedef struct layout {
    const attn_heatmaps *maps;
    laid_row *rows;
    int64_t per_line;
    attn__scale scale;
    double width, height;
    double column; /* width of a column of rows */
    double scale_x, scale_y, scale_height;
} layout;

static double widest(cairo_t *cr, const char *const *labels, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, attn__text_extent(cr, labels[i], LABEL, false, LONGEST_LABEL));
    return most;
}

static const char *row_name(const attn_panel_row *row)
{
    return row->row_name ? row->row_name : "Queries";
}

static const char *col_name(const attn_panel_row *row)
{
    return row->col_name ? row->col_name : "Keys";
}

/* The measuring and the drawing of a text use the same style. */
static attn__text_style head_style(const layout *l)
{
    return (attn__text_style){.size = HEAD, .width = l->width - 2 * MARGIN, .bold = true};
}

static attn__text_style title_style(const layout *l)
{
    return (attn__text_style){.size = TITLE, .width = fmax(l->column, NARROWEST), .bold = true};
}

static attn__text_style panel_style(const laid_row *laid)
{
    return (attn__text_style){.size = LABEL, .width = laid->width, .anchor = ATTN_CENTRE};
}

static attn__text_style col_style(const laid_row *laid)
{
    return (attn__text_style){.size = NAME, .width = laid->width, .anchor = ATTN_CENTRE};
}

static attn__text_style row_style(const laid_row *laid)
{
    return (attn__text_style){.size = NAME, .width = laid->height, .anchor = ATTN_CENTRE, .angle = -M_PI / 2};
}

/* Returns the height of a text above the things below it. */
static double height_of(cairo_t *cr, const char *text, const attn__text_style *style)
{
    return attn__text_lines(cr, 0, 0, text, style, false) * attn__leading(style->size);
}

/* Returns the smallest distance between two labels in cells, or 0 if there are fewer than two labels. Empty labels do
 * not count, because a long axis may label only every tenth position. */
static int64_t label_spacing(const char *const *labels, int64_t n)
{
    int64_t least = 0, last = -1;
    for (int64_t i = 0; labels && i < n; i++) {
        if (!labels[i][0])
            continue;
        if (last >= 0 && (least == 0 || i - last < least))
            least = i - last;
        last = i;
    }
    return least;
}

/* Returns the side of a cell, with which the panel has a convenient size. If the labels need larger cells to have room
 * for one line of text each, the side is larger. */
static double cell_size(const attn_panel_row *row, int64_t rows, int64_t cols)
{
    double cell = fmin(18, 320 / (double)(rows > cols ? rows : cols));
    int64_t down = label_spacing(row->row_labels, rows), across = label_spacing(row->col_labels, cols);
    cell = down ? fmax(cell, LABEL * 1.45 / (double)down) : cell;
    return across ? fmax(cell, LABEL * 1.45 / (double)across) : cell;
}

static void measure_row(const layout *l, const attn_panel_row *row, laid_row *laid, cairo_t *cr)
{
    int64_t rows = 0, cols = 0, side_by_side = row->n < l->per_line ? row->n : l->per_line;
    for (int64_t i = 0; i < row->n; i++) {
        rows = row->panels[i].rows > rows ? row->panels[i].rows : rows;
        cols = row->panels[i].cols > cols ? row->panels[i].cols : cols;
    }
    laid->cell = cell_size(row, rows, cols);
    laid->cells_h = laid->cell * (double)rows;
    laid->width = fmax(laid->cell * (double)cols, attn__text_extent(cr, col_name(row), NAME, false, LONGEST_NAME));
    for (int64_t i = 0; i < row->n; i++)
        laid->width = fmax(laid->width, attn__text_extent(cr, row->panels[i].title, LABEL, false, LONGEST_NAME));
    laid->height = fmax(laid->cells_h, attn__text_extent(cr, row_name(row), NAME, false, LONGEST_NAME));
    const attn__text_style panel = panel_style(laid), down = row_style(laid), across = col_style(laid);
    laid->above = 0;
    for (int64_t i = 0; i < row->n; i++)
        laid->above = fmax(laid->above, height_of(cr, row->panels[i].title, &panel) + 4);
    laid->left = (row->row_labels ? widest(cr, row->row_labels, rows) : attn__positions_width(cr, rows)) +
                 height_of(cr, row_name(row), &down) + 8;
    laid->labels = row->col_labels ? widest(cr, row->col_labels, cols) + 4 : attn__positions_height();
    laid->below = laid->labels + height_of(cr, col_name(row), &across) + 4;
    laid->lines = (row->n + l->per_line - 1) / l->per_line;
    laid->content = laid->left + (double)side_by_side * (laid->width + GAP) - GAP;
}

static double line_height(const laid_row *laid)
{
    return laid->above + fmax(laid->cells_h + laid->below, laid->height) + GAP;
}

static double row_height(const layout *l, int64_t i)
{
    return l->rows[i].title + (double)l->rows[i].lines * line_height(&l->rows[i]);
}

/* Places the rows one below the other. If a column would be higher than `most`, starts a new column. Returns the number
 * of columns. *bottom becomes the largest y of all rows. */
static int64_t place_rows(layout *l, double top, double most, double column_width, double *bottom)
{
    int64_t columns = 1;
    double y = top;
    *bottom = top;
    for (int64_t i = 0; i < l->maps->n; i++) {
        double height = row_height(l, i);
        if (y > top && y + height > top + most * (1 + 1e-9)) {
            columns++;
            y = top;
        }
        l->rows[i].x = MARGIN + (double)(columns - 1) * (column_width + FOLD);
        l->rows[i].y = y;
        y += height;
        *bottom = fmax(*bottom, y);
    }
    return columns;
}

/* Places the rows in at most `n` columns, so that the highest column is as low as possible. The height is found by
 * bisection. It cannot be computed as 1/n of the total height, because rows are not divided. */
static int64_t place_low(layout *l, double top, int64_t n, double width, double *bottom)
{
    double low = 0, high = 0;
    for (int64_t i = 0; i < l->maps->n; i++) {
        low = fmax(low, row_height(l, i));
        high += row_height(l, i);
    }
    low = fmax(low, high / (double)n);
    while (high - low > 0.5) { /* half a point, which is one pixel, is precise enough */
        double middle = (low + high) / 2;
        if (place_rows(l, top, middle, width, bottom) <= n)
            high = middle;
        else
            low = middle;
    }
    return place_rows(l, top, high, width, bottom);
}

/* Returns the smallest number of columns with which the page's height is at most TALLEST times its width. */
static int64_t fold(layout *l, double top, double width, double *bottom)
{
    int64_t columns = 1;
    for (int64_t n = 1; n <= l->maps->n; n++) {
        columns = place_low(l, top, n, width, bottom);
        double wide = (double)columns * (width + FOLD) - FOLD;
        if (*bottom - top <= TALLEST * wide)
            break;
    }
    return columns;
}

/* Places the scale to the right of the first row of the last column, as high as a panel of this row. */
static void place_scale(layout *l, cairo_t *cr)
{
    const laid_row *beside = &l->rows[0];
    for (int64_t i = 1; i < l->maps->n; i++)
        beside = l->rows[i].x > beside->x ? &l->rows[i] : beside;
    l->scale_x = beside->x + beside->content + GAP;
    l->scale_y = beside->y + beside->title + beside->above;
    l->scale_height = fmax(beside->cells_h, SHORTEST);
    l->width = fmax(l->width, l->scale_x + attn__scale_width(cr, &l->scale) + MARGIN);
    l->height = fmax(l->height, l->scale_y + l->scale_height + MARGIN);
}

static void measure(layout *l, cairo_t *cr)
{
    for (int64_t i = 0; i < l->maps->n; i++) {
        measure_row(l, &l->maps->rows[i], &l->rows[i], cr);
        l->column = fmax(l->column, l->rows[i].content);
    }
    const attn__text_style title = title_style(l);
    for (int64_t i = 0; i < l->maps->n; i++) {
        const char *text = l->maps->rows[i].title;
        l->rows[i].title = text ? height_of(cr, text, &title) + 6 : 0;
        l->column = fmax(l->column, attn__text_extent(cr, text, TITLE, true, title.width));
    }
    /* The width of the page is that of its columns, in which the title is broken into lines. */
    double bottom = 0;
    int64_t columns = fold(l, 0, l->column, &bottom);
    l->width = fmax((double)columns * (l->column + FOLD) - FOLD, NARROWEST) + 2 * MARGIN;
    place_scale(l, cr);
    const attn__text_style head = head_style(l);
    double top = MARGIN + (l->maps->title ? height_of(cr, l->maps->title, &head) + 6 : 0);
    fold(l, top, l->column, &bottom);
    l->height = bottom;
    place_scale(l, cr);
}

/* --------------------------------------------------------------------------------------------- drawing */

static void draw_cells(const layout *l, const attn_panel *panel, double cell, double x, double y, cairo_t *cr)
{
    /* antialiasing would leave visible seams between neighbouring cells */
    cairo_set_antialias(cr, CAIRO_ANTIALIAS_NONE);
    for (int64_t r = 0; r < panel->rows; r++) {
        for (int64_t c = 0; c < panel->cols; c++) {
            double value = (double)panel->values[r * panel->cols + c];
            attn__set_colour(
                cr, !isfinite(value)
                        ? attn__absent
                        : attn__colour_of(l->scale.colours, (value - l->scale.low) / (l->scale.high - l->scale.low)));
            /* cells are a little larger than their distance, because viewers that smooth edges would show white lines
             * between cells */
            cairo_rectangle(cr, x + (double)c * cell, y + (double)r * cell, cell + 0.15, cell + 0.15);
            cairo_fill(cr);
        }
    }
    cairo_set_antialias(cr, CAIRO_ANTIALIAS_DEFAULT);
    attn__set_colour(cr, attn__grey);
    cairo_set_line_width(cr, 0.6);
    cairo_rectangle(cr, x, y, cell * (double)panel->cols, cell * (double)panel->rows);
    cairo_stroke(cr);
}

static void draw_row_labels(const attn_panel_row *row, const laid_row *laid, const attn_panel *panel, double x,
                            double y, cairo_t *cr)
{
    attn__set_colour(cr, attn__ink);
    attn__font(cr, LABEL, false);
    for (int64_t r = 0; row->row_labels && r < panel->rows; r++)
        attn__text_fitted(cr, x - 4, y + ((double)r + 0.5) * laid->cell + LABEL * 0.36, row->row_labels[r],
                          LONGEST_LABEL, ATTN_RIGHT, 0);
    if (!row->row_labels)
        attn__positions_draw(cr, 0, panel->rows, laid->cell, x, y, true);
    const attn__text_style style = row_style(laid);
    attn__set_colour(cr, attn__grey);
    attn__text_lines(cr, laid->x + NAME, y + laid->height / 2, row_name(row), &style, true);
}

static void draw_col_labels(const attn_panel_row *row, const laid_row *laid, const attn_panel *panel, double x,
                            double y, cairo_t *cr)
{
    double bottom = y + (double)panel->rows * laid->cell;
    attn__set_colour(cr, attn__ink);
    attn__font(cr, LABEL, false);
    for (int64_t c = 0; row->col_labels && c < panel->cols; c++)
        attn__text_fitted(cr, x + ((double)c + 0.5) * laid->cell + LABEL * 0.36, bottom + 4, row->col_labels[c],
                          LONGEST_LABEL, ATTN_RIGHT, -M_PI / 2);
    if (!row->col_labels)
        attn__positions_draw(cr, 0, panel->cols, laid->cell, x, bottom, false);
    const attn__text_style style = col_style(laid);
    attn__set_colour(cr, attn__grey);
    attn__text_lines(cr, x + (double)panel->cols * laid->cell / 2, bottom + laid->labels + NAME + 2, col_name(row),
                     &style, true);
}

static void draw_panel_title(const laid_row *laid, const attn_panel *panel, double x, double top, cairo_t *cr)
{
    const attn__text_style style = panel_style(laid);
    double lines = attn__text_lines(cr, 0, 0, panel->title, &style, false);
    attn__set_colour(cr, attn__ink);
    attn__text_lines(cr, x + laid->cell * (double)panel->cols / 2, top - 4 - (lines - 1) * attn__leading(LABEL),
                     panel->title, &style, true);
}

static void draw_row(const layout *l, const attn_panel_row *row, const laid_row *laid, cairo_t *cr)
{
    const attn__text_style style = title_style(l);
    attn__set_colour(cr, attn__ink);
    attn__text_lines(cr, laid->x, laid->y + TITLE, row->title, &style, true);
    for (int64_t i = 0; i < row->n; i++) {
        const attn_panel *panel = &row->panels[i];
        int64_t column = i % l->per_line, line = i / l->per_line;
        double width = laid->cell * (double)panel->cols;
        double x = laid->x + laid->left + (double)column * (laid->width + GAP) + (laid->width - width) / 2;
        double top = laid->y + laid->title + (double)line * line_height(laid) + laid->above;
        draw_panel_title(laid, panel, x, top, cr);
        draw_cells(l, panel, laid->cell, x, top, cr);
        draw_col_labels(row, laid, panel, x, top, cr);
        if (column == 0)
            draw_row_labels(row, laid, panel, x, top, cr);
    }
}

static void draw_page(void *user, cairo_t *cr)
{
    const layout *l = user;
    const attn__text_style style = head_style(l);
    attn__set_colour(cr, attn__ink);
    attn__text_lines(cr, MARGIN, MARGIN + HEAD, l->maps->title, &style, true);
    for (int64_t i = 0; i < l->maps->n; i++)
        draw_row(l, &l->maps->rows[i], &l->rows[i], cr);
    attn__scale_draw(cr, &l->scale, l->scale_x, l->scale_y, l->scale_height);
}

/* If the caller gave no range, it is computed from the values. */
static void find_scale(layout *l)
{
    const attn_heatmaps *maps = l->maps;
    l->scale.colours = maps->colours;
    if (maps->high > maps->low) {
        l->scale.low = maps->low, l->scale.high = maps->high;
        return;
    }
    double least = 0, most = 0;
    for (int64_t i = 0; i < maps->n; i++) {
        for (int64_t p = 0; p < maps->rows[i].n; p++) {
            const attn_panel *panel = &maps->rows[i].panels[p];
            for (int64_t j = 0; j < panel->rows * panel->cols; j++) {
                double value = isfinite(panel->values[j]) ? (double)panel->values[j] : 0;
                least = fmin(least, value), most = fmax(most, value);
            }
        }
    }
    if (maps->colours == ATTN_COLOURS_DIVERGING)
        most = fmax(most, -least), least = -most;
    l->scale.low = least, l->scale.high = most > least ? most : least + 1;
}

attn_status attn_heatmaps_render(attn_bytes *picture, attn_context *context, const attn_heatmaps *heatmaps,
                                 attn_plot_format format)
{
    ATTN__CALL(context);
    *picture = (attn_bytes){0};
    if (ATTN__CHECK_RESERVED(context, heatmaps, attn_heatmaps) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    attn_status status = attn__heatmaps_check(context, heatmaps);
    if (status != ATTN_OK)
        return status;
    if (format == ATTN_PLOT_HTML)
        return attn__heatmaps_page(picture, context, heatmaps);
    layout l = {.maps = heatmaps, .per_line = heatmaps->per_line > 0 ? heatmaps->per_line : 8};
    find_scale(&l);
    l.rows = attn__alloc_zero(context, attn__size_mul((size_t)heatmaps->n, sizeof *l.rows));
    if (!l.rows)
        return ATTN_ERROR_MEMORY;
    cairo_t *measuring = attn__measuring();
    measure(&l, measuring);
    cairo_destroy(measuring);
    status = attn__canvas_render(picture, context, format, l.width, l.height, draw_page, &l);
    attn__free(context, l.rows);
    return status;
}
