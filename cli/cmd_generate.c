/* SPDX-License-Identifier: MIT
 * attn generate: draws new images on one sheet. */
#include "commands.h"
#include "drawing.h"
#include "foreign.h"
#include "apps/generator/generator.h"

#include <stdlib.h>

static const cli_option options[] = {
    CLI_WRITES(TEXT, "out", 'o', "FILE", NULL, "the sheet: .png, .ppm or .pgm; .webp: an animation of videos"),
    CLI_INT("number", 'n', "16", 1, 10000, "how many images or videos to draw"),
    CLI_NAMES_LONG,
    CLI_DRAWING_OPTIONS,
    CLI_INT("columns", 0, "0", 0, 10000,
            "images in a row; 0: about as many as there are rows; on a sheet of videos, the frames of a video"),
    CLI_INT("gap", 0, "4", 0, 1000, "white pixels around each image"),
    CLI_INT("zoom", 0, "0", 0, 64, "how many times larger each pixel is drawn; 0: images of about 96 pixels"),
};

static const char *const usage[] = {"DIR -o FILE [-n N] [--temperature T] [--seed S]", NULL};

static const char description[] =
    "Draws images from a model that attn train images made, one number after the other: every pixel from the model's "
    "distribution given all pixels above it and to its left. Image i does not depend on the number of images, except "
    "for rounding. A model of videos draws frame after frame, each given all before it. On a sheet a video is a row; "
    ".webp is an animation, in which all videos run side by side.";

static const char *const examples[] = {"attn generate clothes -n 16 -o sheet.png",
                                       "attn generate clothes -n 64 -o calm.png --temperature 0.8 --seed 7",
                                       "attn generate moving -n 9 -o moving.webp --fps 4", NULL};

static int tell(const cli_call *cli, const char *path, int64_t n, int64_t frames, double seconds)
{
    if (!cli->json) {
        char count[32];
        printf("%s %s in %.2f s (%.1f ms each) are in %s\n", cli_count(n, count), frames > 1 ? "videos" : "images",
               seconds, 1000 * seconds / (double)n, path);
        return CLI_OK;
    }
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "file", path);
    attn_json_int(&json, "images", n);
    attn_json_int(&json, "frames", frames);
    attn_json_int(&json, "seed", cli_int(cli, "seed"));
    attn_json_real(&json, "temperature", cli_real(cli, "temperature"));
    attn_json_real(&json, "seconds", seconds);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

static int draw(const cli_call *cli, attn_generator *generator, attn_image *images, int64_t n)
{
    const char *path = cli_text(cli, "out");
    cli_drawing drawing;
    attn_generator_options how = cli_drawing_begin(&drawing, cli, generator);
    attn_status status = attn_generator_draw(generator, n, &how, images);
    double seconds = cli_drawing_end(&drawing);
    if (status != ATTN_OK)
        return cli_failed(cli, NULL);
    attn_image_shape shape = attn_generator_shape(generator);
    int code = cli_drawing_write(cli, images, n, shape.frames, cli_int(cli, "columns"), cli_int(cli, "gap"),
                                 cli_drawing_zoom(cli, shape.height));
    for (int64_t i = 0; i < n * shape.frames; i++)
        attn_image_free(cli->context, &images[i]);
    return code == CLI_OK ? tell(cli, path, n, shape.frames, seconds) : code;
}

static int run(cli_call *cli)
{
    int64_t n = cli_int(cli, "number");
    attn_generator *generator;
    attn_context_set_inference(cli->context, true);
    if (attn_generator_load(&generator, cli->context, cli->words[0], cli_names(cli)) != ATTN_OK)
        return cli_failed(cli, NULL);
    attn_image *images = calloc((size_t)(n * attn_generator_shape(generator).frames), sizeof *images);
    int code = images ? draw(cli, generator, images, n) : cli_fail(CLI_FAILED, "out of memory");
    free(images);
    attn_generator_destroy(generator);
    return code;
}

const cli_command cli_generate = {
    "generate", "draw new images", usage, description, CLI_OPTIONS(options), NULL, examples, 1, 1, run,
};
