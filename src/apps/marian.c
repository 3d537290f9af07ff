/* SPDX-License-Identifier: MIT
 *
 * MarianMT as Hugging Face keeps it: its settings as those of the transformer, its parameters under the transformer's
 * names, its way of searching. */
#include "apps/marian.h"

#include "apps/model_directory.h"
#include "base/context.h"
#include "base/system.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bool attn__marian_is(const attn_config *config)
{
    return strcmp(attn_config_text(config, "model_type", ""), "marian") == 0;
}

/* -------------------------------------------------------------------------------------------- settings */

/* Keys of old files that say what this class of model always is. */
static attn_status check_kind(const attn_translator *t, const char *path)
{
    static const struct {
        const char *key;
        bool wanted;
    } flags[] = {{"normalize_before", false},
                 {"add_final_layer_norm", false},
                 {"normalize_embedding", false},
                 {"add_bias_logits", false},
                 {"static_position_embeddings", true}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (attn_config_bool(t->config, flags[i].key, flags[i].wanted) != flags[i].wanted)
            return attn__fail(t->context, ATTN_ERROR_UNSUPPORTED, "%s: \"%s\" is %s, which no MarianMT model is", path,
                              flags[i].key, flags[i].wanted ? "false" : "true");
    }
    return ATTN_OK;
}

static attn_status set_activation(const attn_translator *t, const char *path, attn_config *to)
{
    static const char *const names[][2] = {{"swish", "silu"},         {"silu", "silu"},
                                           {"relu", "relu"},          {"gelu", "gelu"},
                                           {"gelu_new", "gelu_tanh"}, {"quick_gelu", "gelu_sigmoid"}};
    const char *name = attn_config_text(t->config, "activation_function", "gelu");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i][0], name) == 0)
            return attn_config_set_text(to, "activation", names[i][1]);
    }
    return attn__fail(
        t->context, ATTN_ERROR_UNSUPPORTED,
        "%s: activation_function is \"%.40s\", which is none of swish, silu, relu, gelu, gelu_new, quick_gelu", path,
        name);
}

static attn_status set_sizes(const attn_translator *t, const char *path, attn_config *to)
{
    static const char *const sizes[][2] = {{"d_model", "num_hiddens"},
                                           {"encoder_layers", "enc_num_blks"},
                                           {"decoder_layers", "dec_num_blks"},
                                           {"encoder_attention_heads", "enc_num_heads"},
                                           {"decoder_attention_heads", "dec_num_heads"},
                                           {"encoder_ffn_dim", "enc_ffn_num_hiddens"},
                                           {"decoder_ffn_dim", "dec_ffn_num_hiddens"},
                                           {"max_position_embeddings", "max_len"},
                                           {"vocab_size", "src_vocab_size"}};
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && status == ATTN_OK; i++) {
        int64_t size = attn_config_int(t->config, sizes[i][0], -1);
        status = size < 0
                     ? attn__fail(t->context, ATTN_ERROR_FORMAT, "%s: the number \"%s\" is missing", path, sizes[i][0])
                     : attn_config_set_int(to, sizes[i][1], size);
    }
    if (status == ATTN_OK)
        status = attn_config_set_int(
            to, "tgt_vocab_size",
            attn_config_int(t->config, "decoder_vocab_size", attn_config_int(t->config, "vocab_size", 0)));
    return status;
}

static attn_status model_config(const attn_translator *t, const char *path, attn_config *to)
{
    bool shared = attn_config_bool(t->config, "share_encoder_decoder_embeddings", true);
    bool tied = attn_config_bool(t->config, "tie_word_embeddings", true);
    bool scaled = attn_config_bool(t->config, "scale_embedding", false);
    attn_status status = set_sizes(t, path, to);
    if (status == ATTN_OK)
        status = set_activation(t, path, to);
    if (status == ATTN_OK)
        status = attn_config_set_text(to, "positions", "halves");
    if (status == ATTN_OK)
        status = attn_config_set_text(to, "embedding_scale", scaled ? "sqrt" : "one");
    if (status == ATTN_OK)
        status = attn_config_set_text(to, "tie", shared && tied ? "all" : tied ? "decoder" : "none");
    if (status == ATTN_OK)
        status = attn_config_set_bool(to, "use_bias", true);
    if (status == ATTN_OK)
        status = attn_config_set_bool(to, "decoder_bias", true);
    if (status == ATTN_OK && attn_config_get(t->config, "layer_norm_eps")) /* a key of attn's own: Marian's differs */
        status = attn_config_set(to, "eps", attn_config_get(t->config, "layer_norm_eps"));
    return status == ATTN_OK ? attn_config_set_real(to, "dropout", attn_config_real(t->config, "dropout", 0.1))
                             : status;
}

