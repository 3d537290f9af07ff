/* SPDX-License-Identifier: MIT
 * attn translate: translates sentences from the command line or standard input, one translation per line. */
#include "commands.h"
#include "failures.h"
#include "foreign.h"
#include "sentences.h"
#include "shortlist.h"
#include "apps/translator/translator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Lines that have arrived are read ahead, up to AHEAD of them, so that a batch has sentences of similar length.
 * Lines from a terminal arrive one by one. */
enum { AHEAD = 1024, NAMED = 10 };

static const cli_option options[] = {
    CLI_BEAM,
    CLI_REAL("length_penalty", "0", 0, 10,
             "how much the search favours longer translations: scores are divided by ((5 + length) / 6) to this power; "
             "with a MarianMT or OPUS-MT model by the length to this power, and 0 is the model's own"),
    CLI_INT(
        "max_length", 0, "0", 0, 1 << 20,
        "most tokens of a translation, its end mark included; 0: three for each token of the sentence, or the number "
        "in the model's files; never more than the model supports"),
    CLI_REAL("max_length_factor", "0", 0, 1000,
             "most tokens of a translation for each token of the sentence; 0: the model's own"),
    CLI_INT("min_length", 0, "0", 0, 1 << 20,
            "least tokens of a translation, its end mark included; 0: the model's own"),
    CLI_INT("no_repeat_ngram", 0, "0", 0, 1 << 20,
            "no translation repeats a sequence of this many tokens; 0: the model's own no_repeat_ngram_size"),
    CLI_REAL(
        "repetition_penalty", "0", 0, 100,
        "above 1: tokens that a translation has already are less likely to come again; 0: the model's own, 1: none"),
    CLI_TEXT("suppress_tokens", 0, "TOKENS", "",
             "tokens that no translation may contain, as --tokens prints them, with spaces between"),
    CLI_INT("nbest", 'n', "0", 0, 64,
            "print this many translations of each sentence, at most as many as the beam, as 'index ||| translation ||| "
            "score'; 0: only the best, without index and score"),
    CLI_MBR,
    CLI_FLAG("scores", 0, "print a tab and the score behind each translation"),
    CLI_FLAG("alignments", 0,
             "print a tab and the word alignment behind each translation and its score: 'i-j' means that word j of "
             "the translation attends to word i of the sentence most, both counted from 0"),
    CLI_FLAG("prefix", 0,
             "each sentence may be followed by a tab and a forced prefix, the words that begin its translation"),
    CLI_INT("batch", 0, "32", 1, AHEAD,
            "sentences of similar length that are translated as one batch; fewer take less memory"),
    CLI_FLAG("stream", 0,
             "translate each line as soon as it is read, without reading ahead; at a terminal this is always on"),
    CLI_SHORTLIST,
    CLI_STRICT_OPTION,
    CLI_NAMES_LONG,
    CLI_FLAG("tokens", 0, "print the tokens as the model gives them, with spaces between"),
};

static const char *const usage[] = {"DIR [SENTENCE...]", "DIR < FILE", NULL};

static const char description[] =
    "DIR is what attn train translate made, or a published MarianMT or OPUS-MT model. Each SENTENCE is one argument: "
    "quote it. Without any, lines are read from standard input; an empty line gives an empty line, and so does a "
    "line that is not text or is too long. A note on standard error names the words that are not in the translator's "
    "vocabulary, for the first ten sentences that have any, and one more note at the end counts the others (--quiet: "
    "no notes). Another note marks a translation as doubtful, if its score per token is lower than those of 98 % of the "
    "sentences that the training held out. The lines of a file are judged only with --scores or --json, because scores take "
    "time. With --json each translation is one object on a line of its own. A score is the logarithm of the "
    "translation's probability, after the length penalty, with --mbr the expected chrF; an index counts sentences from "
    "0.";

static const char *const examples[] = {
    "attn translate out/demo \"Is the door open?\"",
    "attn translate en-fr --beam 4 --length-penalty 0.6 < english.txt > french.txt",
    "attn translate en-fr --precision int8 --shortlist lex.s2t < english.txt > french.txt",
    "attn translate en-fr --beam 8 --nbest 8 < english.txt > choices.txt",
    "attn translate en-fr --beam 32 --mbr < english.txt > french.txt",
    "attn translate en-fr --prefix --alignments \"$(printf \"I lost.\\tJ'ai\")\"",
    "attn translate en-fr --json \"I lost.\" \"Go.\"",
    NULL,
};

