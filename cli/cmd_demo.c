/* SPDX-License-Identifier: MIT
 *
 * attn demo: runs a complete example in a minute. It trains on the built-in phrasebook, translates held-out sentences,
 * draws the attention, and prints commands to try next.
 */
#include "commands.h"
#include "picture.h"
#include "sentences.h"
#include "training.h"
#include "apps/translator/translator.h"
#include "train/bleu.h"

#include <stdlib.h>
#include <string.h>

static const cli_option options[] = {
    CLI_WRITES(TEXT, "out", 'o', "DIR", "out/demo", "the directory that gets the translator and the pictures"),
};

static const char *const usage[] = {"[-o DIR]", NULL};

static const char description[] =
    "Trains a small Transformer on the English-French phrasebook that attn carries, translates sentences that it has "
    "never seen, and draws its attention. Takes less than a minute on two cores and needs no network. The output of "
    "an earlier demo in DIR is replaced.";

static const char *const examples[] = {"attn demo", "attn demo --seed 7 -o /tmp/demo", NULL};

/* ------------------------------------------------------------------------------------------ the directory */

static const char *in_directory(char *path, const char *directory, const char *name)
{
    snprintf(path, ATTN__PATH, "%s/%s", directory, name);
    return path;
}

/* Returns true if `directory` holds no model, or the translator of an earlier demo, which may be deleted. */
static bool is_ours(const cli_call *cli, const char *directory)
{
    char path[ATTN__PATH];
    attn_config *training = NULL;
    if (!attn_file_exists(in_directory(path, directory, "model.safetensors")))
        return true;
    attn_status status = attn_config_read(&training, cli->context, in_directory(path, directory, "training.json"));
    bool ours = status == ATTN_OK && strcmp(attn_config_text(training, "data", ""), "phrasebook") == 0;
    if (status == ATTN_OK)
        attn_config_destroy(training);
    cli_forgive(cli);
    return ours;
}

static int clear_directory(const cli_call *cli, const char *directory)
{
    static const char *const names[] = {"config.json",    "model.safetensors",
                                        "source.vocab",   "target.vocab",
                                        "source.spm",     "target.spm",
                                        "training.json",  "checkpoint.safetensors",
                                        "history.tsv",    "attention.png",
                                        "attention.svg",  "attention.html",
                                        "low_score.json", NULL};
    if (strlen(directory) > ATTN__PATH - 64)
        return cli_fail(CLI_BAD, "--out: the path has %zu bytes; at most %d are supported", strlen(directory),
                        ATTN__PATH - 64);
    bool ours = is_ours(cli, directory);
    if (attn_context_status(cli->context) != ATTN_OK)
        return cli_failed(cli, NULL);
    if (!ours)
        return cli_fail(CLI_BAD,
                        "%s holds a translator that attn demo did not make: choose another directory with --out",
                        directory);
    return attn_directory_clear(cli->context, directory, names) == ATTN_OK ? CLI_OK : cli_failed(cli, NULL);
}

/* ---------------------------------------------------------------------------------------------- training */

/* Chooses settings for which training takes a minute and the phrasebook is learned. The values were found by
 * experiments. */
static attn_status demo_settings(const cli_call *cli, attn_config **settings)
{
    static const struct whole {
        const char *key;
        int64_t value;
    } wholes[] = {{"num_hiddens", 128},  {"ffn_num_hiddens", 256},
                  {"num_heads", 4},      {"num_blks", 2},
                  {"epochs", 30},        {"batch", 32},
                  {"warmup", 100},       {"vocabulary_size", 1000},
                  {"valid_sentences", 0}};
    attn_status status = attn_config_create(settings, cli->context);
    for (size_t i = 0; status == ATTN_OK && i < sizeof wholes / sizeof *wholes; i++)
        status = attn_config_set_int(*settings, wholes[i].key, wholes[i].value);
    if (status == ATTN_OK)
        status = attn_config_set_int(*settings, "seed", cli_int(cli, "seed"));
    if (status == ATTN_OK)
        status = attn_config_set_real(*settings, "rate", 0.0025);
    if (status == ATTN_OK)
        status = attn_config_set_text(*settings, "schedule", "cosine");
    if (status == ATTN_OK && attn_subwords_available()) /* Without SentencePiece, a vocabulary of words is used. */
        status = attn_config_set_text(*settings, "vocabulary", "unigram");
    return status;
}

