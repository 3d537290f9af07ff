/* SPDX-License-Identifier: MIT
 * attn info: describes a model directory. */
#include "checkpoint_info.h"
#include "commands.h"
#include "foreign.h"
#include "parameters.h"

#include "attn/classify.h"
#include "apps/checkpoint/convert.h"
#include "attn/generate.h"
#include "attn/msa.h"
#include "apps/classifier/classifier.h"
#include "apps/generator/generator.h"
#include "apps/msa/msa.h"
#include "apps/translator/translator.h"
#include "io/directory.h"

#include <string.h>

static const cli_option options[] = {
    CLI_FLAG("values", 0,
             "of a checkpoint: the least and the greatest number of each tensor, its norm and how many NaN it has"),
    CLI_NAMES,
};

static const char *const usage[] = {"DIR", "CHECKPOINT [--values] [--names FILE]", NULL};

static const char description[] =
    "Prints the architecture and settings of the translator, classifier, generator, language model of alignments or "
    "other model in DIR (or of a published MSA Transformer's .pt), every parameter with its shape, and how much memory "
    "it takes: to be used, and to be trained with Adam (parameters, gradients and two moments; activations come on top "
    "and grow with the batch).\n"
    "\n"
    "CHECKPOINT is any file of weights that attn reads, or a directory of Hugging Face's, whatever it belongs to: its "
    "tensors with shapes, types and bytes, the metadata, and the architectures that match their names.";

static const char *const examples[] = {"attn info out/demo", "attn info out/demo --json",
                                       "attn info model.safetensors --values", NULL};

/* Training with Adam needs four numbers for each parameter: the parameter, its gradient and two moments. */
static const double TRAINING_COPIES = 4;

/* Reports whether the encoder and the decoder each have their own value of the key, so that its own is not used. */
static bool halved(const attn_config *config, const char *key)
{
    char encoder[80], decoder[80];
    snprintf(encoder, sizeof encoder, "enc_%s", key);
    snprintf(decoder, sizeof decoder, "dec_%s", key);
    return attn_config_get(config, encoder) && attn_config_get(config, decoder);
}

/* Returns the settings that the model uses, which the caller destroys; NULL: there was no memory. */
static attn_config *settings_of(const cli_call *cli, const attn_model *model)
{
    const attn_config *config = attn_model_config(model);
    attn_config *used = NULL;
    attn_status status = attn_config_create(&used, cli->context);
    for (int64_t i = 0; status == ATTN_OK && i < attn_config_size(config); i++) {
        const char *key = attn_config_key(config, i);
        status = halved(config, key) ? ATTN_OK : attn_config_set(used, key, attn_config_get(config, key));
    }
    if (status == ATTN_OK)
        return used;
    attn_config_destroy(used);
    return NULL;
}

static void print_config(const attn_config *config)
{
    char text[512];
    for (int64_t i = 0; i < attn_config_size(config); i++) {
        const char *key = attn_config_key(config, i);
        cli_print("  %-20s %s\n", key, cli_value_text(attn_config_get(config, key), text, sizeof text));
    }
}

/* The model of a directory. It is one of five kinds; the fields of the other kinds are NULL. */
typedef struct subject {
    attn_translator *translator;
    attn_classifier *classifier;
    attn_generator *generator;
    attn_msa *msa;
    attn_model *bare; /* a model that is neither a translator, a classifier, a generator nor an MSA Transformer */
    const attn_model *model;
} subject;

static void print_vocabularies(const attn_translator *translator)
{
    static const char *const names[] = {[ATTN_SIDE_SOURCE] = "source", [ATTN_SIDE_TARGET] = "target"};
    char count[32];
    puts("\nVocabularies");
    for (int side = 0; side < 2; side++) {
        const attn_vocab *vocab = attn_translator_vocab(translator, (attn_side)side);
        printf("  %-20s %s %s\n", names[side], cli_count(attn_vocab_size(vocab), count),
               attn_vocab_has_subwords(vocab) ? "pieces" : "words");
    }
}

static void print_classes(const attn_classifier *classifier)
{
    attn_image_shape shape = attn_classifier_shape(classifier);
    puts("\nImages");
    printf("  %-20s %lld x %lld, %s\n  %-20s", "pixels", (long long)shape.width, (long long)shape.height,
           shape.channels == 1 ? "grey" : "in colour", "classes");
    for (int64_t i = 0; i < attn_classifier_class_count(classifier); i++)
        cli_print("%s%s", i ? ", " : " ", attn_classifier_class_name(classifier, i));
    putchar('\n');
}

static void print_contacts(const attn_msa *msa)
{
    printf("\nContacts\n  %-20s %s\n", "regression",
           attn_msa_has_regression(msa) ? "fitted" : "none: attn train contacts fits it");
}

static void print_info(const cli_call *cli, const subject *of, const attn_config *settings)
{
    const attn_model *model = of->model;
    const attn_architecture *architecture = attn_model_architecture(model);
    const attn_named_list *list = attn_model_parameters(model);
    cli_totals totals = cli_parameters_total(list);
    char a[32], b[32], c[32];
    size_t held;
    attn_context_memory(cli->context, &held, NULL, NULL);
    printf("%s: %s\n%s\n\nSettings\n", architecture->name, architecture->summary, architecture->source);
    print_config(settings);
    if (of->translator)
        print_vocabularies(of->translator);
    else if (of->classifier)
        print_classes(of->classifier);
    else if (of->msa)
        print_contacts(of->msa);
    printf("\nParameters\n  %s trained numbers in %lld tensors, listed below", cli_count(totals.trained, a),
           (long long)totals.tensors);
    if (totals.buffers > 0)
        printf("; %s more are not trained", cli_count(totals.buffers, b));
    printf("\n\nMemory\n  %-20s %s\n  %-20s %s\n  %-20s %s, plus activations\n", "parameters",
           cli_bytes(totals.bytes, a), "in use now", cli_bytes((double)held, b), "training with Adam",
           cli_bytes(TRAINING_COPIES * totals.bytes, c));
    puts("\nTensors");
    cli_parameters_print(list);
}

