/* SPDX-License-Identifier: MIT */
#include "apps/checkpoint/encoder_settings.h"

#include "apps/checkpoint/plain_settings.h"
#include "attn/io.h"
#include "base/context.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A conversion from Hugging Face's settings to attn's. */
typedef struct conversion {
    attn_context *context;
    const attn_config *given;
    const char *settings; /* path of config.json, for messages */
    attn_config *made;
} conversion;

static attn_status set_int(const conversion *c, const char *key, int64_t value)
{
    return attn_config_set_int(c->made, key, value);
}

/* Sets an integer setting to the value of `from`, which has the default `otherwise`. */
static attn_status take_int(const conversion *c, const char *key, const char *from, int64_t otherwise)
{
    return set_int(c, key, attn_config_int(c->given, from, otherwise));
}

static attn_status take_real(const conversion *c, const char *key, const char *from, double otherwise)
{
    return attn_config_set_real(c->made, key, attn_config_real(c->given, from, otherwise));
}

static attn_status take_activation(const conversion *c, const char *key, const char *from, const char *otherwise)
{
    static const char *const names[][2] = {{"gelu", "gelu"},           {"gelu_python", "gelu"},
                                           {"gelu_new", "gelu_tanh"},  {"gelu_pytorch_tanh", "gelu_tanh"},
                                           {"gelu_fast", "gelu_tanh"}, {"quick_gelu", "gelu_sigmoid"},
                                           {"relu", "relu"},           {"silu", "silu"},
                                           {"swish", "silu"},          {"tanh", "tanh"}};
    const char *found = attn_config_text(c->given, from, otherwise);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(found, names[i][0]) == 0)
            return attn_config_set_text(c->made, key, names[i][1]);
    return attn__fail(
        c->context, ATTN_ERROR_UNSUPPORTED,
        "%s: \"%s\" is \"%.60s\"; supported: gelu, gelu_python, gelu_new, gelu_pytorch_tanh, gelu_fast, quick_gelu, "
        "relu, silu, swish, tanh",
        c->settings, from, found);
}

static attn_status check(const conversion *c, const attn__plain_setting *plain, size_t n)
{
    return attn__plain_check(c->context, c->given, c->settings, "", plain, n);
}
#define CHECK(c, plain) check(c, plain, sizeof(plain) / sizeof *(plain))

/* ------------------------------------------------------------------------------------------------ each family */

static attn_status convert_bert(const conversion *c)
{
    static const attn__plain_setting plain[] = {
        {"position_embedding_type", {"absolute"}, "only absolute positions are supported for BERT and RoBERTa"}};
    attn_status status = CHECK(c, plain);
    if (status == ATTN_OK)
        status = take_activation(c, "activation", "hidden_act", "gelu");
    if (status == ATTN_OK)
        status = take_int(c, "num_heads", "num_attention_heads", 12);
    return status == ATTN_OK ? take_real(c, "eps", "layer_norm_eps", 1e-12) : status;
}

static attn_status convert_roberta(const conversion *c)
{
    static const attn__plain_setting plain[] = {
        {"hidden_act", {"gelu"}, "only gelu is supported for RoBERTa, whose heads always have gelu"}};
    attn_status status = CHECK(c, plain);
    if (status == ATTN_OK)
        status = convert_bert(c);
    return status == ATTN_OK ? set_int(c, "position_offset", attn_config_int(c->given, "pad_token_id", 1) + 1) : status;
}

static attn_status convert_distilbert(const conversion *c)
{
    attn_status status = take_activation(c, "activation", "activation", "gelu");
    return status == ATTN_OK ? take_int(c, "num_heads", "n_heads", attn_config_int(c->given, "num_attention_heads", 12))
                             : status;
}

static attn_status convert_esm(const conversion *c)
{
    static const attn__plain_setting plain[] = {
        {"position_embedding_type", {"rotary"}, "only rotary positions are supported for ESM-2"},
        {"is_folding_model", {"false"}, "folding models (ESMFold) are not supported"}};
    const char *positions = attn_config_text(c->given, "position_embedding_type", NULL);
    bool masks = attn_config_bool(c->given, "token_dropout", false);
    if (!positions)
        return attn__fail(c->context, ATTN_ERROR_UNSUPPORTED,
                          "%s: \"position_embedding_type\" is missing; ESM-2 needs \"rotary\"", c->settings);
    attn_status status = CHECK(c, plain);
    if (status == ATTN_OK)
        status = take_int(c, "num_heads", "num_attention_heads", 12);
    if (status == ATTN_OK)
        status = take_real(c, "eps", "layer_norm_eps", 1e-12);
    if (status == ATTN_OK)
        status = take_int(c, "max_len", "max_position_embeddings", 1026);
    if (status == ATTN_OK)
        status = take_real(c, "rotary_base", "rope_theta", 10000);
    return status == ATTN_OK ? set_int(c, "masked_token", masks ? attn_config_int(c->given, "mask_token_id", -1) : -1)
                             : status;
}