static int train(cli_call *cli, const char *directory, cli_training *training)
{
    attn_config *settings = NULL;
    attn_trainer_job job = {.kind = "translate", .directory = directory};
    attn_status status = demo_settings(cli, &settings);
    job.settings = settings;
    job.text = attn_phrasebook(&job.text_size);
    int code = status == ATTN_OK ? cli_train(cli, &job, training) : cli_failed(cli, NULL);
    attn_config_destroy(settings);
    return code;
}

/* --------------------------------------------------------------------------------------- held-out sentences */

typedef struct sentence {
    char *source, *reference, *prediction;
    double bleu;
} sentence;

enum { SHOWN = 8, MOST_HELD_OUT = 4096 };
typedef struct held_out {
    sentence *items;
    int n;
    bool no_memory;
} held_out;

static char *readable(const char *tokens)
{
    size_t size = strlen(tokens) + 1;
    char *text = malloc(size);
    if (text)
        attn_text_detokenize(tokens, false, text, size);
    return text;
}

static void keep_sample(void *user, const char *source, const char *reference, const char *prediction)
{
    held_out *all = user;
    if (all->n >= MOST_HELD_OUT || all->no_memory)
        return;
    sentence *s = &all->items[all->n];
    *s = (sentence){.source = readable(source), .reference = strdup(reference), .prediction = strdup(prediction)};
    all->n++;
    all->no_memory = !s->source || !s->reference || !s->prediction;
    if (!all->no_memory)
        s->bleu = attn_bleu_d2l(prediction, reference, 2);
}

static void release(held_out *all)
{
    for (int i = 0; i < all->n; i++) {
        free(all->items[i].source);
        free(all->items[i].reference);
        free(all->items[i].prediction);
    }
    free(all->items);
}

/* Returns the index of the i-th sentence to show. Sentences are evenly spaced, so that good and bad translations are
 * shown. */
static int shown_at(const held_out *all, int i)
{
    return all->n <= SHOWN ? i : (int)((int64_t)i * all->n / SHOWN);
}

static void print_table(const held_out *all)
{
    enum { SOURCE = 36, TARGET = 40 };
    printf("\n%s\n\n  ", "Sentences that it has not seen in training:");
    cli_print_cell(stdout, "English", SOURCE);
    fputs("  ", stdout);
    cli_print_cell(stdout, "translation (and the reference, where it differs)", TARGET + 10);
    puts("  BLEU");
    for (int i = 0; i < SHOWN && i < all->n; i++) {
        const sentence *s = &all->items[shown_at(all, i)];
        fputs("  ", stdout);
        cli_print_cell(stdout, s->source, SOURCE);
        fputs("  ", stdout);
        cli_print_cell(stdout, s->prediction, TARGET + 10);
        printf("  %.2f\n", s->bleu);
        if (strcmp(s->prediction, s->reference) != 0)
            cli_print("  %*s (%s)\n", SOURCE, "", s->reference);
    }
}

static void json_table(attn_json *json, const held_out *all)
{
    attn_json_array(json, "sentences");
    for (int i = 0; i < SHOWN && i < all->n; i++) {
        const sentence *s = &all->items[shown_at(all, i)];
        attn_json_object(json, NULL);
        cli_json_sample(json, s->source, s->reference, s->prediction);
        attn_json_real(json, "bleu_d2l", s->bleu);
        attn_json_end(json);
    }
    attn_json_end(json);
}

/* ---------------------------------------------------------------------------------------------- pictures */

/* Chooses a sentence whose picture is informative, if possible a held-out sentence. */
static const char *showcase(const held_out *all)
{
    static const char *const preferred[] = {"looking for her key", "two coffees", "is looking for", "would like"};
    for (size_t p = 0; p < sizeof preferred / sizeof *preferred; p++) {
        for (int i = 0; i < all->n; i++)
            if (strstr(all->items[i].source, preferred[p]))
                return all->items[i].source;
    }
    return all->n > 0 ? all->items[0].source : "Is the door open?";
}

