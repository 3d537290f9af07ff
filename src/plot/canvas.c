/* SPDX-License-Identifier: MIT */
#include "plot/canvas.h"

#include "base/context.h"
#include "base/path.h"
#include "base/real.h"
#include "plot/sink.h"

#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { PIXELS_PER_POINT = 2 }; /* in a PNG, a point is two pixels wide, so that small labels are sharp */

const attn__colour attn__ink = {0.13, 0.13, 0.15}, attn__grey = {0.45, 0.45, 0.48}, attn__absent = {0.90, 0.90, 0.91};

/* Maps a value from 0 to 1 to a colour, by linear interpolation between six colours. The lightness decreases evenly. */
static attn__colour heat(double share)
{
    static const attn__colour stops[] = {
        {1.00, 0.98, 0.95}, {0.99, 0.83, 0.68}, {0.96, 0.60, 0.42},
        {0.84, 0.33, 0.26}, {0.62, 0.12, 0.20}, {0.33, 0.02, 0.14},
    };
    enum { LAST = sizeof stops / sizeof *stops - 1 };
    double at = share * LAST;
    int i = (int)fmin(floor(at), LAST - 1);
    double t = at - i;
    attn__colour a = stops[i], b = stops[i + 1];
    return (attn__colour){a.r + t * (b.r - a.r), a.g + t * (b.g - a.g), a.b + t * (b.b - a.b)};
}

static double srgb(double linear)
{
    double c = fmin(fmax(linear, 0), 1);
    return c <= 0.0031308 ? 12.92 * c : 1.055 * pow(c, 1 / 2.4) - 0.055;
}

/* Converts a colour of the space Oklab, given as lightness, chroma and hue, to sRGB. The formula is from B. Ottosson,
 * "A perceptual color space for image processing", 2020. Its author put the formula into the public domain. */
static attn__colour from_oklab(double lightness, double chroma, double hue)
{
    double a = chroma * cos(hue), b = chroma * sin(hue);
    double l = pow(lightness + 0.3963377774 * a + 0.2158037573 * b, 3);
    double m = pow(lightness - 0.1055613458 * a - 0.0638541728 * b, 3);
    double s = pow(lightness - 0.0894841775 * a - 1.2914855480 * b, 3);
    return (attn__colour){srgb(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
                          srgb(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
                          srgb(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s)};
}

/* Maps a value from 0 to 1 to a colour between white and a dark colour of one hue. The lightness decreases evenly. The
 * chroma is largest for medium lightness, because screens can show the highest chroma there. */
static attn__colour ramp(double share, double hue, double chroma)
{
    return from_oklab(0.985 - 0.655 * share, chroma * pow(share, 0.8) * (1 - 0.5 * share * share), hue);
}

static attn__colour blues(double share)
{
    return ramp(share, 4.45, 0.20);
}

static attn__colour reds(double share)
{
    return ramp(share, 0.45, 0.28);
}

attn__colour attn__colour_of(attn_colours map, double share)
{
    share = fmin(fmax(share, 0), 1);
    switch (map) {
    case ATTN_COLOURS_BLUES:
        return blues(share);
    case ATTN_COLOURS_REDS:
        return reds(share);
    case ATTN_COLOURS_DIVERGING:
        return share < 0.5 ? blues(1 - 2 * share) : reds(2 * share - 1);
    case ATTN_COLOURS_HEAT:
        break;
    }
    return heat(share);
}

attn_status attn_plot_format_from_path(attn_plot_format *format, attn_context *context, const char *path)
{
    ATTN__CALL(context);
    static const struct {
        const char *ending;
        attn_plot_format format;
    } endings[] = {
        {".png", ATTN_PLOT_PNG}, {".svg", ATTN_PLOT_SVG}, {".pdf", ATTN_PLOT_PDF}, {".html", ATTN_PLOT_HTML}};
    const char *extension = attn__path_extension(path);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        if (strcasecmp(extension, endings[i].ending) == 0) {
            *format = endings[i].format;
            return ATTN_OK;
        }
    }
    return attn__fail(context, ATTN_ERROR_ARGUMENT, "%s: a picture's name must end in .png, .svg, .pdf or .html", path);
}

/* -------------------------------------------------------------------------------------------- rendering */

static cairo_status_t append(void *user, const unsigned char *data, unsigned int length)
{
    attn__sink *sink = user;
    attn__sink_put(sink, data, length);
    return sink->status == ATTN_OK ? CAIRO_STATUS_SUCCESS : CAIRO_STATUS_WRITE_ERROR;
}

static cairo_surface_t *make_surface(attn__sink *out, attn_plot_format format, double width, double height)
{
    switch (format) {
    case ATTN_PLOT_HTML: /* cannot occur: the caller has refused HTML */
    case ATTN_PLOT_SVG:
        return cairo_svg_surface_create_for_stream(append, out, width, height);
    case ATTN_PLOT_PDF:
        return cairo_pdf_surface_create_for_stream(append, out, width, height);
    case ATTN_PLOT_PNG:
        break;
    }
    return cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)ceil(width * PIXELS_PER_POINT),
                                      (int)ceil(height * PIXELS_PER_POINT));
}

