/* SPDX-License-Identifier: MIT
 *
 * attn show: draws the attention of a classifier, a detector, or a generator of images.
 */
#include "classified.h"
#include "drawing.h"
#include "foreign.h"
#include "show.h"

#include "attn/classify.h"
#include "apps/detector/detector.h"
#include "apps/generator/generator.h"

/* Parses a position such as "3,4" or an empty text. */
static bool read_query(const char *text, attn_classifier_view *view)
{
    int row = 0, col = 0, end = 0;
    if (!text[0])
        return true;
    bool good = sscanf(text, "%9d,%9d%n", &row, &col, &end) == 2 && !text[end] && row > 0 && col > 0;
    view->query_row = row;
    view->query_col = col;
    return good;
}

static int print_guess(const cli_call *cli, const char *path, const char *class_name, double probability)
{
    attn_json json;
    if (!cli->json) {
        cli_print("%s %.4f\n%s\n", class_name, probability, path);
        return CLI_OK;
    }
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "image", cli->words[1]);
    attn_json_text(&json, "class", class_name);
    attn_json_real(&json, "probability", probability);
    attn_json_text(&json, "picture", path);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

static int show(const cli_call *cli, attn_classifier *classifier, const attn_classifier_view *view,
                attn_plot_format format)
{
    const char *path = cli_text(cli, "out");
    attn_bytes picture = {0};
    attn_image image = {0};
    attn_prediction guess = {0};
    attn_status status = cli_classified_read(cli, cli->words[1], &image);
    if (status == ATTN_OK)
        status = attn_classifier_render_attention(classifier, &image, view, format, &picture, &guess);
    if (status == ATTN_OK)
        status = attn_file_write(cli->context, path, picture.data, picture.size);
    int code = status == ATTN_OK
                   ? print_guess(cli, path, attn_classifier_class_name(classifier, guess.label), guess.probability)
                   : cli_failed(cli, NULL);
    attn_image_free(cli->context, &image);
    attn_bytes_free(cli->context, &picture);
    return code;
}

static int read_view(const cli_call *cli, attn_classifier_view *view, attn_plot_format *format)
{
    *view = (attn_classifier_view){.layer = cli_int(cli, "layer"), .head = cli_int(cli, "head")};
    if (!read_query(cli_text(cli, "query"), view))
        return cli_fail(CLI_BAD, "--query: \"%.60s\" is not a row and a column, such as 3,4", cli_text(cli, "query"));
    return attn_plot_format_from_path(format, cli->context, cli_text(cli, "out")) == ATTN_OK ? CLI_OK
                                                                                             : cli_failed(cli, NULL);
}

int cli_show_image(cli_call *cli)
{
    attn_classifier_view view;
    attn_classifier *classifier;
    attn_plot_format format = ATTN_PLOT_PNG;
    int code = read_view(cli, &view, &format);
    if (code != CLI_OK)
        return code;
    if (attn_classifier_load(&classifier, cli->context, cli->words[0], cli_names(cli)) != ATTN_OK)
        return cli_failed(cli, NULL);
    code = show(cli, classifier, &view, format);
    attn_classifier_destroy(classifier);
    return code;
}

/* ------------------------------------------------------------------------------- a model that draws images */

static int print_prediction(const cli_call *cli, const char *path, const attn_generator_prediction *found)
{
    attn_json json;
    if (!cli->json) {
        cli_print("level %d has probability %.4f; the likeliest, %d, has %.4f\n%s\n", found->level, found->probability,
                  found->likeliest, found->of_likeliest, path);
        return CLI_OK;
    }
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "image", cli->words[1]);
    attn_json_int(&json, "row", found->row);
    attn_json_int(&json, "column", found->col);
    attn_json_int(&json, "channel", found->channel);
    attn_json_int(&json, "frame", found->frame);
    attn_json_int(&json, "level", found->level);
    attn_json_real(&json, "probability", found->probability);
    attn_json_int(&json, "likeliest", found->likeliest);
    attn_json_real(&json, "likeliest_probability", found->of_likeliest);
    attn_json_text(&json, "picture", path);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

static int show_prediction(const cli_call *cli, attn_generator *generator, const attn_generator_view *view,
                           attn_plot_format format)
{
    const char *path = cli_text(cli, "out");
    attn_bytes picture = {0};
    attn__clip given;
    attn_generator_prediction found;
    int code = cli_drawing_read(cli, generator, cli->words[1], &given);
    attn_status status = ATTN_OK;
    if (code == CLI_OK)
        status = attn_generator_render_attention(generator, given.frames, given.n, view, format, &picture, &found);
    if (code == CLI_OK && status == ATTN_OK)
        status = attn_file_write(cli->context, path, picture.data, picture.size);
    if (code == CLI_OK)
        code = status == ATTN_OK ? print_prediction(cli, path, &found) : cli_failed(cli, NULL);
    attn__clip_free(&given);
    attn_bytes_free(cli->context, &picture);
    return code;
}

int cli_show_generator(cli_call *cli)
{
    attn_generator_view view = {.channel = cli_int(cli, "channel"), .frame = cli_int(cli, "frame")};
    attn_generator *generator;
    attn_plot_format format = ATTN_PLOT_PNG;
    int code = read_view(cli, &view.view, &format);
    if (code != CLI_OK)
        return code;
    if (attn_generator_load(&generator, cli->context, cli->words[0], cli_names(cli)) != ATTN_OK)
        return cli_failed(cli, NULL);
    code = show_prediction(cli, generator, &view, format);
    attn_generator_destroy(generator);
    return code;
}

/* -------------------------------------------------------------------------------------------- a detector */

static int show_objects(const cli_call *cli, attn_detector *detector, const attn_detector_view *view,
                        attn_plot_format format)
{
    const char *path = cli_text(cli, "out");
    attn_bytes picture = {0};
    attn_image image = {0};
    attn_status status = attn_image_read(&image, cli->context, cli->words[1], NULL);
    if (status == ATTN_OK)
        status = attn_detector_render_attention(detector, &image, view, format, &picture);
    if (status == ATTN_OK)
        status = attn_file_write(cli->context, path, picture.data, picture.size);
    attn_image_free(cli->context, &image);
    attn_bytes_free(cli->context, &picture);
    if (status != ATTN_OK)
        return cli_failed(cli, NULL);
    if (!cli->json) {
        cli_print("%s\n", path);
        return CLI_OK;
    }
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "image", cli->words[1]);
    attn_json_text(&json, "picture", path);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

int cli_show_detector(cli_call *cli)
{
    attn_detector_view view = {.threshold = cli_real(cli, "threshold")};
    attn_detector *detector;
    attn_plot_format format = ATTN_PLOT_PNG;
    int code = read_view(cli, &view.view, &format);
    if (code != CLI_OK)
        return code;
    const attn_detector_options how = {.names = cli_names(cli), .size = cli_int(cli, "size")};
    if (attn_detector_load(&detector, cli->context, cli->words[0], &how) != ATTN_OK)
        return cli_failed(cli, NULL);
    code = show_objects(cli, detector, &view, format);
    attn_detector_destroy(detector);
    return code;
}
