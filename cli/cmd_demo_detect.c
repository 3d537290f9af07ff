/* SPDX-License-Identifier: MIT
 *
 * attn demo detect: writes a data set of drawn shapes, and a detector that is trained on such shapes. So a user can find
 * objects, and train and evaluate detectors, without a download.
 */
#include "commands.h"
#include "picture.h"

#include "apps/detector/boxes_files.h"

/* The files of the detector, which are in data/shapes. The build converts them to arrays (cmake/embed.cmake). */
extern const unsigned char attn__shapes_config[], attn__shapes_weights[];
extern const size_t attn__shapes_config_size, attn__shapes_weights_size;

static const cli_option options[] = {
    CLI_INT("images", 'n', "2000", 1, 1e6, "images to learn from"),
    CLI_INT("valid", 0, "200", 1, 1e6, "images to judge by"),
};

static const char *const usage[] = {"DIR [-n N] [--valid N]", NULL};

static const char description[] =
    "Draws coloured shapes of several sizes (circle, square, triangle, star, ring, cross) over each other on "
    "textured ground, 1 to 6 in an image of 64 to 128 pixels a side. DIR/train and DIR/valid get the images as PNGs "
    "and annotations.json in COCO's form. A box bounds the visible pixels of a shape, of which at least half are "
    "visible. The same seed gives the same images on every machine.\n"
    "\n"
    "DIR/model gets a small detector of these shapes, which attn contains. It was trained on 24,000 other images of the "
    "same kind. At the end attn prints commands that find shapes with it, train it further, and evaluate the result.";

static const char *const examples[] = {"attn demo detect shapes", "attn demo detect shapes -n 8 --valid 2 --seed 7",
                                       NULL};

/* Number of the first image of the validation folder. All training images have lower numbers. */
static const uint64_t valid_begins = 1u << 31;

/* Refuses a directory that has one of the folders already. Called before anything is written. */
static int check_folders(const cli_call *cli)
{
    static const char *const names[] = {"train", "valid", "model"};
    int code = CLI_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names && code == CLI_OK; i++) {
        char *folder = attn__join(cli->context, cli->words[0], names[i]);
        if (!folder)
            return cli_failed(cli, NULL);
        if (attn_file_exists(folder))
            code = cli_fail(CLI_BAD, "%s exists already: choose another directory", folder);
        attn__free(cli->context, folder);
    }
    return code;
}

static attn_status write_file(const cli_call *cli, const char *folder, const char *name, const void *data, size_t size)
{
    char *path = attn__join(cli->context, folder, name);
    attn_status status = path ? attn_file_write(cli->context, path, data, size) : ATTN_ERROR_MEMORY;
    attn__free(cli->context, path);
    return status;
}

static int write_model(const cli_call *cli)
{
    char *folder = attn__join(cli->context, cli->words[0], "model");
    attn_status status = folder ? attn_directory_create(cli->context, folder) : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK)
        status = write_file(cli, folder, "model.safetensors", attn__shapes_weights, attn__shapes_weights_size);
    if (status == ATTN_OK)
        status = write_file(cli, folder, "config.json", attn__shapes_config, attn__shapes_config_size);
    attn__free(cli->context, folder);
    return status == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
}

static int write_images(const cli_call *cli, const char *name, uint64_t first, int64_t n)
{
    char *folder = attn__join(cli->context, cli->words[0], name);
    attn_status status =
        folder ? attn__shapes_write(cli->context, folder, (uint64_t)cli_int(cli, "seed"), first, n) : ATTN_ERROR_MEMORY;
    attn__free(cli->context, folder);
    return status == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
}

/* The training has the settings of data/shapes, but a lower rate: the default settings lower the AP at first.
 * Evaluation needs --data in attn detect, because the ids of the images are not the numbers in the files' names. */
static void print_next(const cli_call *cli)
{
    const char *self = cli_self(), *directory = cli->words[0];
    cli_print("\nTry next:\n"
              "  %s detect %s/valid --model %s/model%s\n"
              "  %s train detect --data %s/train --valid-data %s/valid --from %s/model --out detector --dropout 0 "
              "--crop=false --rate 0.00003 --epochs 2\n"
              "  %s detect %s/valid --model detector --coco results.json --data %s/valid\n"
              "  %s eval --coco results.json --data %s/valid\n",
              self, directory, directory, cli_draws_pictures(cli) ? " -o found" : "", self, directory, directory,
              directory, self, directory, directory, self, directory);
}

static int run(cli_call *cli)
{
    const char *directory = cli->words[0];
    int64_t train = cli_int(cli, "images"), valid = cli_int(cli, "valid");
    int code = check_folders(cli);
    if (code == CLI_OK)
        code = write_model(cli);
    if (code == CLI_OK)
        code = write_images(cli, "train", 0, train);
    if (code == CLI_OK)
        code = write_images(cli, "valid", valid_begins, valid);
    if (code != CLI_OK)
        return code;
    if (!cli->json) {
        char first[32], second[32];
        cli_print("%s images in %s/train, %s in %s/valid\nThe trained detector is in %s/model\n",
                  cli_count(train, first), directory, cli_count(valid, second), directory, directory);
        print_next(cli);
        return CLI_OK;
    }
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "directory", directory);
    attn_json_int(&json, "train", train);
    attn_json_int(&json, "valid", valid);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

const cli_command cli_demo_detect = {
    "demo detect",
    "draw shapes with their boxes, and give a detector that finds them",
    usage,
    description,
    CLI_OPTIONS(options),
    NULL,
    examples,
    1,
    1,
    run,
};
