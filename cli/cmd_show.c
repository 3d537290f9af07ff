/* SPDX-License-Identifier: MIT
 * attn show: a picture of what a translator or a classifier attends to. */
#include "commands.h"
#include "sentences.h"

#include "attn/classify.h"

#include <string.h>

static const cli_option options[] = {
    CLI_TEXT("out", 'o', "FILE", "attention.png", "the picture: its ending says which kind; .png, .svg, .pdf, or .html for a page to explore"),
    CLI_TEXT("kinds", 'k', "LIST", "encoder,decoder,cross", "which attentions of a translator, with commas between"),
    CLI_INT("layer", 0, "0", 0, 1000, "of a classifier: which layer or block, from 1; 0: all (vit: their rollout)"),
    CLI_INT("head", 0, "0", 0, 1000, "of a classifier: which head of the layer, from 1; 0: all"),
    CLI_TEXT("query", 0, "ROW,COL", "",
             "of a classifier: the patch that asks, from 1,1; default: the class token, or the middle"),
};

static const char *const usage[] = {"DIR SENTENCE [-o FILE]", "DIR IMAGE [--layer N] [--head N] [--query ROW,COL] [-o FILE]", NULL};

static const char description[] =
    "Translates SENTENCE and draws where each word looked: a row of panels for each layer, a panel for each head, all "
    "in "
    "one colour scale. \"encoder\" is how the words of SENTENCE look at each other, \"decoder\" how those of the "
    "translation do, \"cross\" how the translation looks at SENTENCE. Models with a single attention have \"cross\" "
    "only.\n"
    "\n"
    "Of a classifier: draws IMAGE in grey and over it how much the model looked at each part. vit: attention rollout over "
    "all layers (Abnar and Zuidema 2020), or the heads of one layer; nonlocal: what one position looks at in each block; "
    "axial: its row and its column in each block.";

static const char *const examples[] = {
    "attn show out/demo \"Is the door open?\"",
    "attn show en-fr \"I'm home.\" --kinds cross -o home.svg",
    "attn show en-fr \"I'm home.\" -o home.html",
    "attn show clothes shirt.png --layer 2 --query 3,4 -o shirt.svg",
    NULL,
};

/* 0: a name that is none of them, which has been said. */
static unsigned kinds_of(const char *list)
{
    static const struct kind {
        const char *name;
        unsigned bit;
    } kinds[] = {{"encoder", ATTN_SHOW_ENCODER}, {"decoder", ATTN_SHOW_DECODER}, {"cross", ATTN_SHOW_CROSS}};
    unsigned bits = 0;
    for (const char *at = list;; at++) {
        size_t length = strcspn(at, ","), i = 0;
        while (i < 3 && (strlen(kinds[i].name) != length || strncmp(kinds[i].name, at, length) != 0))
            i++;
        if (i == 3) {
            cli_fail(CLI_BAD, "--kinds: \"%.*s\" is none of encoder, decoder, cross", (int)(length < 60 ? length : 60),
                     at);
            return 0;
        }
        bits |= kinds[i].bit;
        at += length;
        if (!*at)
            return bits;
    }
}

static int print_result(const cli_call *cli, const char *path, const char *translation)
{
    if (!cli->json) {
        printf("%s\n%s\n", translation, path);
        return CLI_OK;
    }
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "source", cli->words[1]);
    attn_json_text(&json, "translation", translation);
    attn_json_text(&json, "picture", path);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

static int show(cli_call *cli, attn_translator *translator, unsigned kinds, attn_picture_format format)
{
    const char *path = cli_text(cli, "out");
    attn_picture picture = {0};
    attn_bytes translation = {0};
    attn_status status = attn_translator_show(translator, cli->words[1], kinds, format, &picture, &translation);
    if (status == ATTN_OK)
        status = attn_file_write(cli->context, path, picture.data, picture.size);
    int code = status == ATTN_OK ? print_result(cli, path, translation.data) : cli_failed(cli, NULL);
    attn_picture_free(cli->context, &picture);
    attn_bytes_free(cli->context, &translation);
    return code;
}

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
        printf("%s %.4f\n%s\n", class_name, probability, path);
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

static int show_image(const cli_call *cli, attn_classifier *classifier, const attn_classifier_view *view,
                      attn_picture_format format)
{
    const char *path = cli_text(cli, "out");
    attn_picture picture = {0};
    attn_image image = {0};
    attn_guess guess = {0};
    attn_status status = attn_image_read(&image, cli->context, cli->words[1], NULL);
    if (status == ATTN_OK)
        status = attn_classifier_show(classifier, &image, view, format, &picture, &guess);
    if (status == ATTN_OK)
        status = attn_file_write(cli->context, path, picture.data, picture.size);
    int code = status == ATTN_OK
                   ? print_guess(cli, path, attn_classifier_class(classifier, guess.label), guess.probability)
                   : cli_failed(cli, NULL);
    attn_image_free(cli->context, &image);
    attn_picture_free(cli->context, &picture);
    return code;
}

static int run_classifier(const cli_call *cli)
{
    attn_classifier_view view = {.layer = cli_int(cli, "layer"), .head = cli_int(cli, "head")};
    attn_classifier *classifier;
    attn_picture_format format;
    if (!read_query(cli_text(cli, "query"), &view))
        return cli_fail(CLI_BAD, "--query: \"%.60s\" is no row and column, such as 3,4", cli_text(cli, "query"));
    if (attn_picture_format_of(&format, cli->context, cli_text(cli, "out")) != ATTN_OK ||
        attn_classifier_load(&classifier, cli->context, cli->words[0]) != ATTN_OK)
        return cli_failed(cli, NULL);
    int code = show_image(cli, classifier, &view, format);
    attn_classifier_destroy(classifier);
    return code;
}

static int run_translator(cli_call *cli)
{
    attn_translator *translator;
    attn_picture_format format;
    int code = cli_check_sentence(cli, cli->words[1], strlen(cli->words[1]), "sentence", 1);
    unsigned kinds = code == CLI_OK ? kinds_of(cli_text(cli, "kinds")) : 0;
    if (kinds == 0)
        return CLI_BAD;
    if (attn_picture_format_of(&format, cli->context, cli_text(cli, "out")) != ATTN_OK ||
        attn_translator_load(&translator, cli->context, cli->words[0]) != ATTN_OK)
        return cli_failed(cli, NULL);
    code = show(cli, translator, kinds, format);
    attn_translator_destroy(translator);
    return code;
}

static int run(cli_call *cli)
{
    return attn_classifier_is_one(cli->context, cli->words[0]) ? run_classifier(cli) : run_translator(cli);
}

const cli_command cli_show = {
    "show", "draw what a translator or a classifier attends to", usage, description, CLI_OPTIONS(options), NULL, examples, 2, 2, run,
};
