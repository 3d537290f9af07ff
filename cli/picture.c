/* SPDX-License-Identifier: MIT */
#include "picture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *const cli_colour_names[] = {"heat", "blues", "reds", "diverging", NULL};

attn_colours cli_colours(const cli_call *cli)
{
    const char *name = cli_text(cli, "colours");
    int i = 0;
    while (cli_colour_names[i + 1] && strcmp(cli_colour_names[i], name) != 0)
        i++;
    return (attn_colours)i;
}

int cli_range(const cli_call *cli, double *low, double *high)
{
    const char *text = cli_text(cli, "range"), *ending = strrchr(cli_text(cli, "out"), '.');
    char *end;
    *low = *high = 0;
    if (!text[0])
        return CLI_OK;
    if (ending && strcasecmp(ending, ".html") == 0)
        return cli_fail(
            CLI_BAD,
            "--range applies to .png, .svg and .pdf; a page (.html) has its own scales, for each head or for all");
    *low = strtod(text, &end);
    if (end != text && *end == ',') {
        const char *second = end + 1;
        *high = strtod(second, &end);
        if (end != second && !*end && isfinite(*low) && isfinite(*high) && *low < *high)
            return CLI_OK;
    }
    return cli_fail(CLI_BAD, "--range: \"%.60s\" is not LOW,HIGH with LOW below HIGH, such as 0,1", text);
}

bool cli_draws_pictures(const cli_call *cli)
{
    attn_plot_format format;
    bool draws = attn_plot_format_from_path(&format, cli->context, "picture.png") == ATTN_OK;
    cli_forgive(cli);
    return draws;
}

static int tell(const cli_call *cli, const char *path)
{
    if (!cli->json) {
        cli_print("%s\n", path);
        return CLI_OK;
    }
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "picture", path);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

int cli_picture_write(const cli_call *cli, attn_heatmaps *heatmaps, const attn_curves *curves)
{
    const char *path = cli_text(cli, "out");
    attn_plot_format format;
    attn_bytes picture = {0};
    if (heatmaps) {
        heatmaps->colours = cli_colours(cli);
        int code = cli_range(cli, &heatmaps->low, &heatmaps->high);
        if (code != CLI_OK)
            return code;
    }
    attn_status status = attn_plot_format_from_path(&format, cli->context, path);
    if (status == ATTN_OK)
        status = heatmaps ? attn_heatmaps_render(&picture, cli->context, heatmaps, format)
                          : attn_curves_render(&picture, cli->context, curves, format);
    if (status == ATTN_OK)
        status = attn_file_write(cli->context, path, picture.data, picture.size);
    attn_bytes_free(cli->context, &picture);
    return status == ATTN_OK ? tell(cli, path) : cli_failed(cli, NULL);
}