typedef struct job {
    const cli_call *cli;
    attn_translator *translator;
    attn_translator_options how;
    attn_translation *results; /* translations [AHEAD * nbest] */
    int32_t *suppressed;
    bool prefixed;
    cli_failures failures;
    int64_t noted;
    int64_t unnamed;
    int64_t low; /* number of translations whose score is below the translator's limit */
} job;

static int print_as_json(const job *j, const char *source, const attn_translation *line, const attn_translation *t,
                         int64_t index)
{
    attn_json json;
    attn_json_begin(&json, j->cli->context, false);
    attn_json_object(&json, NULL);
    if (j->how.nbest > 0)
        attn_json_int(&json, "index", index);
    attn_json_text(&json, "source", source);
    attn_json_text(&json, "translation", t->text);
    attn_json_text(&json, "tokens", t->tokens);
    attn_json_real(&json, "score", t->score);
    attn_json_int(&json, "words", line->words);
    attn_json_int(&json, "unknown", line->unknown);
    attn_json_text(&json, "unknown_words", line->unknown_words);
    attn_json_bool(&json, "truncated", line->truncated);
    attn_json_bool(&json, "doubtful", t->doubtful);
    if (t->alignment)
        attn_json_text(&json, "alignment", t->alignment);
    attn_json_end(&json);
    return cli_print_json(j->cli, &json);
}

static void print_as_text(const job *j, const attn_translation *t, int64_t index)
{
    const char *text = cli_flag(j->cli, "tokens") ? t->tokens : t->text;
    if (j->how.nbest > 0)
        cli_print("%lld ||| %s ||| %.9g", (long long)index, text, t->score);
    else
        cli_print("%s", text);
    if (j->how.nbest == 0 && cli_flag(j->cli, "scores"))
        cli_print("\t%.9g", t->score);
    if (t->alignment)
        cli_print("%s%s", j->how.nbest > 0 ? " ||| " : "\t", t->alignment);
    cli_print("\n");
}

static void note(job *j, const attn_translation *t, int64_t number)
{
    if (t->unknown > 0 && j->noted++ < NAMED)
        cli_note(j->cli, "note: sentence %lld: unknown %s: %s", (long long)number, t->unknown > 1 ? "words" : "word",
                 t->unknown_words);
    else
        j->unnamed += t->unknown;
    if (t->doubtful && t->unknown == 0 && j->low++ < NAMED)
        cli_note(j->cli, "note: sentence %lld: doubtful: the translation has a low score", (long long)number);
}

static void note_rest(const job *j)
{
    char sentences[32], words[32];
    if (j->noted > NAMED)
        cli_note(j->cli, "note: %s more sentences have unknown words: %s in all",
                 cli_count(j->noted - NAMED, sentences), cli_count(j->unnamed, words));
    if (j->low > NAMED)
        cli_note(j->cli, "note: %s more translations have a low score", cli_count(j->low - NAMED, sentences));
}

/* Prints all translations of one sentence. `number` is the sentence's number, which counts from 1. */
static int print_line(job *j, const char *source, const attn_translation *line, int64_t number)
{
    int64_t most = j->how.nbest > 0 ? j->how.nbest : 1;
    int code = CLI_OK;
    for (int64_t i = 0; i < most && line[i].text && code == CLI_OK; i++)
        if (j->cli->json)
            code = print_as_json(j, source, line, &line[i], number - 1);
        else
            print_as_text(j, &line[i], number - 1);
    if (!j->cli->json)
        note(j, line, number);
    if (line->truncated)
        cli_warn("note: sentence %lld is longer than the translator supports: its end was left out", (long long)number);
    return code;
}

/* Prints an empty line for an input that has no translation, so that output lines still match input lines. */
static int leave_out(job *j, int code, int64_t number)
{
    char name[32];
    snprintf(name, sizeof name, "%lld", (long long)number);
    code = cli_failures_note(&j->failures, code, name);
    if (code == CLI_OK && !j->cli->json && j->how.nbest == 0)
        cli_print("\n");
    return code;
}

static int run_together(job *j, const char *const *texts, int n, int64_t first);

/* Translates each sentence alone, because one sentence of a batch cannot be translated. Its forced prefix may be
 * impossible, for example. */
