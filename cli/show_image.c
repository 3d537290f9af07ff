/* SPDX-License-Identifier: MIT
 * attn show: what a classifier looks at. */
#include "foreign.h"
#include "show.h"

#include "attn/classify.h"

/* "3,4", or nothing. */
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
    attn_status status = attn_image_read(&image, cli->context, cli->words[1], NULL);
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

int cli_show_image(cli_call *cli)
{
    attn_classifier_view view = {.layer = cli_int(cli, "layer"), .head = cli_int(cli, "head")};
    attn_classifier *classifier;
    attn_plot_format format;
    if (!read_query(cli_text(cli, "query"), &view))
        return cli_fail(CLI_BAD, "--query: \"%.60s\" is no row and column, such as 3,4", cli_text(cli, "query"));
    if (attn_plot_format_from_path(&format, cli->context, cli_text(cli, "out")) != ATTN_OK ||
        attn_classifier_load(&classifier, cli->context, cli->words[0], cli_names(cli)) != ATTN_OK)
        return cli_failed(cli, NULL);
    int code = show(cli, classifier, &view, format);
    attn_classifier_destroy(classifier);
    return code;
}
