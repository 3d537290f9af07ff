/* SPDX-License-Identifier: MIT
 *
 * Defines the drawing functions for builds without cairo (-DATTN_WITH_PICTURES=OFF). They refuse all formats except
 * HTML, which needs no cairo. */
#include "attn/plot.h"

#include "base/context.h"
#include "base/path.h"
#include "plot/boxes.h"
#include "plot/heatmaps.h"

#include <string.h>
#include <strings.h>

static attn_status refuse(attn_bytes *picture, attn_context *context)
{
    ATTN__CALL(context);
    *picture = (attn_bytes){0};
    return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                      "this build of attn cannot draw pictures: it was made without cairo");
}

attn_status attn_plot_format_from_path(attn_plot_format *format, attn_context *context, const char *path)
{
    ATTN__CALL(context);
    if (strcasecmp(attn__path_extension(path), ".html") != 0)
        return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                          "%s: this build of attn can write pages (.html) only: it was made without cairo", path);
    *format = ATTN_PLOT_HTML;
    return ATTN_OK;
}

attn_status attn_heatmaps_render(attn_bytes *picture, attn_context *context, const attn_heatmaps *heatmaps,
                                 attn_plot_format format)
{
    ATTN__CALL(context);
    if (format != ATTN_PLOT_HTML)
        return refuse(picture, context);
    *picture = (attn_bytes){0};
    attn_status status = attn__heatmaps_check(context, heatmaps);
    return status == ATTN_OK ? attn__heatmaps_page(picture, context, heatmaps) : status;
}

attn_status attn_contact_map_render(attn_bytes *picture, attn_context *context, const attn_contact_map *map,
                                    attn_plot_format format)
{
    (void)map;
    (void)format;
    return refuse(picture, context);
}

attn_status attn_overlays_render(attn_bytes *picture, attn_context *context, const attn_overlays *overlays,
                                 attn_plot_format format)
{
    (void)overlays;
    (void)format;
    return refuse(picture, context);
}

attn_status attn_curves_render(attn_bytes *picture, attn_context *context, const attn_curves *curves,
                               attn_plot_format format)
{
    (void)curves;
    (void)format;
    return refuse(picture, context);
}

attn_status attn__boxes_render(attn_bytes *picture, attn_context *context, const attn__drawn_boxes *boxes,
                               attn_plot_format format)
{
    (void)boxes;
    (void)format;
    return refuse(picture, context);
}
