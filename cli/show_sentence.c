/* SPDX-License-Identifier: MIT
 *
 * attn show: draws the attention of a translator.
 */
#include "foreign.h"
#include "sentences.h"
#include "picture.h"
#include "shortlist.h"
#include "show.h"

#include <stdlib.h>
#include <string.h>

/* Prints an error and returns 0 for an unknown name. */
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
            cli_fail(CLI_BAD, "--kinds: \"%.*s\" is not one of encoder, decoder, cross",
                     (int)(length < 60 ? length : 60), at);
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
        cli_print("%s\n%s\n", translation, path);
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

static int draw(cli_call *cli, attn_translator *translator, const char *sentence, const attn_translator_view *view,
                attn_plot_format format)
{
    const char *path = cli_text(cli, "out");
    attn_bytes picture = {0};
    attn_bytes translation = {0};
    attn_status status = attn_translator_render_attention(translator, sentence, view, format, &picture, &translation);
    if (status == ATTN_OK)
        status = attn_file_write(cli->context, path, picture.data, picture.size);
    int code = status == ATTN_OK ? print_result(cli, path, translation.data) : cli_failed(cli, NULL);
    attn_bytes_free(cli->context, &picture);
    attn_bytes_free(cli->context, &translation);
    return code;
}

/* Translates with the same search as attn translate. */
static int show(cli_call *cli, attn_translator *translator, attn_translator_view *view, attn_plot_format format)
{
    attn_translator_search own = attn_translator_own_search(translator);
    attn_translator_options how = {.beam = cli_beam(cli, &own), .length_penalty = cli_real(cli, "length_penalty")};
    attn_lexicon *lexicon = NULL;
    char *sentence = strdup(cli->words[1]);
    char *tab = sentence && (cli_flag(cli, "prefix") || own.prefixed) ? strchr(sentence, '\t') : NULL;
    const char *prefix = tab ? tab + 1 : NULL;
    int code = sentence ? cli_shortlist(cli, translator, &how, &lexicon) : cli_fail(CLI_FAILED, "out of memory");
    if (tab) {
        *tab = '\0';
        how.prefixes = &prefix;
    }
    view->search = &how;
    if (code == CLI_OK)
        code = draw(cli, translator, sentence, view, format);
    view->search = NULL;
    attn_lexicon_destroy(lexicon);
    free(sentence);
    return code;
}

int cli_show_sentence(cli_call *cli)
{
    attn_translator *translator;
    attn_plot_format format;
    int code = cli_check_sentence(cli, cli->words[1], strlen(cli->words[1]), "sentence", 1);
    const char *list = cli_text(cli, "kinds");
    unsigned kinds = code == CLI_OK ? kinds_of(list && *list ? list : "encoder,decoder,cross") : 0;
    if (kinds == 0)
        return CLI_BAD;
    attn_translator_view view = {.kinds = kinds, .words = cli_flag(cli, "words"), .colours = cli_colours(cli)};
    if (cli_range(cli, &view.low, &view.high) != CLI_OK)
        return CLI_BAD;
    if (attn_plot_format_from_path(&format, cli->context, cli_text(cli, "out")) != ATTN_OK ||
        attn_translator_load(&translator, cli->context, cli->words[0], cli_names(cli)) != ATTN_OK)
        return cli_failed(cli, NULL);
    code = show(cli, translator, &view, format);
    attn_translator_destroy(translator);
    return code;
}