static int run_one_by_one(job *j, const char *const *texts, int n, int64_t first)
{
    const char *const *prefixes = j->how.prefixes;
    int code = CLI_OK;
    for (int i = 0; i < n && code == CLI_OK; i++) {
        j->how.prefixes = prefixes ? prefixes + i : NULL;
        code = run_together(j, texts + i, 1, first + i);
    }
    j->how.prefixes = prefixes;
    return code;
}

/* `first` is the number of texts[0], which counts from 1. */
static int run_together(job *j, const char *const *texts, int n, int64_t first)
{
    int64_t each = j->how.nbest > 0 ? j->how.nbest : 1;
    /* The error also needs `first`, because the library counts lines only within this call. */
    char place[48];
    snprintf(place, sizeof place, "from sentence %lld on", (long long)first);
    attn_status status = attn_translator_translate(j->translator, texts, n, &j->how, j->results);
    if (status == ATTN_ERROR_ARGUMENT && n > 1) {
        attn_context_clear_error(j->cli->context);
        return run_one_by_one(j, texts, n, first);
    }
    if (status != ATTN_OK) {
        int failed = cli_failed(j->cli, first > 1 ? place : NULL);
        attn_context_clear_error(j->cli->context);
        return status == ATTN_ERROR_ARGUMENT ? leave_out(j, failed, first) : failed;
    }
    int code = CLI_OK;
    for (int i = 0; i < n && code == CLI_OK; i++) {
        code = print_line(j, texts[i], &j->results[i * each], first + i);
        cli_failures_note(&j->failures, CLI_OK, "");
    }
    attn_translations_free(j->cli->context, j->results, n * each);
    fflush(stdout);
    return code;
}

/* If `prefixed` is set, first splits each text at its first tab into a sentence and the forced prefix of its
 * translation. */
static int run_sentences(job *j, const char *const *texts, int n, int64_t first)
{
    char *copies[AHEAD] = {0};
    const char *prefixes[AHEAD];
    int code = CLI_OK, done = 0;
    if (!j->prefixed)
        return run_together(j, texts, n, first);
    for (; done < n && code == CLI_OK; done++) {
        char *tab = (copies[done] = strdup(texts[done])) ? strchr(copies[done], '\t') : NULL;
        code = copies[done] ? CLI_OK : cli_fail(CLI_FAILED, "out of memory");
        prefixes[done] = tab ? tab + 1 : NULL;
        if (tab)
            *tab = '\0';
    }
    j->how.prefixes = prefixes;
    if (code == CLI_OK)
        code = run_together(j, (const char *const *)copies, n, first);
    j->how.prefixes = NULL;
    while (done > 0)
        free(copies[--done]);
    return code;
}

static int run_words(job *j)
{
    int n = j->cli->nwords - 1, code = CLI_OK;
    const char *const *texts = j->cli->words + 1;
    for (int i = 0; i < n && code == CLI_OK;) {
        int good = 0, bad = CLI_OK;
        while (i + good < n && good < AHEAD && bad == CLI_OK) {
            bad = cli_check_sentence(j->cli, texts[i + good], strlen(texts[i + good]), "sentence", i + good + 1);
            good += bad == CLI_OK;
        }
        attn_context_clear_error(j->cli->context);
        if (good > 0)
            code = run_sentences(j, texts + i, good, i + 1);
        i += good;
        if (code == CLI_OK && bad != CLI_OK)
            code = leave_out(j, bad, ++i);
    }
    return code;
}

static int run_input(job *j)
{
    cli_lines lines;
    const char *texts[AHEAD];
    int most = cli_flag(j->cli, "stream") || isatty(STDIN_FILENO) ? 1 : AHEAD;
    int n = 0, code = cli_lines_begin(&lines);
    if (isatty(STDIN_FILENO) && isatty(STDERR_FILENO))
        cli_note(j->cli, "type a sentence a line; Ctrl-D ends");
    while (code == CLI_OK && !ferror(stdout)) {
        code = cli_lines_next(&lines, j->cli, texts, most, &n);
        if (code != CLI_OK && lines.bad)
            code = leave_out(j, code, lines.number);
        else if (code != CLI_OK || n == 0)
            break;
        else
            code = run_sentences(j, texts, n, lines.number - n + 1);
    }
    cli_lines_end(&lines);
    return code;
}