static int draw(const cli_call *cli, attn_translator *translator, const char *text, const char *directory)
{
    static const struct {
        attn_plot_format format;
        const char *name;
    } files[] = {
        {ATTN_PLOT_HTML, "attention.html"}, {ATTN_PLOT_PNG, "attention.png"}, {ATTN_PLOT_SVG, "attention.svg"}};
    char path[ATTN__PATH];
    size_t n = cli_draws_pictures(cli) ? sizeof files / sizeof *files : 1; /* The page needs no cairo. */
    for (size_t i = 0; i < n; i++) {
        attn_bytes picture = {0};
        attn_status status = attn_translator_render_attention(translator, text, &(attn_translator_view){.words = true},
                                                              files[i].format, &picture, NULL);
        if (status == ATTN_OK)
            status =
                attn_file_write(cli->context, in_directory(path, directory, files[i].name), picture.data, picture.size);
        attn_bytes_free(cli->context, &picture);
        if (status != ATTN_OK)
            return cli_failed(cli, NULL);
    }
    return CLI_OK;
}

/* ------------------------------------------------------------------------------------------------ result */

static void print_next(const char *directory)
{
    const char *self = cli_self();
    cli_print(
        "\nThis translator knows the 280 words of a phrasebook, in short sentences about family, home, food, travel and\n"
        "dates. It knows nothing else: \"I love you.\" it gets wrong, and calls doubtful.\n"
        "\nTry next:\n"
        "  %s translate %s \"Where is the station?\"\n"
        "  %s show %s \"The window is closed.\" -o page.html     what it attends to, as a page\n"
        "  %s train translate --data fra.txt.gz --out en-fr     sentence pairs of your own: a tab between, one a line\n"
        "  %s demo detect shapes     pictures of drawn shapes, and a detector that finds them\n"
        "  %s --help\n",
        self, directory, self, directory, self, self, self);
}

static int print_result(const cli_call *cli, const char *directory, const held_out *all, const char *drawn,
                        const attn_translator_score *score, const cli_training *training)
{
    if (!cli->json) {
        print_table(all);
        printf("\nAll %lld held-out sentences: BLEU %.1f (corpus), %.3f (mean, k = 2); trained in %.0f s.\n",
               (long long)score->sentences, score->corpus.score, score->bleu_d2l, training->last.seconds);
        bool pictures = cli_draws_pictures(cli);
        cli_print("Attention on \"%s\", as a page for the browser%s:\n  %s/attention.html\n", drawn,
                  pictures ? " and as pictures" : "", directory);
        if (pictures)
            cli_print("  %s/attention.png\n  %s/attention.svg\n", directory, directory);
        print_next(directory);
        return CLI_OK;
    }
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "directory", directory);
    attn_json_real(&json, "seconds", training->last.seconds);
    attn_json_int(&json, "held_out", score->sentences);
    attn_json_real(&json, "bleu", score->corpus.score);
    attn_json_real(&json, "bleu_d2l", score->bleu_d2l);
    json_table(&json, all);
    attn_json_text(&json, "drawn", drawn);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

static int show_results(const cli_call *cli, const char *directory, const cli_training *training)
{
    attn_translator *translator;
    attn_translator_score score = {0};
    held_out all = {.items = calloc(MOST_HELD_OUT, sizeof *all.items)};
    attn_pairs_source data = {0};
    data.text = attn_phrasebook(&data.size);
    if (!all.items)
        return cli_fail(CLI_FAILED, "out of memory");
    int code = CLI_OK;
    if (attn_translator_load(&translator, cli->context, directory, NULL) != ATTN_OK) {
        release(&all);
        return cli_failed(cli, NULL);
    }
    attn_translator_judging how = {.sample = keep_sample, .user = &all};
    if (attn_translator_evaluate(translator, &data, ATTN_SPLIT_TEST, &how, &score) != ATTN_OK)
        code = cli_failed(cli, NULL);
    else if (all.no_memory)
        code = cli_fail(CLI_FAILED, "out of memory");
    const char *drawn = code == CLI_OK ? showcase(&all) : NULL;
    if (code == CLI_OK)
        code = draw(cli, translator, drawn, directory);
    if (code == CLI_OK)
        code = print_result(cli, directory, &all, drawn, &score, training);
    attn_translator_destroy(translator);
    release(&all);
    return code;
}

static int run(cli_call *cli)
{
    const char *directory = cli_text(cli, "out");
    cli_training training = {0};
    cli_guard_own(cli, directory);
    int code = clear_directory(cli, directory);
    if (code == CLI_OK)
        code = train(cli, directory, &training);
    return code == CLI_OK ? show_results(cli, directory, &training) : code;
}

const cli_command cli_demo = {
    "demo",
    "train, translate and draw, in a minute and without any data",
    usage,
    description,
    CLI_OPTIONS(options),
    NULL,
    examples,
    0,
    0,
    run,
};