static cairo_status_t draw_on(cairo_surface_t *surface, attn__sink *out, attn_plot_format format,
                              void (*draw)(void *user, cairo_t *cr), void *user)
{
    /* an error of the surface is also an error of cr, and is checked below */
    cairo_t *cr = cairo_create(surface);
    attn__font_metrics(cr);
    if (format == ATTN_PLOT_PNG)
        cairo_scale(cr, PIXELS_PER_POINT, PIXELS_PER_POINT);
    cairo_set_source_rgb(cr, 1, 1, 1);
    cairo_paint(cr);
    draw(user, cr);
    cairo_status_t status = cairo_status(cr);
    cairo_destroy(cr);
    if (status == CAIRO_STATUS_SUCCESS && format == ATTN_PLOT_PNG)
        status = cairo_surface_write_to_png_stream(surface, append, out);
    /* must be called before the bytes are used, because cairo writes SVG and PDF only when the surface is finished */
    cairo_surface_finish(surface);
    return status != CAIRO_STATUS_SUCCESS ? status : cairo_surface_status(surface);
}

attn_status attn__canvas_render(attn_bytes *picture, attn_context *context, attn_plot_format format, double width,
                                double height, void (*draw)(void *user, cairo_t *cr), void *user)
{
    *picture = (attn_bytes){0};
    attn_status known = attn__check_choice(context, "the format of a picture", (int)format, ATTN_PLOT_HTML);
    if (known != ATTN_OK)
        return known;
    if (format == ATTN_PLOT_HTML)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "this picture cannot be written as a page (.html); use .png, .svg or .pdf");
    attn__sink out = {.context = context, .picture = picture};
    cairo_surface_t *surface = make_surface(&out, format, width, height);
    cairo_status_t status = draw_on(surface, &out, format, draw, user);
    cairo_surface_destroy(surface);
    /* cairo does not report every failure of `append` */
    if (status == CAIRO_STATUS_SUCCESS && out.status == ATTN_OK)
        return ATTN_OK;
    attn_bytes_free(context, picture);
    bool callers = status == CAIRO_STATUS_INVALID_STRING || status == CAIRO_STATUS_INVALID_SIZE;
    return attn__fail(context, callers ? ATTN_ERROR_ARGUMENT : ATTN_ERROR_MEMORY,
                      "a picture of %.0f x %.0f points cannot be drawn: %s", width, height,
                      status == CAIRO_STATUS_SUCCESS ? "out of memory" : cairo_status_to_string(status));
}

void attn__set_colour(cairo_t *cr, attn__colour colour)
{
    cairo_set_source_rgb(cr, colour.r, colour.g, colour.b);
}

/* ------------------------------------------------------------------------------------------------ ticks */

int attn__ticks(double low, double high, double ticks[12])
{
    double span = high > low ? high - low : 1;
    double power = pow(10, floor(log10(span / 5))), rough = span / 5 / power;
    double step = power * (rough < 1.5 ? 1 : rough < 3.5 ? 2 : rough < 7.5 ? 5 : 10);
    int n = 0;
    for (double i = ceil(low / step - 1e-9); i * step <= high + 1e-9 * span && n < 12; i++)
        ticks[n++] = i * step;
    return n;
}

void attn__tick_text(double value, double step, char *text, size_t size)
{
    int digits = step > 0 ? (int)fmax(0, ceil(-log10(step) - 1e-9)) : 0;
    double shown = fabs(value) < step * 1e-6 ? 0 : value;
    if (fabs(shown) < 1e7 && digits <= 6)
        snprintf(text, size, "%.*f", digits, shown);
    else
        snprintf(text, size, "%.*g", (int)fmin(15, fmax(1, ceil(log10(fabs(shown) / step)) + 1)), shown);
    attn__text_points(text);
}
