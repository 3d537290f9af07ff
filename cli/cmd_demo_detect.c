/* SPDX-License-Identifier: MIT
 *
 * attn demo detect: writes a data set of drawn shapes. Detectors can be trained and evaluated on it without a download.
 */
#include "commands.h"

#include "apps/detector/boxes_files.h"

static const cli_option options[] = {
    CLI_INT("images", 'n', "2000", 1, 1e6, "images to learn from"),
    CLI_INT("valid", 0, "200", 1, 1e6, "images to judge by"),
};

static const char *const usage[] = {"DIR [-n N] [--valid N]", NULL};

static const char description[] =
    "Draws coloured shapes of several sizes (circle, square, triangle, star, ring, cross) over each other on "
    "textured ground, 1 to 6 in an image of 64 to 128 pixels a side. DIR/train and DIR/valid get the images as PNGs "
    "and annotations.json in COCO's form. A box bounds the visible pixels of a shape, of which at least half are "
    "visible. The same seed gives the same images on every machine.";

static const char *const examples[] = {"attn demo detect shapes", "attn demo detect shapes -n 8 --valid 2 --seed 7",
                                       NULL};

/* Number of the first image of the validation folder. All training images have lower numbers. */
static const uint64_t valid_begins = 1u << 31;

static int write_folder(const cli_call *cli, const char *name, uint64_t first, int64_t n)
{
    char *folder = attn__join(cli->context, cli->words[0], name);
    if (!folder)
        return cli_failed(cli, NULL);
    int code = CLI_OK;
    if (attn_file_exists(folder))
        code = cli_fail(CLI_BAD, "%s exists already: choose another directory", folder);
    else if (attn__shapes_write(cli->context, folder, (uint64_t)cli_int(cli, "seed"), first, n) != ATTN_OK)
        code = cli_failed(cli, NULL);
    attn__free(cli->context, folder);
    return code;
}

static int run(cli_call *cli)
{
    int64_t train = cli_int(cli, "images"), valid = cli_int(cli, "valid");
    int code = write_folder(cli, "train", 0, train);
    if (code == CLI_OK)
        code = write_folder(cli, "valid", valid_begins, valid);
    if (code != CLI_OK)
        return code;
    if (!cli->json) {
        char first[32], second[32];
        printf("%s images in %s/train, %s in %s/valid\n", cli_count(train, first), cli->words[0],
               cli_count(valid, second), cli->words[0]);
        return CLI_OK;
    }
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "directory", cli->words[0]);
    attn_json_int(&json, "train", train);
    attn_json_int(&json, "valid", valid);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

const cli_command cli_demo_detect = {
    "demo detect",
    "draw shapes with their boxes, as data for a detector",
    usage,
    description,
    CLI_OPTIONS(options),
    NULL,
    examples,
    1,
    1,
    run,
};
