/* SPDX-License-Identifier: MIT
 * attn train translate: learns to translate from a file of sentence pairs. */
#include "commands.h"
#include "source.h"
#include "training.h"

#include <string.h>

static const cli_option options[] = {
    CLI_TEXT("data", 0, "FILE", "",
             "sentence pairs, plain or gzip; \"phrasebook\": the English-French one that attn "
             "carries"),
    CLI_TEXT("out", 'o', "DIR", NULL, "the directory that gets the translator"),
    CLI_FLAG("resume", 0, "go on where a training that was stopped or killed left off"),
};

static const char *const usage[] = {"--data FILE --out DIR [SETTING...]", "--out DIR --resume", NULL};

static const char description[] =
    "FILE holds one pair a line: the sentence, a tab, its translation; whatever follows a second tab is ignored. "
    "Sentences are put into lower case and split into words. Part of the pairs is kept for validation (the parameters "
    "that do best on it are the ones kept) and part for testing (attn eval); all translations of one sentence stay on "
    "one side.\n"
    "\n"
    "DIR gets config.json, model.safetensors, source.vocab and target.vocab, which are the translator, and "
    "training.json, checkpoint.safetensors and history.tsv, which a training needs to go on. Ctrl-C finishes the step, "
    "saves and stops; --resume then ends in the same bits as a training that was not stopped, with the same number of "
    "threads. A resumed training keeps its data and settings: they need not be given again; --epochs, --patience and "
    "--save-every may be changed, to train on for longer.\n"
    "\n"
    "Defaults below are those of the Transformer; bahdanau (a recurrent model with attention) and --compat d2l have "
    "some of their own, and what was used stands in training.json.";

static const char *const examples[] = {
    "attn train translate --data fra.txt.gz --out en-fr --epochs 15",
    "attn train translate --data pairs.tsv --out small --num-hiddens 128 --num-blks 2",
    "attn train translate --data pairs.tsv --out rnn --model bahdanau",
    "attn train translate --out en-fr --resume",
    NULL,
};

/* The settings among the options given. */
static attn_status settings_given(const cli_call *cli, attn_config **settings)
{
    int n;
    const attn_key *keys = attn_translator_keys(&n);
    attn_status status = attn_config_create(settings, cli->context);
    for (int i = 0; status == ATTN_OK && i < n; i++) {
        const attn_value *value = attn_config_get(cli->given, keys[i].name);
        if (value)
            status = attn_config_set(*settings, keys[i].name, value);
    }
    return status;
}

static bool same_value(const attn_value *a, const attn_value *b)
{
    if (a->type == ATTN_VALUE_TEXT && b->type == ATTN_VALUE_TEXT)
        return strcmp(a->text, b->text) == 0;
    if (a->type == ATTN_VALUE_BOOL && b->type == ATTN_VALUE_BOOL)
        return a->boolean == b->boolean;
    bool numbers = (a->type == ATTN_VALUE_INT || a->type == ATTN_VALUE_REAL) &&
                   (b->type == ATTN_VALUE_INT || b->type == ATTN_VALUE_REAL);
    return numbers && !(a->real < b->real) && !(a->real > b->real);
}

/* How long to go on, and how often to save, may be said anew. */
static bool may_change(const char *key)
{
    static const char *const keys[] = {"epochs", "patience", "save_every"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strcmp(keys[i], key) == 0)
            return true;
    }
    return false;
}

/* The same command line with --resume is fine; another value of most settings is not. */
static int check_unchanged(const cli_call *cli, const attn_config *settings, const char *directory)
{
    char path[4096], name[64];
    attn_config *stored;
    snprintf(path, sizeof path, "%s/training.json", directory);
    if (attn_config_read(&stored, cli->context, path) != ATTN_OK)
        return cli_failed(cli, NULL);
    int code = CLI_OK;
    for (int64_t i = 0; code == CLI_OK && i < attn_config_size(settings); i++) {
        const char *key = attn_config_key(settings, i);
        const attn_value *then = attn_config_get(stored, key);
        cli_option option = {.key = {.name = key}};
        if (!may_change(key) && (!then || !same_value(then, attn_config_get(settings, key))))
            code = cli_fail(CLI_BAD,
                            "--%s: the training in %s began with another value, and a resumed training keeps "
                            "its settings",
                            cli_option_spell(&option, name), directory);
    }
    attn_config_destroy(stored);
    return code;
}

/* NaN, where there was no validation, becomes null. */
static int print_json(const cli_call *cli, const cli_training *training, const char *directory)
{
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "directory", directory);
    attn_json_int(&json, "train_pairs", training->plan.train_pairs);
    attn_json_int(&json, "valid_pairs", training->plan.valid_pairs);
    attn_json_int(&json, "test_pairs", training->plan.test_pairs);
    attn_json_int(&json, "source_words", training->plan.source_words);
    attn_json_int(&json, "target_words", training->plan.target_words);
    attn_json_int(&json, "parameters", training->plan.parameters);
    attn_json_int(&json, "epochs", training->plan.epochs);
    attn_json_int(&json, "steps", training->last.all_steps);
    attn_json_real(&json, "loss", training->last.loss);
    attn_json_real(&json, "valid_loss", training->last.valid_loss);
    attn_json_real(&json, "best_loss", training->last.best_loss);
    attn_json_real(&json, "tokens_per_second", training->last.tokens_per_second);
    attn_json_real(&json, "seconds", training->last.seconds);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

static void print_result(const cli_call *cli, const cli_training *training, const char *directory)
{
    printf("The translator is in %s", directory);
    if (training->keeps_last && training->last.valid_loss > 0)
        printf(" (validation loss %.3f after the last epoch)", training->last.valid_loss);
    else if (training->best_epoch > 0 && training->last.best_loss > 0)
        printf(" (validation loss %.3f, epoch %lld)", training->last.best_loss, (long long)training->best_epoch);
    puts(".");
    if (!cli->quiet)
        printf("Try:  attn translate %s \"...\"\n      attn eval %s\n      attn show %s \"...\" -o attention.png\n",
               directory, directory, directory);
}

static int train(cli_call *cli, const attn_config *settings)
{
    const char *directory = cli_text(cli, "out");
    cli_source source = cli_source_of(cli_text(cli, "data"));
    attn_translator_job job = {.data = source.path,
                               .text = source.text,
                               .text_size = source.size,
                               .directory = directory,
                               .settings = settings,
                               .resume = cli_flag(cli, "resume")};
    cli_training training;
    if (!source.path && !source.text && !job.resume)
        return cli_fail(CLI_BAD,
                        "train translate needs --data FILE (--data phrasebook for the sentences attn carries)");
    if (job.resume) {
        int code = check_unchanged(cli, settings, directory);
        if (code != CLI_OK)
            return code;
    }
    int code = cli_train(cli, &job, &training);
    if (code != CLI_OK)
        return code;
    if (cli->json)
        return print_json(cli, &training, directory);
    print_result(cli, &training, directory);
    return CLI_OK;
}

static int run(cli_call *cli)
{
    attn_config *settings = NULL;
    int code = settings_given(cli, &settings) == ATTN_OK ? train(cli, settings) : cli_failed(cli, NULL);
    attn_config_destroy(settings);
    return code;
}

const cli_command cli_train_translate = {
    "train translate",
    "train a translator on sentence pairs",
    usage,
    description,
    CLI_OPTIONS(options),
    attn_translator_keys,
    examples,
    0,
    0,
    run,
};
