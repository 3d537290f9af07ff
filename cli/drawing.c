/* SPDX-License-Identifier: MIT
 *
 * Implements options, progress and the output file for the commands that draw images.
 */
#include "drawing.h"
#include "apps/generator/generator.h"
#include "base/context.h"
#include "io/images/image.h"
#include "io/file.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
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

int cli_drawing_read(const cli_call *cli, const attn_generator *generator, const char *path, attn__clip *clip)
{
    bool videos = attn_generator_shape(generator).frames > 1;
    attn_status status;
    *clip = (attn__clip){.context = cli->context};
    if (videos && (attn__is_array(path) || attn__is_directory(path)))
        status = attn__clip_read(clip, cli->context, path, cli_int(cli, "clip") - 1);
    else
        status = attn__clip_of_picture(clip, cli->context, path);
    return status == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
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

/* Makes one sheet for each frame number. It shows this frame of all videos. */
static attn_status animate(const cli_call *cli, attn_image *sheets, const attn_image *images, int64_t n, int64_t frames,
                           int64_t columns, int64_t gap, int64_t zoom)
{
    attn_status status = ATTN_OK;
    attn_image *same = calloc((size_t)n, sizeof *same);
    if (!same)
        return attn__fail_memory(cli->context, (size_t)n * sizeof *same);
    for (int64_t f = 0; f < frames && status == ATTN_OK; f++) {
        for (int64_t i = 0; i < n; i++)
            same[i] = images[i * frames + f];
        status = attn_image_sheet(&sheets[f], cli->context, same, n, columns, gap, zoom);
    }
    free(same);
    if (status == ATTN_OK)
        status = attn__webp_write(cli->context, sheets, frames, 1000 / (int)cli_int(cli, "fps"), cli_text(cli, "out"));
    return status;
}

static attn_status write_animation(const cli_call *cli, const attn_image *images, int64_t n, int64_t frames,
                                   int64_t columns, int64_t gap, int64_t zoom)
{
    attn_image *sheets = calloc((size_t)frames, sizeof *sheets);
    attn_status status = sheets ? animate(cli, sheets, images, n, frames, columns, gap, zoom)
                                : attn__fail_memory(cli->context, (size_t)frames * sizeof *sheets);
    for (int64_t f = 0; sheets && f < frames; f++)
        attn_image_free(cli->context, &sheets[f]);
    free(sheets);
    return status;
}

int cli_drawing_write(const cli_call *cli, const attn_image *images, int64_t n, int64_t frames, int64_t columns,
                      int64_t gap, int64_t zoom)
{
    const char *path = cli_text(cli, "out"), *ending = attn__path_extension(path);
    attn_image sheet = {0};
    if (strcasecmp(ending, ".webp") == 0)
        return write_animation(cli, images, n, frames, columns, gap, zoom) == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
    columns = columns == 0 && frames > 1 ? frames : columns;
    attn_status status = attn_image_sheet(&sheet, cli->context, images, n * frames, columns, gap, zoom);
    if (status == ATTN_OK)
        status = attn_image_write(cli->context, &sheet, path);
    attn_image_free(cli->context, &sheet);
    return status == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
}
