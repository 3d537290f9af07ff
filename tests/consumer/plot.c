/* SPDX-License-Identifier: MIT
 *
 * plot.h: a heatmap as PNG, SVG and HTML, and a curve. */
#include <attn/plot.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_context *context;
#define CHECK(condition)                                                                                               \
    ((condition) ? (void)0 : (printf("line %d: %s: %s\n", __LINE__, #condition, attn_context_error(context)), exit(1)))

int main(void)
{
    CHECK(attn_context_create(&context, NULL) == ATTN_OK);
    /* Two heads of attention of three words to four. */
    float head[2][3][4];
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 4; j++)
                head[h][i][j] = i + h == j ? 0.7f : 0.1f;
    static const char *const queries[] = {"the", "red", "cat"}, *const keys[] = {"die", "rote", "Katze", "."};
    attn_panel panels[] = {{.title = "head 1", .rows = 3, .cols = 4, .values = &head[0][0][0]},
                           {.title = "head 2", .rows = 3, .cols = 4, .values = &head[1][0][0]}};
    attn_panel_row row = {.title = "layer 1", .row_labels = queries, .col_labels = keys, .n = 2, .panels = panels};
    attn_heatmaps heatmaps = {.title = "Cross-attention", .n = 1, .rows = &row};
    attn_bytes png = {0}, svg = {0}, page = {0}, curve = {0};
    if (attn_heatmaps_render(&png, context, &heatmaps, ATTN_PLOT_PNG) == ATTN_ERROR_UNSUPPORTED) {
        printf("plot: %s\n", attn_context_error(context));
        attn_context_destroy(context);
        return 0;
    }
    CHECK(png.size > 24 && memcmp(png.data, "\x89PNG\r\n\x1a\n", 8) == 0);
    CHECK(attn_heatmaps_render(&svg, context, &heatmaps, ATTN_PLOT_SVG) == ATTN_OK);
    CHECK(strlen(svg.data) == svg.size); /* text can be used as a string */
    CHECK(strstr(svg.data, "<svg"));
    CHECK(attn_heatmaps_render(&page, context, &heatmaps, ATTN_PLOT_HTML) == ATTN_OK);
    CHECK(strstr(page.data, "<html") && strstr(page.data, "Katze"));

    const double step[] = {1, 2, 3, 4}, loss[] = {2, 1, 0.5, 0.25};
    attn_curve line = {.name = "training", .n = 4, .x = step, .y = loss};
    attn_curves curves = {.title = "Loss", .x_name = "step", .n = 1, .curves = &line, .log_y = true};
    attn_plot_format format;
    CHECK(attn_plot_format_from_path(&format, context, "loss.PDF") == ATTN_OK && format == ATTN_PLOT_PDF);
    CHECK(attn_curves_render(&curve, context, &curves, format) == ATTN_OK);
    CHECK(memcmp(curve.data, "%PDF-", 5) == 0);

    /* An unknown ending, a curve as a page, and nothing to draw are refused. */
    CHECK(attn_plot_format_from_path(&format, context, "loss.gif") == ATTN_ERROR_ARGUMENT);
    attn_bytes none = {0};
    CHECK(attn_curves_render(&none, context, &curves, ATTN_PLOT_HTML) == ATTN_ERROR_UNSUPPORTED);
    heatmaps.n = 0;
    CHECK(attn_heatmaps_render(&none, context, &heatmaps, ATTN_PLOT_PNG) == ATTN_ERROR_ARGUMENT && !none.data);
    printf("plot: %d bytes of PNG; %s\n", (int)png.size, attn_context_error(context));
    attn_bytes_free(context, &png);
    attn_bytes_free(context, &svg);
    attn_bytes_free(context, &page);
    attn_bytes_free(context, &curve);
    attn_context_destroy(context);
    return 0;
}