static attn_status check_vocabularies(const attn_translator *t, const attn_config *model, const char *path)
{
    int64_t source = attn_config_int(model, "src_vocab_size", 0), target = attn_config_int(model, "tgt_vocab_size", 0);
    if (source == attn_vocab_size(t->source) && target == attn_vocab_size(t->target))
        return ATTN_OK;
    return attn__fail(t->context, ATTN_ERROR_FORMAT,
                      "%s: the model has %lld and %lld pieces, its vocabularies have %lld and %lld", path,
                      (long long)source, (long long)target, (long long)attn_vocab_size(t->source),
                      (long long)attn_vocab_size(t->target));
}

static attn_status build_model(attn_translator *t, const char *path)
{
    attn_config *config = NULL;
    attn_status status = check_kind(t, path);
    if (status == ATTN_OK)
        status = attn_config_create(&config, t->context);
    if (status == ATTN_OK)
        status = model_config(t, path, config);
    if (status == ATTN_OK)
        status = check_vocabularies(t, config, path);
    if (status == ATTN_OK)
        status = attn_model_create(&t->model, t->context, "transformer", config, &(attn_model_options){.blank = true});
    attn_config_destroy(config);
    return status;
}

/* ------------------------------------------------------------------------------------------ parameters */

/* One table of embeddings, or two: which names file brings theirs to the transformer's. */
static const char *names_of(const attn_config *model, bool native)
{
    static const char *const names[2][2] = {{"marian-huggingface-two", "marian-huggingface"},
                                            {"marian-native-two", "marian-native"}};
    return names[native][strcmp(attn_config_text(model, "tie", ""), "all") == 0];
}

/* The output layer's table under its second name, where it is the decoder's: nothing new. */
static bool is_parameter(void *user, const char *name, char *to, size_t size)
{
    const attn_translator *t = user;
    return (strcmp(name, "decoder.dense.weight") != 0 || attn_named_find(attn_model_parameters(t->model), name)) &&
           snprintf(to, size, "%s", name) > 0;
}

static attn_status look_for_bias(attn_translator *t, const char *path, const attn_name_map *names)
{
    attn_checkpoint *weights;
    attn_checkpoint_entry entry;
    attn_status status =
        attn_checkpoint_open(&weights, t->context, path, &(attn_weights_options){.names = names}, NULL);
    t->no_bias = true;
    for (int64_t i = 0; status == ATTN_OK && attn_checkpoint_at(weights, i, &entry); i++)
        t->no_bias = t->no_bias && strcmp(entry.name, "decoder.dense.bias") != 0;
    attn_checkpoint_close(weights);
    return status;
}

static attn_status load_parameters(attn_translator *t, const char *path, bool native, const char *file)
{
    attn_name_map *names;
    attn_status status =
        attn_name_map_read(&names, t->context, file ? file : names_of(attn_model_config(t->model), native));
    attn_weights_options options = {.names = names, .rename = is_parameter, .rename_user = t};
    if (status == ATTN_OK)
        status = look_for_bias(t, path, names);
    if (status == ATTN_OK)
        status = attn_weights_load(attn_model_parameters(t->model), path, &options, NULL, NULL);
    attn_name_map_destroy(names);
    return status;
}

/* ------------------------------------------------------------------------------------------- searching */

/* Of `how`, the settings of the search; `path` is their file. */
static double search_number(const attn_config *how, const char *key, double otherwise)
{
    const attn_config_value *value = attn_config_get(how, key);
    return value && value->type == ATTN_CONFIG_TYPE_INT    ? (double)value->integer
           : value && value->type == ATTN_CONFIG_TYPE_REAL ? value->real
                                                           : otherwise;
}

