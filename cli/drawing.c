/* SPDX-License-Identifier: MIT
 * Drawing images from the command: options, progress, the file. */
#include "drawing.h"
#include "apps/generator/generator.h"
#include "io/images/image.h"

#include <unistd.h>

static void show(void *user, int64_t done, int64_t total)
{
    cli_drawing *d = user;
    double at = cli_seconds();
    if (d->drawn && done < total && at - d->last < 0.1)
        return;
    double left = (at - d->start) / (double)done * (double)(total - done);
    fprintf(stderr, "\r\033[Krow %lld of %lld, %.0f s left", (long long)done, (long long)total, left);
    fflush(stderr);
    cli_watch_said();
    d->drawn = true;
    d->last = at;
}

attn_generator_options cli_drawing_begin(cli_drawing *drawing, const cli_call *cli, attn_generator *generator)
{
    generator->slow = cli_flag(cli, "slow");
    *drawing = (cli_drawing){.cli = cli, .terminal = !cli->quiet && isatty(STDERR_FILENO) != 0, .start = cli_seconds()};
    if (drawing->terminal)
        cli_watch_show(show, drawing);
    return (attn_generator_options){
        .seed = (uint64_t)cli_int(cli, "seed"),
        .temperature = cli_real(cli, "temperature"),
    };
}

double cli_drawing_end(cli_drawing *drawing)
{
    cli_watch_show(NULL, NULL);
    if (drawing->drawn)
        fputs("\r\033[K", stderr);
    drawing->drawn = false;
    return cli_seconds() - drawing->start;
}

int64_t cli_drawing_zoom(const cli_call *cli, int64_t height)
{
    int64_t zoom = cli_int(cli, "zoom");
    return zoom ? zoom : height < 96 ? 96 / height : 1;
}

int cli_drawing_write(const cli_call *cli, const attn_image *images, int64_t n, int64_t columns, int64_t gap,
                      int64_t zoom, const char *path)
{
    attn_image sheet = {0};
    attn_status status = attn_image_sheet(&sheet, cli->context, images, n, columns, gap, zoom);
    if (status == ATTN_OK)
        status = attn_image_write(cli->context, &sheet, path);
    attn_image_free(cli->context, &sheet);
    return status == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
}
