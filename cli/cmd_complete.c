/* SPDX-License-Identifier: MIT
 * attn complete: the rest of a half-given image. */
#include "commands.h"
#include "drawing.h"
#include "foreign.h"
#include "apps/generator/generator.h"

static const cli_option options[] = {
    CLI_TEXT("out", 'o', "FILE", NULL, "the whole image: .png, .ppm or .pgm"),
    CLI_INT("rows", 'r', "-1", -1, 4096, "rows at the top that stay, counted in the model's rows; -1: half of them"),
    CLI_NAMES_LONG,
    CLI_DRAWING_OPTIONS,
    CLI_INT("zoom", 0, "0", 0, 64,
            "how much larger each pixel is drawn; 0: an image of about 96 pixels; 1: as the model has it"),
};

static const char *const usage[] = {"DIR IMAGE -o FILE [--rows N] [--temperature T] [--seed S]", NULL};

static const char description[] =
    "Brings IMAGE (PNG, JPEG, WebP, BMP or PNM, of any size) to the size of the model that attn train images made, keeps its first "
    "rows, and draws those below from the model's distribution given them. The pixels that IMAGE has there do not matter.";

static const char *const examples[] = {"attn complete clothes half.png -o whole.png",
                                       "attn complete clothes half.png -o whole.png --rows 4 --seed 3 --zoom 8", NULL};

static int tell(const cli_call *cli, const char *path, int64_t rows, int64_t height, double seconds)
{
    if (!cli->json) {
        cli_print("%lld rows kept, %lld drawn in %.2f s: %s\n", (long long)rows, (long long)(height - rows), seconds,
                  path);
        return CLI_OK;
    }
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "file", path);
    attn_json_int(&json, "rows_kept", rows);
    attn_json_int(&json, "rows_drawn", height - rows);
    attn_json_int(&json, "seed", cli_int(cli, "seed"));
    attn_json_real(&json, "temperature", cli_real(cli, "temperature"));
    attn_json_real(&json, "seconds", seconds);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

static int complete(const cli_call *cli, attn_generator *generator, const attn_image *given)
{
    attn_image whole = {0};
    const char *path = cli_text(cli, "out");
    int64_t height = attn_generator_shape(generator).height, rows = cli_int(cli, "rows");
    cli_drawing drawing;
    attn_generator_options how = cli_drawing_begin(&drawing, cli, generator);
    rows = rows < 0 ? height / 2 : rows;
    attn_status status = attn_generator_complete(generator, given, rows, &how, &whole);
    double seconds = cli_drawing_end(&drawing);
    if (status != ATTN_OK)
        return cli_failed(cli, NULL);
    int code = cli_drawing_write(cli, &whole, 1, 1, 0, cli_drawing_zoom(cli, height), path);
    attn_image_free(cli->context, &whole);
    return code == CLI_OK ? tell(cli, path, rows, height, seconds) : code;
}

static int run(cli_call *cli)
{
    attn_generator *generator;
    attn_image given = {0};
    attn_context_set_inference(cli->context, true);
    if (attn_generator_load(&generator, cli->context, cli->words[0], cli_names(cli)) != ATTN_OK)
        return cli_failed(cli, NULL);
    int code = attn_image_read(&given, cli->context, cli->words[1], NULL) == ATTN_OK ? complete(cli, generator, &given)
                                                                                     : cli_failed(cli, NULL);
    attn_image_free(cli->context, &given);
    attn_generator_destroy(generator);
    return code;
}

const cli_command cli_complete = {
    "complete", "draw the rest of an image", usage, description, CLI_OPTIONS(options), NULL, examples, 2, 2, run,
};