/* Lists of one token each, which is all that Marian's have. */
static attn_status read_banned(attn_translator *t, const attn_config *how, const char *path)
{
    char key[48];
    const attn_config_value *value = attn_config_get(how, "bad_words_ids");
    int64_t n = 0;
    if (value && value->type != ATTN_CONFIG_TYPE_NULL && !(value->type == ATTN_CONFIG_TYPE_INTS && value->n == 0))
        return attn__fail(t->context, ATTN_ERROR_FORMAT, "%s: \"bad_words_ids\" is no list of lists", path);
    for (;; n++) {
        snprintf(key, sizeof key, "bad_words_ids.%d", (int)n);
        value = attn_config_get(how, key);
        if (!value)
            break;
        if (value->type != ATTN_CONFIG_TYPE_INTS || value->n != 1)
            return attn__fail(t->context, ATTN_ERROR_UNSUPPORTED, "%s: \"%s\": only single tokens can be banned", path,
                              key);
        if (value->integers[0] < 0 || value->integers[0] > INT32_MAX)
            return attn__fail(t->context, ATTN_ERROR_FORMAT, "%s: \"%s\" holds %lld, which is no token", path, key,
                              (long long)value->integers[0]);
        int32_t *more = attn__grow(t->context, t->search.banned, n, sizeof *more);
        if (!more)
            return ATTN_ERROR_MEMORY;
        t->search.banned = more;
        more[n] = (int32_t)value->integers[0];
        t->search.nbanned = n + 1;
    }
    return ATTN_OK;
}

/* Whether the value says what a search without it does. */
static bool is_neutral(const attn_config_value *value, double neutral)
{
    switch (value->type) {
    case ATTN_CONFIG_TYPE_NULL:
        return true;
    case ATTN_CONFIG_TYPE_BOOL:
        return (value->boolean ? 1 : 0) == neutral;
    case ATTN_CONFIG_TYPE_INT:
        return (double)value->integer == neutral;
    case ATTN_CONFIG_TYPE_REAL:
        return value->real == neutral;
    case ATTN_CONFIG_TYPE_INTS:
        return value->n == 0 || (value->n == 1 && (double)value->integers[0] == neutral);
    default:
        return false;
    }
}

/* Settings that change sentences in ways that are not done here must not be passed over. */
static attn_status check_search(const attn_translator *t, const attn_config *how, const char *path)
{
    const double eos = attn_vocab_special(t->target, ATTN_SPECIAL_EOS);
    const double start = attn_vocab_special(t->target, ATTN_SPECIAL_BOS);
    const struct {
        const char *key;
        double neutral;
    } keys[] = {{"no_repeat_ngram_size", 0},
                {"renormalize_logits", 0},
                {"do_sample", 0},
                {"min_length", 0},
                {"min_new_tokens", 0},
                {"repetition_penalty", 1},
                {"encoder_repetition_penalty", 1},
                {"encoder_no_repeat_ngram_size", 0},
                {"diversity_penalty", 0},
                {"num_beam_groups", 1},
                {"forced_bos_token_id", -1},
                {"forced_eos_token_id", eos},
                {"eos_token_id", eos},
                {"decoder_start_token_id", start},
                {"suppress_tokens", -1},
                {"begin_suppress_tokens", -1}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const attn_config_value *value = attn_config_get(how, keys[i].key);
        if (value && !is_neutral(value, keys[i].neutral))
            return attn__fail(t->context, ATTN_ERROR_UNSUPPORTED, "%s: this value of \"%s\" is not supported", path,
                              keys[i].key);
    }
    return ATTN_OK;
}

