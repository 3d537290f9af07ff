/* SPDX-License-Identifier: MIT
 *
 * Draws heatmaps on a grid. All sizes are computed before anything is drawn, because the margins depend on the labels.
 * The page looks like this:
 *
 *     title
 *     row title
 *     | queries' labels | panel | gap | panel | ...    | scale
 *     |                 | keys' labels, turned upright |
 *
 * If the page would be too tall, the rows of panels are arranged in several columns. */
#include "attn/plot.h"

#include "base/context.h"
#include "plot/canvas.h"
#include "plot/heatmaps.h"

#include <math.h>
#include <string.h>

static const double MARGIN = 14, GAP = 12, LABEL = 8.5, NAME = 9, TITLE = 10, HEAD = 13, SCALE_WIDTH = 12, FOLD = 26,
                    /* FOLD: gap between columns of rows; TALLEST: maximum ratio of height to width of a page with
                     * one column */
    TALLEST = 1.25;
enum { LONGEST_LABEL = 96 };

typedef struct laid_row {
    double cell;  /* side of the square that shows one weight, in points */
    double left;  /* width of the area left of a panel, for the queries' labels and the axis name */
    double below; /* height of the area below a panel, for the keys' labels and the axis name */
    double width, height;
    int64_t lines; /* number of lines that the row's panels fill */
    double x, y;
} laid_row;

typedef struct layout {
    const attn_heatmaps *maps;
    laid_row *rows;
    int64_t per_line;
    double low, high;
    double width, height;
    double scale_x;
} layout;

static double widest(cairo_t *cr, const char *const *labels, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; labels && i < n; i++)
        most = fmax(most, attn__text_width(cr, labels[i]));
    return fmin(most, LONGEST_LABEL);
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
    int64_t rows = 0, cols = 0;
    for (int64_t i = 0; i < row->n; i++) {
        rows = row->panels[i].rows > rows ? row->panels[i].rows : rows;
        cols = row->panels[i].cols > cols ? row->panels[i].cols : cols;
    }
    attn__font(cr, LABEL, false);
    laid->cell = cell_size(row, rows, cols);
    laid->width = fmax(laid->cell * (double)cols, 40);
    laid->height = laid->cell * (double)rows;
    laid->left = widest(cr, row->row_labels, rows) + NAME + 10;
    laid->below = widest(cr, row->col_labels, cols) + NAME + 12;
    laid->lines = (row->n + l->per_line - 1) / l->per_line;
}

static double row_title_height(const attn_panel_row *row)
{
    return row->title ? TITLE + 10 : 0;
}

static double line_height(const laid_row *laid)
{
    return TITLE + 4 + laid->height + laid->below + GAP;
}

static double row_height(const layout *l, int64_t i)
{
    return row_title_height(&l->maps->rows[i]) + (double)l->rows[i].lines * line_height(&l->rows[i]);
}

