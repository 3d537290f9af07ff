/* SPDX-License-Identifier: MIT
 *
 * The table of a translator's settings, and filling it in.  Defaults are the Transformer's; presets change
 * them for the Bahdanau model and for Dive into Deep Learning's way.
 */
#include "attn/translate.h"

#include "apps/settings.h"
#include "base/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const models[] = {"transformer", "bahdanau", NULL};
static const char *const compats[] = {"none", "d2l", NULL};
static const char *const optimisers[] = {"adam", "adamw", "sgd", NULL};
static const char *const keeps[] = {"best", "last", NULL};
static const char *const schedules[] = {"constant", "cosine", "inverse-sqrt", NULL};

#define TEXT(name, otherwise, choices, doc) {name, ATTN_VALUE_TEXT, otherwise, 0, 0, choices, doc}
#define INT(name, otherwise, least, most, doc) {name, ATTN_VALUE_INT, otherwise, least, most, NULL, doc}
#define REAL(name, otherwise, least, most, doc) {name, ATTN_VALUE_REAL, otherwise, least, most, NULL, doc}
#define BOOL(name, otherwise, doc) {name, ATTN_VALUE_BOOL, otherwise, 0, 0, NULL, doc}

static const attn_key keys[] = {
    TEXT("model", "transformer", models, "the kind of model"),
    TEXT("compat", "none", compats, "d2l: the choices of Dive into Deep Learning, right or wrong (see docs/translate.md)"),
    INT("seed", "1", 0, 9e15, "of everything random: first weights, order, dropout, split"),
    /* data */
    INT("max_examples", "0", 0, 1e9, "read at most so many pairs; 0: all"),
    INT("min_frequency", "2", 1, 1e9, "words seen less often are unknown"),
    INT("max_words", "0", 0, 1e9, "most words in each vocabulary; 0: no limit"),
    INT("max_tokens", "64", 2, 1000, "longer sentences are cut"),
    REAL("valid", "0.05", 0, 0.9, "share of the source sentences kept for validation"),
    REAL("test", "0.05", 0, 0.9, "share of the source sentences kept for testing"),
    BOOL("space_before_marks", "true", "translations keep the space before ! ? ; :, as French has it"),
    /* model */
    INT("num_hiddens", "256", 1, 65536, "width of the model"),
    INT("ffn_num_hiddens", "1024", 1, 1048576, "width of the feed-forward layers (transformer)"),
    INT("num_heads", "4", 1, 1024, "attention heads (transformer)"),
    INT("num_blks", "3", 1, 64, "layers of encoder and decoder each (transformer)"),
    BOOL("use_bias", "false", "biases in the encoder's attention (transformer)"),
    INT("embed_size", "256", 1, 65536, "width of the embeddings (bahdanau)"),
    INT("num_layers", "2", 1, 100, "layers of encoder and decoder each (bahdanau)"),
    REAL("dropout", "0.1", 0, 0.95, "share of activations dropped in training"),
    /* training */
    INT("epochs", "10", 0, 1e6, "passes over the data"),
    INT("batch", "64", 1, 65536, "sentences in a step"),
    TEXT("optimiser", "adam", optimisers, "adam, adamw or sgd with momentum"),
    REAL("rate", "0.0007", 1e-12, 100, "highest learning rate"),
    TEXT("schedule", "inverse-sqrt", schedules, "how the rate falls after the warm-up"),
    INT("warmup", "1000", 0, 1e9, "steps in which the rate rises from 0"),
    REAL("weight_decay", "0", 0, 10, "pull of the weights towards 0"),
    REAL("momentum", "0.9", 0, 0.9999, "of sgd"),
    REAL("clip", "1", 0, 1e9, "largest global norm of the gradient; 0: no limit"),
    REAL("label_smoothing", "0.1", 0, 0.9, "share of each label spread over all words"),
    INT("patience", "0", 0, 1e6, "stop after so many epochs without a better validation loss; 0: never"),
    TEXT("keep", "best", keeps, "which parameters are the model's: those best on the validation part, or the last"),
    INT("save_every", "0", 0, 1e9, "steps between checkpoints inside an epoch; 0: at its end only"),
};
enum { KEYS = sizeof keys / sizeof *keys };

