/* SPDX-License-Identifier: MIT */
#include "plot/boxes.h"

#include "base/context.h"
#include "base/real.h"
#include "plot/layout.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Minimum and maximum length of the picture's longer side, in points. A smaller picture is enlarged to LEAST, so that
 * labels have room. */
static const double LEAST = 240, MOST = 800;
static const double LINE = 1.6, TEXT = 8, PAD = 2, HIGH = 12; /* HIGH: height of a label, TEXT + 2 * PAD */
enum { LARGEST = 32767 }; /* maximum width and height of a picture in cairo, in pixels */

typedef struct page {
    const attn__drawn_boxes *boxes;
    cairo_surface_t *pixels;
    double scale, width, height;
} page;

/* Colours of the boxes. They are easy to tell apart, differ from most pictures, and are dark enough for white text. */
static const attn__colour colours[] = {
    {0.84, 0.15, 0.16}, {0.12, 0.40, 0.75}, {0.13, 0.53, 0.20}, {0.55, 0.25, 0.70}, {0.80, 0.38, 0.00},
    {0.00, 0.50, 0.52}, {0.78, 0.12, 0.50}, {0.42, 0.32, 0.16}, {0.25, 0.25, 0.62}, {0.40, 0.45, 0.00},
};

static attn__colour colour_of(const attn__drawn_box *box)
{
    enum { N = sizeof colours / sizeof *colours };
    return colours[(box->kind % N + N) % N];
}

static void fill_pixels(cairo_surface_t *surface, const attn__drawn_boxes *b)
{
    unsigned char *data = cairo_image_surface_get_data(surface);
    int stride = cairo_image_surface_get_stride(surface);
    cairo_surface_flush(surface);
    for (int64_t y = 0; y < b->height; y++) {
        for (int64_t x = 0; x < b->width; x++) {
            const unsigned char *p = b->pixels + (y * b->width + x) * b->channels;
            uint32_t r = p[0], g = p[b->channels == 3 ? 1 : 0], blue = p[b->channels == 3 ? 2 : 0];
            uint32_t value = r << 16 | g << 8 | blue;
            memcpy(data + y * stride + 4 * x, &value, sizeof value);
        }
    }
    cairo_surface_mark_dirty(surface);
}

static void draw_pixels(cairo_t *cr, const page *p)
{
    cairo_save(cr);
    cairo_scale(cr, p->scale, p->scale);
    cairo_set_source_surface(cr, p->pixels, 0, 0);
    cairo_pattern_set_filter(cairo_get_source(cr), p->scale > 1 ? CAIRO_FILTER_NEAREST : CAIRO_FILTER_GOOD);
    cairo_paint(cr);
    cairo_restore(cr);
}

static double within(double value, double most)
{
    return fmin(fmax(value, 0), most);
}

/* Draws a box's label above the box, or inside the box if there is no room above. If the label is wider than the
 * picture, the name is cut, and the score is drawn whole. */
static void draw_label(cairo_t *cr, const page *p, const attn__drawn_box *box, double left, double top)
{
    const char *name = box->label ? box->label : "";
    char score[32] = "";
    if (!isnan(box->score)) {
        snprintf(score, sizeof score, "%s%.2f", name[0] ? " " : "", box->score);
        attn__text_points(score);
    }
    if (!name[0] && !score[0])
        return;
    double number = attn__text_extent(cr, score, TEXT, false, INFINITY);
    double most = fmax(p->width - number - 2 * PAD, 0), named = attn__text_extent(cr, name, TEXT, false, most);
    double width = named + number + 2 * PAD;
    double x = within(left - LINE / 2, fmax(p->width - width, 0));
    double y = within(top >= HIGH ? top - HIGH : top, fmax(p->height - HIGH, 0));
    attn__set_colour(cr, colour_of(box));
    cairo_rectangle(cr, x, y, width, HIGH);
    cairo_fill(cr);
    cairo_set_source_rgb(cr, 1, 1, 1);
    if (name[0])
        attn__text_fitted(cr, x + PAD, y + HIGH - PAD - 1, name, named + 0.01, ATTN_LEFT, 0);
    attn__text(cr, x + PAD + named, y + HIGH - PAD - 1, score, ATTN_LEFT, 0);
}

static void draw_box(cairo_t *cr, const page *p, const attn__drawn_box *box)
{
    double left = within(box->left * p->scale, p->width), right = within(box->right * p->scale, p->width);
    double top = within(box->top * p->scale, p->height), bottom = within(box->bottom * p->scale, p->height);
    /* first draw a white rim, so that the line is visible on a background of the same colour */
    for (int i = 0; i < 2; i++) {
        cairo_set_line_width(cr, i ? LINE : LINE + 1.2);
        if (i)
            attn__set_colour(cr, colour_of(box));
        else
            cairo_set_source_rgba(cr, 1, 1, 1, 0.6);
        cairo_rectangle(cr, left, top, right - left, bottom - top);
        cairo_stroke(cr);
    }
    draw_label(cr, p, box, left, top);
}

static void draw(void *user, cairo_t *cr)
{
    const page *p = user;
    draw_pixels(cr, p);
    for (int64_t i = p->boxes->n; i-- > 0;)
        draw_box(cr, p, &p->boxes->items[i]);
}

attn_status attn__boxes_render(attn_bytes *picture, attn_context *context, const attn__drawn_boxes *boxes,
                               attn_plot_format format)
{
    *picture = (attn_bytes){0};
    if (boxes->width < 1 || boxes->height < 1 || boxes->width > LARGEST || boxes->height > LARGEST)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "a picture of %lld x %lld pixels cannot be drawn; sides must be 1 to %d",
                          (long long)boxes->width, (long long)boxes->height, (int)LARGEST);
    double longer = (double)(boxes->width > boxes->height ? boxes->width : boxes->height);
    page p = {.boxes = boxes, .scale = fmin(fmax(longer / 2, LEAST), MOST) / longer};
    p.width = p.scale * (double)boxes->width;
    p.height = p.scale * (double)boxes->height;
    p.pixels = cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)boxes->width, (int)boxes->height);
    attn_status status =
        cairo_surface_status(p.pixels) == CAIRO_STATUS_SUCCESS
            ? ATTN_OK
            : attn__fail(context, ATTN_ERROR_MEMORY, "a picture of %lld x %lld pixels cannot be drawn: %s",
                         (long long)boxes->width, (long long)boxes->height,
                         cairo_status_to_string(cairo_surface_status(p.pixels)));
    if (status == ATTN_OK) {
        fill_pixels(p.pixels, boxes);
        status = attn__canvas_render(picture, context, format, p.width, p.height, draw, &p);
    }
    cairo_surface_destroy(p.pixels);
    return status;
}