/* Returns the period of the global blocks of ModernBERT: 0 if all blocks are global, -1 if they have no period from the
 * first block on. */
static int64_t global_period(const attn_config *given)
{
    const attn_config_value *types = attn_config_get(given, "layer_types");
    int64_t period = attn_config_int(given, "global_attn_every_n_layers", 3);
    if (!types || types->type != ATTN_CONFIG_TYPE_TEXTS || types->n == 0)
        return period <= 1 ? 0 : period;
    for (period = 1; period < types->n && strcmp(types->texts[period], "full_attention") != 0;)
        period++;
    for (int64_t i = 0; i < types->n; i++)
        if (strcmp(types->texts[i], i % period == 0 ? "full_attention" : "sliding_attention") != 0)
            return -1;
    return period <= 1 ? 0 : period;
}

/* Sets the base and the scale of rotary positions of one kind of blocks of ModernBERT. */
static attn_status take_rope(const conversion *c, const char *key, const char *kind, const char *older,
                             double otherwise)
{
    char name[96], prefix[96];
    snprintf(name, sizeof name, "rope_parameters.%s.rope_theta", kind);
    snprintf(prefix, sizeof prefix, "rope_parameters.%s.", kind);
    static const attn__plain_setting plain[] = {
        {"rope_type", {"default"}, "only rotary positions without scaling (default) are supported"},
        {"partial_rotary_factor", {"1"}, "only rotary positions over all channels (1) are supported"}};
    attn_status status =
        attn__plain_check(c->context, c->given, c->settings, prefix, plain, sizeof plain / sizeof *plain);
    if (status != ATTN_OK)
        return status;
    return attn_config_set_real(c->made, key,
                                attn_config_real(c->given, name, attn_config_real(c->given, older, otherwise)));
}

static attn_status convert_modernbert(const conversion *c)
{
    static const attn__plain_setting plain[] = {
        {"rope_scaling.rope_type", {"default"}, "only rotary positions without scaling (default) are supported"},
        {"rope_scaling.type", {"default"}, "only rotary positions without scaling (default) are supported"},
        {"classifier_pooling", {"cls", "mean"}, "supported: cls, mean"}};
    const char *hidden = attn_config_text(c->given, "hidden_activation", "gelu");
    const char *head = attn_config_text(c->given, "classifier_activation", "gelu");
    int64_t period = global_period(c->given), window = attn_config_int(c->given, "local_attention", 128) / 2;
    attn_status status = CHECK(c, plain);
    if (status == ATTN_OK && period < 0)
        status = attn__fail(c->context, ATTN_ERROR_UNSUPPORTED,
                            "%s: \"layer_types\" has no period; supported: full_attention in the first block and in "
                            "every n-th block after it, and sliding_attention in the others",
                            c->settings);
    if (status == ATTN_OK && strcmp(hidden, head) != 0)
        status = attn__fail(
            c->context, ATTN_ERROR_UNSUPPORTED,
            "%s: \"hidden_activation\" is \"%.40s\" and \"classifier_activation\" is \"%.40s\"; they must be "
            "the same",
            c->settings, hidden, head);
    if (status == ATTN_OK)
        status = take_activation(c, "activation", "hidden_activation", "gelu");
    if (status == ATTN_OK)
        status = take_activation(c, "pooler_activation", "classifier_activation", "gelu");
    if (status == ATTN_OK)
        status = take_int(c, "num_heads", "num_attention_heads", 12);
    if (status == ATTN_OK)
        status = take_real(c, "eps", "norm_eps", 1e-5);
    if (status == ATTN_OK)
        status = take_int(c, "max_len", "max_position_embeddings", 8192);
    if (status == ATTN_OK)
        status = set_int(c, "local_window", period ? window : 0);
    if (status == ATTN_OK)
        status = set_int(c, "global_every", period ? period : 1);
    if (status == ATTN_OK)
        status = take_rope(c, "rotary_base", "full_attention", "global_rope_theta", 160000);
    if (status == ATTN_OK)
        status = take_rope(c, "local_rotary_base", "sliding_attention", "local_rope_theta", 10000);
    bool mean = strcmp(attn_config_text(c->given, "classifier_pooling", "cls"), "mean") == 0;
    return status == ATTN_OK ? attn_config_set_text(c->made, "pooled_from", mean ? "mean" : "first") : status;
}