static int run_job(job *j)
{
    size_t each = j->how.nbest > 0 ? (size_t)j->how.nbest : 1;
    j->results = calloc(AHEAD * each, sizeof *j->results);
    if (!j->results)
        return cli_fail(CLI_FAILED, "out of memory");
    int code = j->cli->nwords > 1 ? run_words(j) : run_input(j);
    note_rest(j);
    free(j->results);
    return code == CLI_OK ? cli_failures_end(&j->failures) : code;
}

static int suppress(job *j)
{
    const attn_vocab *vocab = attn_translator_vocab(j->translator, ATTN_SIDE_TARGET);
    const char *text = cli_text(j->cli, "suppress_tokens"), *word;
    size_t length;
    if (!text[0])
        return CLI_OK;
    j->how.suppressed = j->suppressed = malloc(strlen(text) * sizeof *j->suppressed);
    if (!j->suppressed)
        return cli_fail(CLI_FAILED, "out of memory");
    while (attn_text_word(&text, &word, &length)) {
        int64_t id = 0, n = attn_vocab_size(vocab);
        while (id < n &&
               !(strncmp(attn_vocab_token(vocab, id), word, length) == 0 && !attn_vocab_token(vocab, id)[length]))
            id++;
        if (id == n)
            return cli_fail(CLI_BAD, "--suppress-tokens: \"%.*s\" is not a token of the target vocabulary", (int)length,
                            word);
        j->suppressed[j->how.nsuppressed++] = (int32_t)id;
    }
    return CLI_OK;
}

static int begin_search(job *j)
{
    attn_translator_search own = attn_translator_own_search(j->translator);
    j->prefixed = cli_flag(j->cli, "prefix") || own.prefixed;
    j->how.beam = cli_beam(j->cli, &own);
    if (own.sampled)
        cli_note(j->cli,
                 "note: the model's files request sampling, which is not supported: the likeliest tokens are chosen");
    if (own.prefixed)
        cli_note(j->cli, "note: --prefix is on, as the model's files request (force-decode)");
    if (j->how.nbest > j->how.beam)
        return cli_fail(CLI_BAD, "--nbest is %lld, more than the beam, %lld; give --beam %lld or more",
                        (long long)j->how.nbest, (long long)j->how.beam, (long long)j->how.nbest);
    return suppress(j);
}

static int run(cli_call *cli)
{
    job j = {.cli = cli,
             .failures = {.cli = cli, .things = "sentences"},
             .how = {.beam = cli_int(cli, "beam"),
                     .length_penalty = cli_real(cli, "length_penalty"),
                     .batch = cli_int(cli, "batch"),
                     .max_len = cli_int(cli, "max_length"),
                     .length_factor = cli_real(cli, "max_length_factor"),
                     .min_len = cli_int(cli, "min_length"),
                     .no_repeat_ngram = cli_int(cli, "no_repeat_ngram"),
                     .repetition_penalty = cli_real(cli, "repetition_penalty"),
                     .nbest = cli_int(cli, "nbest"),
                     .mbr = cli_flag(cli, "mbr"),
                     .alignments = cli_flag(cli, "alignments")}};
    attn_context_set_inference(cli->context, true);
    if (attn_translator_load(&j.translator, cli->context, cli->words[0], cli_names(cli)) != ATTN_OK)
        return cli_failed(cli, NULL);
    attn_lexicon *lexicon = NULL;
    /* the lines of a file are translated without scores, which saves time */
    bool judged = isfinite(j.translator->low_score) && (cli->nwords > 1 || isatty(STDIN_FILENO));
    j.how.unscored = j.how.nbest == 0 && !cli_flag(cli, "scores") && !cli->json && !judged;
    int code = begin_search(&j);
    if (code == CLI_OK && attn_translator_pack_weights(j.translator) != ATTN_OK)
        code = cli_failed(cli, NULL);
    if (code == CLI_OK)
        code = cli_shortlist(cli, j.translator, &j.how, &lexicon);
    if (code == CLI_OK)
        code = run_job(&j);
    free(j.suppressed);
    attn_lexicon_destroy(lexicon);
    attn_translator_destroy(j.translator);
    return code;
}

const cli_command cli_translate = {
    "translate", "translate sentences", usage, description, CLI_OPTIONS(options), NULL, examples, 1, -1, run,
};