static int print_json(const cli_call *cli, const subject *of, const attn_config *settings)
{
    const attn_model *model = of->model;
    cli_totals totals = cli_parameters_total(attn_model_parameters(model));
    attn_json json;
    size_t held;
    attn_context_memory(cli->context, &held, NULL, NULL);
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_text(&json, "architecture", attn_model_architecture(model)->name);
    attn_json_config(&json, "settings", settings);
    if (of->translator) {
        attn_json_int(&json, "source_words", attn_vocab_size(attn_translator_vocab(of->translator, ATTN_SIDE_SOURCE)));
        attn_json_int(&json, "target_words", attn_vocab_size(attn_translator_vocab(of->translator, ATTN_SIDE_TARGET)));
    } else if (of->classifier) {
        attn_json_int(&json, "classes", attn_classifier_class_count(of->classifier));
    } else if (of->msa) {
        attn_json_bool(&json, "contact_regression", attn_msa_has_regression(of->msa));
    }
    attn_json_int(&json, "trained", totals.trained);
    attn_json_int(&json, "not_trained", totals.buffers);
    attn_json_int(&json, "parameter_bytes", (int64_t)totals.bytes);
    attn_json_int(&json, "held_bytes", (int64_t)held);
    attn_json_int(&json, "training_bytes", (int64_t)(TRAINING_COPIES * totals.bytes));
    cli_parameters_json(&json, attn_model_parameters(model));
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

/* Returns true if the directory has one of attn's models, but not the vocabularies of a translator. */
static bool is_bare(const attn__identity *is)
{
    static const char *const vocabularies[] = {"source.vocab", "target.vocab", "source.spm", "target.spm",
                                               "decoder.yml"};
    return is->form == ATTN__FORM_OWN &&
           !attn__file_in(is->path, vocabularies, sizeof vocabularies / sizeof *vocabularies);
}

static attn_status load(const cli_call *cli, subject *of, const attn__identity *is)
{
    const char *directory = cli->words[0];
    attn_status status;
    *of = (subject){0};
    bool classifier = is->product == ATTN__PRODUCT_CLASSIFIER, generator = is->product == ATTN__PRODUCT_GENERATOR;
    bool msa = is->product == ATTN__PRODUCT_MSA;
    if (classifier) {
        status = attn_classifier_load(&of->classifier, cli->context, directory, NULL);
        of->model = status == ATTN_OK ? attn_classifier_model(of->classifier) : NULL;
    } else if (generator) {
        status = attn_generator_load(&of->generator, cli->context, directory, NULL);
        of->model = status == ATTN_OK ? attn_generator_model(of->generator) : NULL;
    } else if (msa) {
        status = attn_msa_load(&of->msa, cli->context, directory, NULL);
        of->model = status == ATTN_OK ? attn_msa_model(of->msa) : NULL;
    } else if (is_bare(is)) {
        status = attn_model_load(&of->bare, cli->context, directory, NULL);
        of->model = of->bare;
    } else {
        status = attn_translator_load(&of->translator, cli->context, directory, NULL);
        of->model = status == ATTN_OK ? attn_translator_model(of->translator) : NULL;
    }
    return status;
}

/* Returns true if the path has weights, but is neither a model directory of attn, a translator in Marian's own or in
 * Hugging Face's form, nor the file of a published MSA Transformer. */
static bool is_checkpoint(const cli_call *cli, attn__identity *is)
{
    attn_checkpoint_kind kind = ATTN_CHECKPOINT_OTHER;
    bool translates = is->form == ATTN__FORM_MARIAN || strcmp(is->type, "marian") == 0 ||
                      attn__file_in(is->path, (const char *const[]){"decoder.yml"}, 1);
    if (is->directory)
        return is->weights && is->form != ATTN__FORM_OWN && !translates &&
               (is->config || !attn_file_exists(is->settings));
    if (is->form == ATTN__FORM_FILE && attn__checkpoint_kind(&kind, is) != ATTN_OK)
        cli_forgive(cli);
    return is->form == ATTN__FORM_FILE && kind != ATTN_CHECKPOINT_MSA;
}

static int run(cli_call *cli)
{
    subject of;
    attn__identity is;
    attn_status status = attn__identify(&is, cli->context, cli->words[0]);
    bool checkpoint =
        status == ATTN_OK && (cli_flag(cli, "values") || *cli_text(cli, "names") || is_checkpoint(cli, &is));
    if (status == ATTN_OK && !checkpoint)
        status = load(cli, &of, &is);
    attn__identity_end(&is);
    if (checkpoint)
        return cli_checkpoint_info(cli, cli->words[0]);
    if (status != ATTN_OK)
        return cli_failed(cli, NULL);
    int code = CLI_OK;
    attn_config *settings = settings_of(cli, of.model);
    if (!settings)
        code = cli_failed(cli, NULL);
    else if (cli->json)
        code = print_json(cli, &of, settings);
    else
        print_info(cli, &of, settings);
    attn_config_destroy(settings);
    attn_translator_destroy(of.translator);
    attn_classifier_destroy(of.classifier);
    attn_generator_destroy(of.generator);
    attn_msa_destroy(of.msa);
    attn_model_destroy(of.bare);
    return code;
}

const cli_command cli_info = {
    "info", "print what a model directory has", usage, description, CLI_OPTIONS(options), NULL, examples, 1, 1, run,
};
