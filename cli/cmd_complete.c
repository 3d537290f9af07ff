/* SPDX-License-Identifier: MIT
 * attn complete: generates the rest of an image or video whose first part is given. */
#include "commands.h"
#include "drawing.h"
#include "foreign.h"
#include "apps/generator/generator.h"

#include <stdlib.h>

static const cli_option options[] = {
    CLI_WRITES(TEXT, "out", 'o', "FILE", NULL,
               "the whole image or the frames: .png, .ppm or .pgm; .webp: an animation of a video"),
    CLI_INT("rows", 'r', "-1", -1, 4096,
            "rows to keep at the top, counted in the model's rows; of a video: in the last frame kept; -1: half of the "
            "rows, of a video all"),
    CLI_INT(
        "frames", 0, "0", 0, 4096,
        "of a video: frames to keep at the beginning; 0: half of the model's frames, or all of VIDEO if it has fewer"),
    CLI_CLIP_OPTION,
    CLI_NAMES_LONG,
    CLI_DRAWING_OPTIONS,
    CLI_INT("zoom", 0, "0", 0, 64,
            "how many times larger each pixel is drawn; 0: an image of about 96 pixels; 1: the model's own size"),
};

static const char *const usage[] = {"DIR IMAGE -o FILE [--rows N] [--temperature T] [--seed S]",
                                    "DIR VIDEO -o FILE [--frames N] [--temperature T] [--seed S]", NULL};

static const char description[] =
    "Brings IMAGE (PNG, JPEG, WebP, BMP or PNM, of any size) to the size of the model that attn train images made, "
    "keeps its first rows, and draws those below from the model's distribution given them. The pixels that IMAGE has "
    "there do not matter.\n"
    "\n"
    "VIDEO is a folder of frames, a .npy of (frames, channels, height, width) or of several videos (--clip N takes "
    "one), or one picture, the first frame. Its first frames are kept, and those after them are drawn given them.";

static const char *const examples[] = {"attn complete clothes half.png -o whole.png",
                                       "attn complete clothes half.png -o whole.png --rows 4 --seed 3 --zoom 8",
                                       "attn complete moving clip -o clip.webp --frames 2", NULL};

typedef struct kept_part {
    int64_t frames, rows;
} kept_part;

static int tell(const cli_call *cli, const attn_generator *generator, kept_part kept, double seconds)
{
    const char *path = cli_text(cli, "out");
    attn_image_shape shape = attn_generator_shape(generator);
    if (!cli->json) {
        if (shape.frames > 1)
            cli_print("%lld frame%s kept, %lld drawn in %.2f s: %s\n", (long long)kept.frames,
                      kept.frames > 1 ? "s" : "", (long long)(shape.frames - kept.frames), seconds, path);
        else
            cli_print("%lld rows kept, %lld drawn in %.2f s: %s\n", (long long)kept.rows,
                      (long long)(shape.height - kept.rows), seconds, path);
        return CLI_OK;
    }
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "file", path);
    attn_json_int(&json, "rows_kept", kept.rows);
    attn_json_int(&json, "rows_drawn", shape.height - kept.rows);
    if (shape.frames > 1) {
        attn_json_int(&json, "frames_kept", kept.frames);
        attn_json_int(&json, "frames_drawn", shape.frames - kept.frames);
    }
    attn_json_int(&json, "seed", cli_int(cli, "seed"));
    attn_json_real(&json, "temperature", cli_real(cli, "temperature"));
    attn_json_real(&json, "seconds", seconds);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

/* Sets `kept` to the rows and frames of a clip of n frames that stay. A picture has n = 1. */
static int choose(const cli_call *cli, attn_image_shape shape, int64_t n, kept_part *kept)
{
    int64_t rows = cli_int(cli, "rows"), frames = cli_int(cli, "frames"), half = shape.frames / 2;
    if (shape.frames == 1 && cli_given(cli, "frames"))
        return cli_fail(CLI_BAD, "--frames applies to models of videos, but this model draws pictures");
    if (frames > n)
        return cli_fail(CLI_BAD, "--frames %lld: %s has only %lld frames", (long long)frames, cli->words[1],
                        (long long)n);
    kept->frames = frames ? frames : n < half ? n : half > 0 ? half : 1;
    kept->rows = rows >= 0 ? rows : shape.frames > 1 ? shape.height : shape.height / 2;
    return CLI_OK;
}

static int complete(const cli_call *cli, attn_generator *generator, const attn__clip *given, attn_image *whole)
{
    kept_part kept = {0};
    attn_image_shape shape = attn_generator_shape(generator);
    int code = choose(cli, shape, given->n, &kept);
    if (code != CLI_OK)
        return code;
    cli_drawing drawing;
    attn_generator_options how = cli_drawing_begin(&drawing, cli, generator);
    how.frames = kept.frames;
    attn_status status = attn_generator_complete(generator, given->frames, kept.rows, &how, whole);
    double seconds = cli_drawing_end(&drawing);
    if (status != ATTN_OK)
        return cli_failed(cli, NULL);
    code = cli_drawing_write(cli, whole, 1, shape.frames, 0, shape.frames > 1 ? 4 : 0,
                             cli_drawing_zoom(cli, shape.height));
    for (int64_t f = 0; f < shape.frames; f++)
        attn_image_free(cli->context, &whole[f]);
    return code == CLI_OK ? tell(cli, generator, kept, seconds) : code;
}

static int run(cli_call *cli)
{
    attn_generator *generator;
    attn__clip given;
    attn_context_set_inference(cli->context, true);
    if (attn_generator_load(&generator, cli->context, cli->words[0], cli_names(cli)) != ATTN_OK)
        return cli_failed(cli, NULL);
    attn_image *whole = calloc((size_t)attn_generator_shape(generator).frames, sizeof *whole);
    int code = cli_drawing_read(cli, generator, cli->words[1], &given);
    if (code == CLI_OK)
        code = whole ? complete(cli, generator, &given, whole) : cli_fail(CLI_FAILED, "out of memory");
    attn__clip_free(&given);
    free(whole);
    attn_generator_destroy(generator);
    return code;
}

const cli_command cli_complete = {
    "complete", "draw the rest of an image", usage, description, CLI_OPTIONS(options), NULL, examples, 2, 2, run,
};