/* What is a number here must be one, and not below the least that makes sense; null is like none. */
static attn_status check_numbers(const attn_translator *t, const attn_config *how, const char *path)
{
    static const struct {
        const char *key;
        double min;
    } keys[] = {{"length_penalty", -1e9}, {"max_length", 1}, {"max_new_tokens", 1}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const attn_config_value *value = attn_config_get(how, keys[i].key);
        if (!value || value->type == ATTN_CONFIG_TYPE_NULL)
            continue;
        double x = search_number(how, keys[i].key, (double)NAN);
        if (!(x >= keys[i].min) || (keys[i].min > 0 && value->type != ATTN_CONFIG_TYPE_INT))
            return attn__fail(t->context, ATTN_ERROR_FORMAT, "%s: \"%s\" is no number%s", path, keys[i].key,
                              keys[i].min > 0 ? " from 1 on" : "");
    }
    return ATTN_OK;
}

static attn_status set_search(attn_translator *t, const attn_config *how, const char *path)
{
    attn_status status = check_search(t, how, path);
    if (status == ATTN_OK)
        status = check_numbers(t, how, path);
    if (status != ATTN_OK)
        return status;
    const attn_config_value *early = attn_config_get(how, "early_stopping");
    t->search.rule = ATTN_LENGTH_POWER;
    t->search.stopping = early && early->type == ATTN_CONFIG_TYPE_TEXT                     ? ATTN_STOP_NEVER
                         : early && early->type == ATTN_CONFIG_TYPE_BOOL && early->boolean ? ATTN_STOP_FULL
                                                                                           : ATTN_STOP_LIKELY;
    t->search.length_penalty = search_number(how, "length_penalty", 1);
    double forced = search_number(how, "forced_eos_token_id", -1);
    t->search.force_end = forced >= 0;
    double longest = search_number(how, "max_length", (double)t->max_tokens);
    longest = search_number(how, "max_new_tokens", longest - 1) + 1;
    t->max_output = longest >= 2 && longest - 1 <= (double)t->max_tokens ? (int64_t)longest - 1 : t->max_tokens;
    return read_banned(t, how, path);
}

/* From generation_config.json; a directory without one has it all in config.json. */
static attn_status read_search(attn_translator *t, const char *directory)
{
    char path[ATTN__PATH];
    attn_config *how = NULL;
    attn_status status = attn__path(t->context, path, directory, "generation_config.json");
    if (status == ATTN_OK && attn_file_exists(path))
        status = attn_config_read(&how, t->context, path);
    else if (status == ATTN_OK)
        status = attn__path(t->context, path, directory, "config.json");
    if (status == ATTN_OK)
        status = set_search(t, how ? how : t->config, path);
    attn_config_destroy(how);
    return status;
}

/* ------------------------------------------------------------------------------------------------ load */

static attn_status read_vocabularies(attn_translator *t, const char *directory, const attn__archive *archive)
{
    static const char *const pieces[] = {"source.spm", "target.spm"};
    attn_vocab **const sides[] = {&t->source, &t->target};
    char vocabulary[ATTN__PATH], spm[ATTN__PATH];
    attn_status status = ATTN_OK;
    for (int i = 0; i < 2 && status == ATTN_OK; i++) {
        status = attn__path(t->context, vocabulary, directory, i ? "target_vocab.json" : "vocab.json");
        if (status == ATTN_OK && i && !attn_file_exists(vocabulary))
            status = attn__path(t->context, vocabulary, directory, "vocab.json");
        if (status == ATTN_OK)
            status = attn__path(t->context, spm, directory, pieces[i]);
        if (status == ATTN_OK)
            status = attn__marian_vocab(sides[i], t->context, archive ? archive->vocabularies[i] : vocabulary, spm,
                                        t->config, archive != NULL);
    }
    return status;
}

attn_status attn__marian_load(attn_translator *t, const char *directory, const attn__archive *archive,
                              const char *names)
{
    char config[ATTN__PATH];
    attn_status status = attn__path(t->context, config, directory, archive ? "decoder.yml" : "config.json");
    if (status == ATTN_OK)
        status = read_vocabularies(t, directory, archive);
    if (status == ATTN_OK) {
        attn__system_trim(); /* trees of JSON leave much, and none of it has room for weights */
        status = build_model(t, config);
    }
    if (status != ATTN_OK)
        return status;
    t->max_tokens = attn_config_int(attn_model_config(t->model), "max_len", 512);
    status = read_search(t, directory);
    return status == ATTN_OK ? load_parameters(t, archive ? archive->weights : directory, archive != NULL, names)
                             : status;
}
