/* SPDX-License-Identifier: MIT
 * attn info: what a model directory holds. */
#include "commands.h"
#include "parameters.h"

static const char *const usage[] = {"DIR", NULL};

static const char description[] =
    "Prints the architecture and settings of the translator in DIR, every parameter with its shape, and how much "
    "memory "
    "it takes: to be used, and to be trained with Adam (parameters, gradients and two moments; activations come on top "
    "and grow with the batch).";

static const char *const examples[] = {"attn info out/demo", "attn info out/demo --json", NULL};

/* Adam: the parameter, its gradient and two moments. */
static const double TRAINING_COPIES = 4;

static void print_config(const attn_config *config)
{
    char text[512];
    for (int64_t i = 0; i < attn_config_size(config); i++) {
        const char *key = attn_config_key(config, i);
        printf("  %-20s %s\n", key, cli_value_text(attn_config_get(config, key), text, sizeof text));
    }
}

static void print_info(const cli_call *cli, const attn_translator *translator)
{
    const attn_model *model = attn_translator_model(translator);
    const attn_architecture *architecture = attn_model_architecture(model);
    const attn_named_list *list = attn_model_parameters(model);
    cli_totals totals = cli_parameters_total(list);
    char a[32], b[32], c[32];
    size_t held;
    attn_context_memory(cli->context, &held, NULL, NULL);
    printf("%s: %s\n%s\n\nSettings\n", architecture->name, architecture->summary, architecture->source);
    print_config(attn_model_config(model));
    puts("\nVocabularies");
    printf("  %-20s %s words\n  %-20s %s words\n", "source",
           cli_count(attn_vocab_size(attn_translator_vocab(translator, ATTN_SOURCE)), a), "target",
           cli_count(attn_vocab_size(attn_translator_vocab(translator, ATTN_TARGET)), b));
    puts("\nParameters");
    cli_parameters_print(list);
    printf("\n  %s trained numbers in %lld tensors", cli_count(totals.trained, a), (long long)totals.tensors);
    if (totals.buffers > 0)
        printf(", and %s that are not trained", cli_count(totals.buffers, b));
    printf("\n\nMemory\n  %-20s %s\n  %-20s %s\n  %-20s %s, activations besides\n", "parameters",
           cli_bytes(totals.bytes, a), "in use now", cli_bytes((double)held, b), "training with Adam",
           cli_bytes(TRAINING_COPIES * totals.bytes, c));
}

static int print_json(const cli_call *cli, const attn_translator *translator)
{
    const attn_model *model = attn_translator_model(translator);
    cli_totals totals = cli_parameters_total(attn_model_parameters(model));
    attn_json json;
    size_t held;
    attn_context_memory(cli->context, &held, NULL, NULL);
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "architecture", attn_model_architecture(model)->name);
    attn_json_config(&json, "settings", attn_model_config(model));
    attn_json_int(&json, "source_words", attn_vocab_size(attn_translator_vocab(translator, ATTN_SOURCE)));
    attn_json_int(&json, "target_words", attn_vocab_size(attn_translator_vocab(translator, ATTN_TARGET)));
    attn_json_int(&json, "trained", totals.trained);
    attn_json_int(&json, "not_trained", totals.buffers);
    attn_json_int(&json, "parameter_bytes", (int64_t)totals.bytes);
    attn_json_int(&json, "held_bytes", (int64_t)held);
    attn_json_int(&json, "training_bytes", (int64_t)(TRAINING_COPIES * totals.bytes));
    cli_parameters_json(&json, attn_model_parameters(model));
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

static int run(cli_call *cli)
{
    attn_translator *translator;
    if (attn_translator_load(&translator, cli->context, cli->words[0]) != ATTN_OK)
        return cli_failed(cli, NULL);
    int code = CLI_OK;
    if (cli->json)
        code = print_json(cli, translator);
    else
        print_info(cli, translator);
    attn_translator_destroy(translator);
    return code;
}

const cli_command cli_info = {
    "info", "say what a model directory holds", usage, description, NULL, 0, NULL, examples, 1, 1, run,
};