/* What a model or a compat mode changes of the defaults. */
static const struct preset {
    const char *model, *compat; /* NULL: any */
    const char *key, *otherwise;
} presets[] = {
    {"bahdanau", NULL, "dropout", "0.2"},
    {"bahdanau", NULL, "rate", "0.001"},
    {"bahdanau", NULL, "warmup", "200"},
    {NULL, "d2l", "max_examples", "640"},
    {NULL, "d2l", "max_tokens", "9"},
    {NULL, "d2l", "ffn_num_hiddens", "64"},
    {NULL, "d2l", "num_blks", "2"},
    {NULL, "d2l", "dropout", "0.2"},
    {NULL, "d2l", "epochs", "30"},
    {NULL, "d2l", "batch", "128"},
    {NULL, "d2l", "rate", "0.0015"},
    {NULL, "d2l", "schedule", "constant"},
    {NULL, "d2l", "warmup", "0"},
    {NULL, "d2l", "label_smoothing", "0"},
    {NULL, "d2l", "keep", "last"},
    {"bahdanau", "d2l", "rate", "0.005"},
};

const attn_key *attn_translator_keys(int *n)
{
    *n = KEYS;
    return keys;
}

static const attn_key *find_key(const char *name)
{
    for (int i = 0; i < KEYS; i++) {
        if (strcmp(keys[i].name, name) == 0)
            return &keys[i];
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------------- checking */

static attn_status refuse_choice(attn_context *context, const attn_key *key, const char *value)
{
    char list[256] = "";
    for (int i = 0; key->choices[i]; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", key->choices[i]);
    return attn__fail(context, ATTN_ARGUMENT, "%s cannot be \"%s\"; it is one of: %s", key->name, value, list);
}

static attn_status check_text(attn_context *context, const attn_key *key, const char *value)
{
    for (int i = 0; key->choices && key->choices[i]; i++) {
        if (strcmp(key->choices[i], value) == 0)
            return ATTN_OK;
    }
    return key->choices ? refuse_choice(context, key, value) : ATTN_OK;
}

static attn_status check_value(attn_context *context, const attn_key *key, const attn_value *value)
{
    static const char *const wanted[] = {[ATTN_VALUE_BOOL] = "true or false", [ATTN_VALUE_INT] = "a whole number",
                                         [ATTN_VALUE_REAL] = "a number", [ATTN_VALUE_TEXT] = "a text"};
    bool fits = value->type == key->type || (key->type == ATTN_VALUE_REAL && value->type == ATTN_VALUE_INT);
    if (!fits)
        return attn__fail(context, ATTN_ARGUMENT, "%s must be %s", key->name, wanted[key->type]);
    if (key->type == ATTN_VALUE_TEXT)
        return check_text(context, key, value->text);
    if (key->type != ATTN_VALUE_BOOL && !(value->real >= key->least && value->real <= key->most))
        return attn__fail(context, ATTN_ARGUMENT, "%s cannot be %g; it must lie between %g and %g", key->name,
                          value->real, key->least, key->most);
    return ATTN_OK;
}

static attn_status check_given(attn_context *context, const attn_config *given)
{
    for (int64_t i = 0; given && i < attn_config_size(given); i++) {
        const char *name = attn_config_key(given, i);
        const attn_key *key = find_key(name);
        if (!key)
            return attn__fail(context, ATTN_ARGUMENT, "there is no setting \"%s\"", name);
        attn_status status = check_value(context, key, attn_config_get(given, name));
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

/* -------------------------------------------------------------------------------------------- filling */

static const char *default_of(const attn_key *key, const char *model, const char *compat)
{
    const char *otherwise = key->otherwise;
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        const struct preset *p = &presets[i];
        if (strcmp(p->key, key->name) == 0 && (!p->model || strcmp(p->model, model) == 0) &&
            (!p->compat || strcmp(p->compat, compat) == 0))
            otherwise = p->otherwise; /* later ones are more special */
    }
    return otherwise;
}

static attn_status set_default(attn_config *config, const attn_key *key, const char *text)
{
    switch (key->type) {
    case ATTN_VALUE_BOOL:
        return attn_config_set_bool(config, key->name, strcmp(text, "true") == 0);
    case ATTN_VALUE_INT:
        return attn_config_set_int(config, key->name, strtoll(text, NULL, 10));
    case ATTN_VALUE_REAL:
        return attn_config_set_real(config, key->name, strtod(text, NULL));
    default:
        return attn_config_set_text(config, key->name, text);
    }
}

static attn_status fill(attn_config *settings, const attn_config *given, const char *model, const char *compat)
{
    attn_status status = ATTN_OK;
    for (int i = 0; i < KEYS && status == ATTN_OK; i++) {
        const attn_value *value = given ? attn_config_get(given, keys[i].name) : NULL;
        if (!value)
            status = set_default(settings, &keys[i], default_of(&keys[i], model, compat));
        else if (keys[i].type == ATTN_VALUE_REAL)
            status = attn_config_set_real(settings, keys[i].name, value->real);
        else
            status = attn_config_set(settings, keys[i].name, value);
    }
    return status;
}

attn_status attn_translator_settings(attn_config **settings, attn_context *context, const attn_config *given)
{
    *settings = NULL;
    attn_status status = check_given(context, given);
    if (status != ATTN_OK)
        return status;
    const char *model = given ? attn_config_text(given, "model", "transformer") : "transformer";
    const char *compat = given ? attn_config_text(given, "compat", "none") : "none";
    status = attn_config_create(settings, context);
    if (status == ATTN_OK)
        status = fill(*settings, given, model, compat);
    if (status != ATTN_OK) {
        attn_config_destroy(*settings);
        *settings = NULL;
    }
    return status;
}

/* -------------------------------------------------------------------------------------------- reading */

attn_compat attn__setting_compat(const attn_config *settings)
{
    return strcmp(attn_config_text(settings, "compat", "none"), "d2l") == 0 ? ATTN_COMPAT_D2L : ATTN_COMPAT_NONE;
}

/* A share of 0 means none here, and the default there. */
static double share(const attn_config *settings, const char *key)
{
    double value = attn_config_real(settings, key, 0);
    return value > 0 ? value : -1;
}

attn_split_options attn__setting_split(const attn_config *settings)
{
    return (attn_split_options){.compat = attn__setting_compat(settings),
                                .seed = (uint64_t)attn_config_int(settings, "seed", 1),
                                .valid = share(settings, "valid"),
                                .test = share(settings, "test")};
}

static int choice(const char *const *choices, const char *value)
{
    int i = 0;
    while (choices[i] && strcmp(choices[i], value) != 0)
        i++;
    return i;
}

attn_training_options attn__setting_training(const attn_config *s, int64_t steps_per_epoch)
{
    static const attn_optimiser_kind kinds[] = {ATTN_ADAM, ATTN_ADAMW, ATTN_SGD, ATTN_ADAM};
    static const attn_schedule_kind falls[] = {ATTN_CONSTANT_RATE, ATTN_COSINE, ATTN_INVERSE_SQUARE_ROOT,
                                               ATTN_CONSTANT_RATE};
    int64_t epochs = attn_config_int(s, "epochs", 0);
    return (attn_training_options){
        .epochs = epochs,
        .seed = (uint64_t)attn_config_int(s, "seed", 1),
        .patience = attn_config_int(s, "patience", 0),
        .save_every = attn_config_int(s, "save_every", 0),
        .schedule = {.kind = falls[choice(schedules, attn_config_text(s, "schedule", ""))],
                     .peak = attn_config_real(s, "rate", 0),
                     .warmup = attn_config_int(s, "warmup", 0),
                     .total = epochs * steps_per_epoch,
                     .floor = 0.01},
        .optimiser = {.kind = kinds[choice(optimisers, attn_config_text(s, "optimiser", ""))],
                      .momentum = attn_config_real(s, "momentum", 0),
                      .weight_decay = attn_config_real(s, "weight_decay", 0),
                      .clip_norm = attn_config_real(s, "clip", 0)},
    };
}
