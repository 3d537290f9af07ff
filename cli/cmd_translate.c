/* SPDX-License-Identifier: MIT
 * attn translate: sentences from the command line or standard input, one translation a line. */
#include "commands.h"
#include "sentences.h"

#include <string.h>
#include <unistd.h>

static const cli_option options[] = {
    CLI_INT("beam", 'b', "1", 1, 64, "hypotheses kept while searching; 1 is greedy"),
    CLI_REAL("length_penalty", "0", 0, 10,
             "how much longer translations are favoured when searching: scores are divided by "
             "((5 + length) / 6) to this power"),
    CLI_INT("max_length", 0, "0", 0, 1 << 20,
            "most tokens of a translation, its end included; 0: as many as the model can"),
    CLI_FLAG("tokens", 0, "print the words as the model said them, with spaces between"),
};

static const char *const usage[] = {"DIR [SENTENCE...]", "DIR < FILE", NULL};

static const char description[] =
    "DIR is what attn train translate made. Each SENTENCE is one word of the command line: quote it. Without any, "
    "lines "
    "are read from standard input and translated as they arrive; an empty line gives an empty line. A note on standard "
    "error names words that the translator does not know (--quiet: none). With --json each translation is one object "
    "on a line of its own.";

static const char *const examples[] = {
    "attn translate out/demo \"Is the door open?\"",
    "attn translate en-fr --beam 4 --length-penalty 0.6 < english.txt > french.txt",
    "attn translate en-fr --json \"I lost.\" \"Go.\"",
    NULL,
};

/* Lines that have arrived are read ahead, so that those of a batch are of like length; a terminal's arrive alone. */
enum { BATCH = 32, AHEAD = 1024 };

static int print_as_json(const cli_call *cli, const char *source, const attn_translation *t)
{
    attn_json json;
    attn_json_begin(&json, cli->context, false);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "source", source);
    attn_json_text(&json, "translation", t->text);
    attn_json_text(&json, "tokens", t->tokens);
    attn_json_real(&json, "score", t->score);
    attn_json_int(&json, "words", t->words);
    attn_json_int(&json, "unknown", t->unknown);
    attn_json_text(&json, "unknown_words", t->unknown_words);
    attn_json_bool(&json, "truncated", t->truncated);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

static int print_one(const cli_call *cli, const char *source, const attn_translation *t, int64_t number)
{
    if (cli->json)
        return print_as_json(cli, source, t);
    puts(cli_flag(cli, "tokens") ? t->tokens : t->text);
    if (t->unknown > 0)
        cli_note(cli, "note: sentence %lld: unknown %s: %s", (long long)number, t->unknown > 1 ? "words" : "word",
                 t->unknown_words);
    if (t->truncated)
        cli_note(cli, "note: sentence %lld is longer than the translator takes: its end was left out",
                 (long long)number);
    return CLI_OK;
}

/* `first`: the number of texts[0], from 1. */
static int translate(const cli_call *cli, attn_translator *translator, const char *const *texts, int n, int64_t first)
{
    attn_translator_options how = {.beam = cli_int(cli, "beam"),
                                   .length_penalty = cli_real(cli, "length_penalty"),
                                   .batch = BATCH,
                                   .max_length = cli_int(cli, "max_length")};
    attn_translation results[AHEAD];
    if (attn_translator_translate(translator, texts, n, &how, results) != ATTN_OK)
        return cli_failed(cli, NULL);
    int code = CLI_OK;
    for (int i = 0; i < n && code == CLI_OK; i++)
        code = print_one(cli, texts[i], &results[i], first + i);
    attn_translations_free(cli->context, results, n);
    fflush(stdout);
    return code;
}

static int translate_words(const cli_call *cli, attn_translator *translator)
{
    int n = cli->nwords - 1, code = CLI_OK;
    const char *const *texts = cli->words + 1;
    for (int i = 0; i < n && code == CLI_OK; i++)
        code = cli_check_sentence(cli, texts[i], strlen(texts[i]), "sentence", i + 1);
    for (int i = 0; i < n && code == CLI_OK; i += AHEAD)
        code = translate(cli, translator, texts + i, n - i < AHEAD ? n - i : AHEAD, i + 1);
    return code;
}

static int translate_input(const cli_call *cli, attn_translator *translator)
{
    cli_lines lines;
    const char *texts[AHEAD];
    int n = 0, code = cli_lines_begin(&lines);
    if (isatty(STDIN_FILENO) && isatty(STDERR_FILENO))
        cli_note(cli, "type a sentence a line; Ctrl-D ends");
    while (code == CLI_OK && !ferror(stdout)) {
        code = cli_lines_next(&lines, cli, texts, AHEAD, &n);
        if (code != CLI_OK || n == 0)
            break;
        code = translate(cli, translator, texts, n, lines.number - n + 1);
    }
    cli_lines_end(&lines);
    return code;
}

static int run(cli_call *cli)
{
    attn_translator *translator;
    if (attn_translator_load(&translator, cli->context, cli->words[0]) != ATTN_OK)
        return cli_failed(cli, NULL);
    int code = cli->nwords > 1 ? translate_words(cli, translator) : translate_input(cli, translator);
    attn_translator_destroy(translator);
    return code;
}

const cli_command cli_translate = {
    "translate", "translate sentences", usage, description, CLI_OPTIONS(options), NULL, examples, 1, -1, run,
};