static double row_width(const layout *l, int64_t i, cairo_t *cr)
{
    const attn_panel_row *row = &l->maps->rows[i];
    int64_t side_by_side = row->n < l->per_line ? row->n : l->per_line;
    double width = l->rows[i].left + (double)side_by_side * (l->rows[i].width + GAP);
    attn__font(cr, TITLE, true);
    return row->title ? fmax(width, attn__text_width(cr, row->title)) : width;
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

static void measure(layout *l, cairo_t *cr)
{
    double top = MARGIN + (l->maps->title ? HEAD + 10 : 0), column_width = 0, bottom = top;
    for (int64_t i = 0; i < l->maps->n; i++) {
        measure_row(l, &l->maps->rows[i], &l->rows[i], cr);
        column_width = fmax(column_width, row_width(l, i, cr));
    }
    int64_t columns = fold(l, top, column_width, &bottom);
    double width = (double)columns * (column_width + FOLD) - FOLD;
    attn__font(cr, HEAD, true);
    if (l->maps->title)
        width = fmax(width, attn__text_width(cr, l->maps->title));
    l->scale_x = MARGIN + width + 6;
    l->width = l->scale_x + SCALE_WIDTH + 34 + MARGIN;
    l->height = fmax(bottom, 190) + MARGIN / 2;
}

/* --------------------------------------------------------------------------------------------- drawing */

static void draw_cells(const layout *l, const attn_panel *panel, double cell, double x, double y, cairo_t *cr)
{
    /* antialiasing would leave visible seams between neighbouring cells */
    cairo_set_antialias(cr, CAIRO_ANTIALIAS_NONE);
    for (int64_t r = 0; r < panel->rows; r++) {
        for (int64_t c = 0; c < panel->cols; c++) {
            double value = (double)panel->values[r * panel->cols + c];
            attn__set_colour(cr, !isfinite(value)
                                     ? attn__absent
                                     : attn__colour_of(l->maps->colours, (value - l->low) / (l->high - l->low)));
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

/* Draws a label. If it is too long, it is cut after a whole character and ends in an ellipsis. */
static void draw_label(cairo_t *cr, double x, double y, const char *text, double angle)
{
    char cut[256];
    size_t length = strlen(text);
    if (attn__text_width(cr, text) > LONGEST_LABEL || length >= sizeof cut) {
        length = length < sizeof cut - 4 ? length : sizeof cut - 4;
        do {
            while (length > 0 && ((unsigned char)text[length] & 0xC0) == 0x80)
                length--;
            memcpy(cut, text, length); /* NOLINT: the next line adds the terminating zero */
            memcpy(cut + length, "\xE2\x80\xA6", 4);
        } while (attn__text_width(cr, cut) > LONGEST_LABEL && length-- > 1);
        text = cut;
    }
    attn__text(cr, x, y, text, ATTN_RIGHT, angle);
}

static void draw_row_labels(const attn_panel_row *row, const laid_row *laid, const attn_panel *panel, double x,
                            double y, cairo_t *cr)
{
    attn__set_colour(cr, attn__ink);
    attn__font(cr, LABEL, false);
    for (int64_t r = 0; row->row_labels && r < panel->rows; r++)
        draw_label(cr, x - 4, y + ((double)r + 0.5) * laid->cell + LABEL * 0.36, row->row_labels[r], 0);
    attn__set_colour(cr, attn__grey);
    attn__font(cr, NAME, false);
    attn__text(cr, x - laid->left + NAME, y + (double)panel->rows * laid->cell / 2,
               row->row_name ? row->row_name : "Queries", ATTN_CENTRE, -M_PI / 2);
}

static void draw_col_labels(const attn_panel_row *row, const laid_row *laid, const attn_panel *panel, double x,
                            double y, cairo_t *cr)
{
    double bottom = y + (double)panel->rows * laid->cell;
    attn__set_colour(cr, attn__ink);
    attn__font(cr, LABEL, false);
    for (int64_t c = 0; row->col_labels && c < panel->cols; c++)
        draw_label(cr, x + ((double)c + 0.5) * laid->cell + LABEL * 0.36, bottom + 4, row->col_labels[c], -M_PI / 2);
    attn__set_colour(cr, attn__grey);
    attn__font(cr, NAME, false);
    attn__text(cr, x + (double)panel->cols * laid->cell / 2, bottom + laid->below - 4,
               row->col_name ? row->col_name : "Keys", ATTN_CENTRE, 0);
}

static void draw_row(const layout *l, const attn_panel_row *row, const laid_row *laid, cairo_t *cr)
{
    attn__set_colour(cr, attn__ink);
    attn__font(cr, TITLE, true);
    if (row->title)
        attn__text(cr, laid->x, laid->y + TITLE, row->title, ATTN_LEFT, 0);
    double y = laid->y + row_title_height(row);
    for (int64_t i = 0; i < row->n; i++) {
        const attn_panel *panel = &row->panels[i];
        int64_t column = i % l->per_line, line = i / l->per_line;
        double x = laid->x + laid->left + (double)column * (laid->width + GAP);
        double top = y + (double)line * line_height(laid) + TITLE + 4;
        attn__set_colour(cr, attn__ink);
        attn__font(cr, LABEL, false);
        if (panel->title)
            attn__text(cr, x + laid->cell * (double)panel->cols / 2, top - 4, panel->title, ATTN_CENTRE, 0);
        draw_cells(l, panel, laid->cell, x, top, cr);
        draw_col_labels(row, laid, panel, x, top, cr);
        if (column == 0)
            draw_row_labels(row, laid, panel, x, top, cr);
    }
}

static void draw_scale_ticks(const layout *l, double y, double height, cairo_t *cr)
{
    double ticks[12];
    int n = attn__ticks(l->low, l->high, ticks);
    attn__set_colour(cr, attn__ink);
    attn__font(cr, LABEL, false);
    for (int i = 0; i < n; i++) {
        char text[32];
        attn__tick_text(ticks[i], n > 1 ? ticks[1] - ticks[0] : 1, text, sizeof text);
        double at = y + height * (1 - (ticks[i] - l->low) / (l->high - l->low));
        attn__text(cr, l->scale_x + SCALE_WIDTH + 4, at + LABEL * 0.36, text, ATTN_LEFT, 0);
    }
}

static void draw_scale(const layout *l, double y, cairo_t *cr)
{
    enum { STEPS = 128 };
    double height = fmin(220, l->height - y - 2 * MARGIN);
    for (int i = 0; i < STEPS; i++) {
        attn__set_colour(cr, attn__colour_of(l->maps->colours, 1 - (i + 0.5) / STEPS));
        cairo_rectangle(cr, l->scale_x, y + height * i / STEPS, SCALE_WIDTH, height / STEPS + 0.3);
        cairo_fill(cr);
    }
    attn__set_colour(cr, attn__grey);
    cairo_set_line_width(cr, 0.6);
    cairo_rectangle(cr, l->scale_x, y, SCALE_WIDTH, height);
    cairo_stroke(cr);
    draw_scale_ticks(l, y, height, cr);
}

static void draw_page(void *user, cairo_t *cr)
{
    const layout *l = user;
    if (l->maps->title) {
        attn__set_colour(cr, attn__ink);
        attn__font(cr, HEAD, true);
        attn__text(cr, MARGIN, MARGIN + HEAD, l->maps->title, ATTN_LEFT, 0);
    }
    for (int64_t i = 0; i < l->maps->n; i++)
        draw_row(l, &l->maps->rows[i], &l->rows[i], cr);
    draw_scale(l, l->rows[0].y + row_title_height(&l->maps->rows[0]) + TITLE + 4, cr);
}

/* Sets the range of the colour scale. If the caller gave no range, it is computed from the values. */
static void find_scale(layout *l)
{
    const attn_heatmaps *maps = l->maps;
    if (maps->high > maps->low) {
        l->low = maps->low, l->high = maps->high;
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
    l->low = least, l->high = most > least ? most : least + 1;
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