/* ------------------------------------------------------------------------------------------------ all */

static const struct family {
    const char *type, *names, *classes; /* classes: the names file of classifiers, if they have one of their own */
    attn_status (*convert)(const conversion *c);
} families[] = {
    {"bert", "bert-huggingface", NULL, convert_bert},
    {"roberta", "roberta-huggingface", NULL, convert_roberta},
    {"xlm-roberta", "roberta-huggingface", NULL, convert_roberta},
    {"camembert", "roberta-huggingface", NULL, convert_roberta},
    {"distilbert", "distilbert-huggingface", NULL, convert_distilbert},
    {"modernbert", "modernbert-huggingface", "modernbert-huggingface-classes", convert_modernbert},
    {"esm", "esm2-huggingface", NULL, convert_esm},
};

static const struct family *family_of(const attn_config *config)
{
    const char *type = attn_config_text(config, "model_type", "");
    if (attn_config_get(config, "architecture"))
        return NULL;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(type, families[i].type) == 0)
            return &families[i];
    return NULL;
}

/* Returns the class that wrote the weights, such as "BertForMaskedLM", or "" if it is not known. */
static const char *class_of(const attn_config *config)
{
    const attn_config_value *classes = attn_config_get(config, "architectures");
    return classes && classes->type == ATTN_CONFIG_TYPE_TEXTS && classes->n > 0 ? classes->texts[0] : "";
}

const char *attn__encoder_names(const attn_config *config)
{
    const struct family *family = family_of(config);
    if (!family)
        return NULL;
    return family->classes && attn__ends_with(class_of(config), "ForSequenceClassification") ? family->classes
                                                                                             : family->names;
}

static attn_status check_class(const conversion *c)
{
    static const char *const known[] = {"Model", "ForMaskedLM", "ForSequenceClassification", "ForPreTraining"};
    const char *name = class_of(c->given);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!*name || attn__ends_with(name, known[i]))
            return ATTN_OK;
    return attn__fail(
        c->context, ATTN_ERROR_UNSUPPORTED,
        "%s: the weights are those of the class %.60s; supported: classes whose names end in Model, ForMaskedLM, "
        "ForSequenceClassification or ForPreTraining",
        c->settings, name);
}

static attn_status check_common(const conversion *c)
{
    static const attn__plain_setting plain[] = {
        {"auto_map.AutoModel", {NULL}, "models with code of their own are not supported"},
        {"is_decoder", {"false"}, "only encoders are supported"},
        {"add_cross_attention", {"false"}, "only encoders are supported"},
        {"is_encoder_decoder", {"false"}, "only encoders are supported"},
        {"tie_word_embeddings",
         {"true"},
         "only a head of masked tokens that shares the embedding's table is supported"}};
    return CHECK(c, plain);
}

attn_status attn__encoder_settings(attn_config **config, attn_context *context, const char *settings)
{
    conversion c = {.context = context, .given = *config, .settings = settings};
    const struct family *family = family_of(*config);
    attn_status status = check_common(&c);
    if (status == ATTN_OK)
        status = check_class(&c);
    if (status == ATTN_OK)
        status = attn_config_create(&c.made, context);
    if (status == ATTN_OK)
        status = attn_config_set_text(c.made, "architecture", "transformer-encoder");
    if (status == ATTN_OK)
        status = family->convert(&c);
    for (int64_t i = 0; i < attn_config_size(*config) && status == ATTN_OK; i++) {
        const char *key = attn_config_key(*config, i);
        if (strncmp(key, "id2label.", strlen("id2label.")) == 0)
            status = attn_config_set(c.made, key, attn_config_get(*config, key));
    }
    if (status != ATTN_OK) {
        attn_config_destroy(c.made);
        return status;
    }
    attn_config_destroy(*config);
    *config = c.made;
    return ATTN_OK;
}

attn_status attn__esm2_settings(attn_config *config, attn_context *context, const attn_config *arguments,
                                const char *path)
{
    static const char *const prefixes[] = {"cfg.model.", "args.", "cfg."};
    char key[96];
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        snprintf(key, sizeof key, "%sencoder_attention_heads", prefixes[i]);
        int64_t heads = attn_config_int(arguments, key, 0);
        if (heads <= 0)
            continue;
        snprintf(key, sizeof key, "%stoken_dropout", prefixes[i]);
        attn_status status = attn_config_set_int(config, "num_heads", heads);
        if (status == ATTN_OK && !attn_config_bool(arguments, key, true))
            status = attn_config_set_int(config, "masked_token", -1);
        return status;
    }
    return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                      "%s: its settings have no cfg.model.encoder_attention_heads, so it is not a checkpoint of ESM-2",
                      path);
}
