/* SPDX-License-Identifier: MIT
 *
 * Reads a directory in Marian's own form, such as an archive of OPUS-MT. The settings in decoder.yml and in the .npz
 * are converted to a config with the keys of MarianMT's config.json.
 */
#include "apps/checkpoint/marian.h"

#include "apps/checkpoint/model_directory.h"
#include "base/context.h"
#include "io/yaml.h"
#include "io/directory.h"

#include <stdio.h>
#include <string.h>

enum { MOST_BYTES = 16 << 20, MOST_VALUES = 1 << 16, DEPTH = 8 };

typedef struct reading {
    attn_context *context;
    attn__archive *archive;
    const char *directory;
    const char *file; /* path of the current file, for messages */
    json_t *decoder, *model;
    attn_config *config;
} reading;

static attn_status refuse(const reading *r, const char *key, const char *what)
{
    return attn__fail(r->context, ATTN_ERROR_UNSUPPORTED, "%s: \"%s\": %s", r->file, key, what);
}

/* ----------------------------------------------------------------------------------------------- values */

/* Reports whether a YAML value equals `text`. An empty list equals "[]". */
static bool is_value(const json_t *value, const char *text)
{
    char number[32];
    switch (json_typeof(value)) {
    case JSON_STRING:
        return strcmp(json_string_value(value), text) == 0;
    case JSON_NULL:
        return !*text;
    case JSON_ARRAY:
        return strcmp(text, "[]") == 0 && json_array_size(value) == 0;
    case JSON_INTEGER:
        snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
        return strcmp(number, text) == 0;
    case JSON_REAL:
        return json_real_value(value) == 0 && strcmp(text, "0") == 0;
    default:
        return strcmp(json_is_true(value) ? "true" : "false", text) == 0;
    }
}

/* A key that decides the kind of the model or of the search, with the values that are supported. The first value is
 * the default. */
typedef struct fixed {
    const char *key, *values[3];
} fixed;

static attn_status check_fixed(const reading *r, const json_t *from, const fixed *rules, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_object_get(from, rules[i].key);
        bool known = !value;
        for (int j = 0; j < 3 && rules[i].values[j]; j++)
            known = known || is_value(value, rules[i].values[j]);
        if (!known) {
            char number[32];
            const char *other = rules[i].values[1];
            snprintf(number, sizeof number, "%g", json_number_value(value));
            return attn__fail(r->context, ATTN_ERROR_UNSUPPORTED, "%s: \"%s\" is \"%.60s\"; supported: \"%s\"%s%s%s",
                              r->file, rules[i].key,
                              json_is_string(value)    ? json_string_value(value)
                              : json_is_number(value)  ? number
                              : json_is_boolean(value) ? json_is_true(value) ? "true" : "false"
                                                       : "a list or mapping",
                              rules[i].values[0], other ? ", \"" : "", other ? other : "", other ? "\"" : "");
        }
    }
    return ATTN_OK;
}

static attn_status read_size(const reading *r, const char *key, int64_t *size)
{
    const json_t *value = json_object_get(r->model, key);
    *size = json_integer_value(value);
    return json_is_integer(value) && *size >= 0 && *size <= INT32_MAX
               ? ATTN_OK
               : attn__fail(r->context, ATTN_ERROR_FORMAT, "%s: \"%s\" is %s", r->file, key,
                            value ? "not an integer from 0 to 2147483647" : "missing");
}

static bool is_on(const json_t *from, const char *key)
{
    return json_is_true(json_object_get(from, key));
}

/* --------------------------------------------------------------------------------------------- decoder.yml */

/* Finds a file that decoder.yml names. The file must be in the directory itself, even if decoder.yml gives another
 * folder. */
static attn_status find_file(const reading *r, const char *key, size_t i, char *path)
{
    const char *name = json_string_value(json_array_get(json_object_get(r->decoder, key), i));
    if (!name || !*name)
        return attn__fail(r->context, ATTN_ERROR_FORMAT,
                          "%s: element %zu of \"%s\" is missing, or not the name of a file", r->file, i + 1, key);
    return attn__path(r->context, path, r->directory, attn__path_last(name));
}

/* Reads the setting `shortlist`. Its elements are a lexicon, the number of most frequent tokens, and the number of
 * translations per token of the line. A fourth element, a limit of the training, is ignored. */
static attn_status find_shortlist(reading *r)
{
    const json_t *list = json_object_get(r->decoder, "shortlist");
    const json_t *first = json_array_get(list, 1), *best = json_array_get(list, 2);
    if (!list || json_is_null(list) || (json_is_array(list) && json_array_size(list) == 0))
        return ATTN_OK;
    if ((first && json_integer_value(first) < 1) || (best && json_integer_value(best) < 1))
        return attn__fail(r->context, ATTN_ERROR_FORMAT,
                          "%s: \"shortlist\" must be a list of a file and two integers of at least 1", r->file);
    r->archive->shortlist_first = json_integer_value(first);
    r->archive->shortlist_best = json_integer_value(best);
    return find_file(r, "shortlist", 0, r->archive->shortlist);
}

static attn_status find_files(reading *r)
{
    attn__archive *a = r->archive;
    const json_t *vocabularies = json_object_get(r->decoder, "vocabs");
    if (json_array_size(json_object_get(r->decoder, "models")) > 1)
        return refuse(r, "models", "translating with several models together is not supported");
    attn_status status = find_file(r, "models", 0, a->weights);
    if (status == ATTN_OK)
        status = find_file(r, "vocabs", 0, a->vocabularies[0]);
    if (status == ATTN_OK)
        status = find_file(r, "vocabs", json_array_size(vocabularies) > 1, a->vocabularies[1]);
    return status == ATTN_OK ? find_shortlist(r) : status;
}

/* Refuses a setting of decoder.yml that neither attn follows nor leaves a translation as it is. Those of the second
 * kind set batches, devices, memory and what is printed. A setting that is off has no effect either. */
static attn_status check_keys(const reading *r)
{
    static const char *const known[] = {
        /* followed */
        "models", "vocabs", "shortlist", "normalize", "beam-size", "max-length-factor", "force-decode", "allow-unk",
        "word-penalty", "output-sampling",
        /* without an effect on a translation */
        "relative-paths", "config", "version", "authors", "cite", "build-info", "log", "log-level", "log-time-zone",
        "quiet", "quiet-translation", "seed", "clip-norm", "interpolate-env-vars", "dump-config", "sigterm",
        "workspace", "cpu-threads", "num-devices", "devices", "no-nccl", "mini-batch", "mini-batch-words",
        "mini-batch-fit", "maxi-batch", "maxi-batch-sort", "data-threads", "data-weighting", "optimize", "skip-cost",
        "alignment", "weights", "word-scores", "n-best", "stat-freq", "port", "gemm-precision", "precision", "fp16",
        "tsv", "tsv-fields", "input", "output", "input-types", "sentencepiece-alphas", "ssplit-mode",
        "ssplit-prefix-file", "max-length-break", "mini-batch-round-up", "use-legacy-batching", "model-mmap"};
    const char *key;
    json_t *value;
    json_object_foreach(r->decoder, key, value)
    {
        bool is_known =
            json_is_false(value) || json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0);
        for (size_t i = 0; i < sizeof known / sizeof *known && !is_known; i++)
            is_known = strcmp(key, known[i]) == 0;
        if (!is_known)
            return refuse(r, key, "this setting is not supported; remove it to translate without it");
    }
    return ATTN_OK;
}

/* Scores are divided by the length to the power of `normalize`, where `true` means 1. If `normalize` is missing, scores
 * are not divided. The default of `max-length-factor` is 3, as in Marian. */
static attn_status set_search(reading *r)
{
    attn_status known = check_keys(r);
    if (known != ATTN_OK)
        return known;
    static const fixed rules[] = {{"word-penalty", {"0", "false"}}, {"output-sampling", {"[]", "", "false"}}};
    const json_t *power = json_object_get(r->decoder, "normalize"), *beam = json_object_get(r->decoder, "beam-size");
    const json_t *factor = json_object_get(r->decoder, "max-length-factor");
    attn_status status = check_fixed(r, r->decoder, rules, sizeof rules / sizeof *rules);
    if (status == ATTN_OK && power && !json_is_number(power) && !json_is_boolean(power))
        status = attn__fail(r->context, ATTN_ERROR_FORMAT, "%s: \"normalize\" is not a number", r->file);
    if (status == ATTN_OK)
        status =
            attn_config_set_real(r->config, "length_penalty",
                                 json_is_number(power) ? json_number_value(power) : is_on(r->decoder, "normalize"));
    if (status == ATTN_OK && json_is_integer(beam))
        status = attn_config_set_int(r->config, "num_beams", json_integer_value(beam));
    if (status == ATTN_OK && factor && !(json_is_number(factor) && json_number_value(factor) > 0))
        status =
            attn__fail(r->context, ATTN_ERROR_FORMAT, "%s: \"max-length-factor\" is not a number above 0", r->file);
    if (status == ATTN_OK)
        status = attn_config_set_real(r->config, "max_length_factor", factor ? json_number_value(factor) : 3);
    if (status == ATTN_OK) /* probabilities are computed without <pad>, because Marian's softmax does not include it */
        status = attn_config_set_bool(r->config, "renormalize_logits", true);
    r->archive->prefixed = is_on(r->decoder, "force-decode");
    return status;
}

static attn_status read_file(reading *r, const char *path)
{
    attn_bytes bytes = {0};
    attn_status status = attn_file_read(&bytes, r->context, path, MOST_BYTES);
    attn__input input = {.context = r->context, .name = path, .data = (const uint8_t *)bytes.data, .size = bytes.size};
    if (status == ATTN_OK)
        status = attn__yaml_parse(&r->decoder, &input, DEPTH, MOST_VALUES);
    attn_bytes_free(r->context, &bytes);
    return status;
}

/* --------------------------------------------------------------------------------------- special:model.yml */

/* Parses the settings in tensor i of the .npz. The elements of the tensor are the bytes of a text that ends with 0. */
static attn_status parse_settings(reading *r, const attn_checkpoint *weights, int64_t i, int64_t size)
{
    attn_tensor *numbers;
    attn_status status = attn_checkpoint_tensor(&numbers, weights, i);
    if (status != ATTN_OK)
        return status;
    char *text = attn__alloc(r->context, (size_t)size + 1);
    const int32_t *from = attn_tensor_dtype(numbers) == ATTN_I32 ? attn_tensor_data(numbers) : NULL;
    const uint8_t *bytes = attn_tensor_dtype(numbers) == ATTN_U8 ? attn_tensor_data(numbers) : NULL;
    for (int64_t k = 0; text && k < size; k++)
        text[k] = from ? (char)from[k] : bytes ? (char)bytes[k] : '\0';
    while (text && size > 0 && text[size - 1] == '\0')
        size--;
    attn__input input = {.context = r->context, .name = r->file, .data = (const uint8_t *)text, .size = (size_t)size};
    status = text ? attn__yaml_parse(&r->model, &input, DEPTH, MOST_VALUES) : ATTN_ERROR_MEMORY;
    attn__free(r->context, text);
    attn_tensor_destroy(numbers);
    return status;
}

static attn_status read_model(reading *r)
{
    attn_checkpoint *weights;
    attn_checkpoint_entry entry = {0};
    int64_t i = 0;
    attn_status status = attn_checkpoint_open(&weights, r->context, r->archive->weights, NULL, NULL);
    if (status != ATTN_OK)
        return status;
    while (attn_checkpoint_at(weights, i, &entry) && strcmp(entry.name, "special:model.yml") != 0)
        i++;
    if (!attn_checkpoint_at(weights, i, &entry))
        status =
            attn__fail(r->context, ATTN_ERROR_FORMAT,
                       "%s: the tensor \"special:model.yml\" is missing, in which Marian stores a model's settings",
                       r->archive->weights);
    else if (entry.count > MOST_BYTES)
        status =
            attn__fail(r->context, ATTN_ERROR_FORMAT, "%s: special:model.yml has %lld bytes; at most %d are supported",
                       r->archive->weights, (long long)entry.count, MOST_BYTES);
    else
        status = parse_settings(r, weights, i, entry.count);
    attn_checkpoint_close(weights);
    return status;
}

static attn_status check_model(const reading *r)
{
    static const fixed rules[] = {{"type", {"transformer"}},
                                  {"transformer-decoder-autoreg", {"self-attention"}},
                                  {"transformer-preprocess", {""}},
                                  {"transformer-postprocess", {"dan", "an"}},
                                  {"transformer-postprocess-emb", {"d", ""}},
                                  {"transformer-postprocess-top", {""}},
                                  {"transformer-ffn-depth", {"2"}},
                                  {"transformer-tied-layers", {"[]", ""}},
                                  {"transformer-train-position-embeddings", {"false"}},
                                  {"transformer-no-projection", {"false"}},
                                  {"transformer-no-bias", {"false"}},
                                  {"transformer-no-affine", {"false"}},
                                  {"transformer-pool", {"false"}},
                                  {"transformer-rnn-projection", {"false"}},
                                  {"right-left", {"false"}},
                                  {"ulr", {"false"}},
                                  {"factors-dim-emb", {"0"}},
                                  {"lemma-dim-emb", {"0"}}};
    if (!json_object_get(r->model, "type"))
        return attn__fail(r->context, ATTN_ERROR_FORMAT, "%s: \"type\" is missing; expected \"transformer\"", r->file);
    if (is_on(r->model, "tied-embeddings-src") && !is_on(r->model, "tied-embeddings-all"))
        return refuse(r, "tied-embeddings-src", "this setting is supported only with tied-embeddings-all");
    return check_fixed(r, r->model, rules, sizeof rules / sizeof *rules);
}

static attn_status set_sizes(const reading *r)
{
    static const char *const keys[][3] = {
        {"dim-emb", "d_model", NULL},
        {"enc-depth", "encoder_layers", NULL},
        {"dec-depth", "decoder_layers", NULL},
        {"transformer-heads", "encoder_attention_heads", "decoder_attention_heads"},
        {"transformer-dim-ffn", "encoder_ffn_dim", "decoder_ffn_dim"},
    };
    int64_t size = 0, decoder = json_integer_value(json_object_get(r->model, "transformer-decoder-dim-ffn"));
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < sizeof keys / sizeof *keys && status == ATTN_OK; i++) {
        status = read_size(r, keys[i][0], &size);
        for (int j = 1; j < 3 && keys[i][j] && status == ATTN_OK; j++)
            status = attn_config_set_int(r->config, keys[i][j], size);
    }
    return status == ATTN_OK && decoder > 0 ? attn_config_set_int(r->config, "decoder_ffn_dim", decoder) : status;
}

/* Adds the tokens that must not occur in a translation: <pad>, and also <unk> if decoder.yml does not allow it. */
static attn_status ban(const reading *r, int64_t pad)
{
    const int64_t unknown = 1;
    attn_status status = attn_config_set(r->config, "bad_words_ids.0",
                                         &(attn_config_value){.type = ATTN_CONFIG_TYPE_INTS, .n = 1, .integers = &pad});
    return status == ATTN_OK && !is_on(r->decoder, "allow-unk")
               ? attn_config_set(r->config, "bad_words_ids.1",
                                 &(attn_config_value){.type = ATTN_CONFIG_TYPE_INTS, .n = 1, .integers = &unknown})
               : status;
}

/* Marian's vocabularies lack <pad>, so each gets one more token. Decoding starts with <pad>, whose embedding is
 * zero. */
static attn_status set_vocabularies(const reading *r, bool all)
{
    static const char *const keys[] = {"vocab_size", "decoder_vocab_size"};
    const json_t *sizes = json_object_get(r->model, "dim-vocabs");
    int64_t n[2] = {0};
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < 2 && status == ATTN_OK; i++) {
        n[i] = json_integer_value(json_array_get(sizes, i));
        status = n[i] > 0 && n[i] < INT32_MAX
                     ? attn_config_set_int(r->config, keys[i], n[i] + 1)
                     : attn__fail(r->context, ATTN_ERROR_FORMAT,
                                  "%s: \"dim-vocabs\" is missing or not two positive integers", r->file);
    }
    if (status == ATTN_OK && all && n[0] != n[1])
        status = attn__fail(r->context, ATTN_ERROR_FORMAT,
                            "%s: \"tied-embeddings-all\" needs vocabularies of the same size, found %lld and %lld",
                            r->file, (long long)n[0], (long long)n[1]);
    /* <pad> gets the same id on both sides, because transformers requires it */
    int64_t pad = n[0] < n[1] ? n[0] : n[1];
    if (status == ATTN_OK)
        status = attn_config_set_int(r->config, "pad_token_id", pad);
    if (status == ATTN_OK)
        status = attn_config_set_int(r->config, "decoder_start_token_id", pad);
    return status == ATTN_OK ? ban(r, pad) : status;
}

static attn_status set_activation(const reading *r)
{
    static const char *const names[][2] = {{"swish", "swish"}, {"relu", "relu"}, {"gelu", "quick_gelu"}};
    const json_t *value = json_object_get(r->model, "transformer-ffn-activation");
    const char *name = value ? json_string_value(value) : "swish";
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i][0]) == 0)
            return attn_config_set_text(r->config, "activation_function", names[i][1]);
    return attn__fail(r->context, ATTN_ERROR_UNSUPPORTED,
                      "%s: \"transformer-ffn-activation\" is %.40s; expected swish, relu or gelu", r->file,
                      name ? name : "not a text");
}

/* Sets the settings that have the same value for all models in this form. */
static attn_status set_rest(const reading *r, bool all)
{
    static const char *const flags[] = {"scale_embedding", "static_position_embeddings"};
    static const char *const numbers[] = {"max_position_embeddings", "max_length", "eos_token_id",
                                          "forced_eos_token_id"};
    const int64_t values[] = {512, 512, 0, 0};
    attn_status status = attn_config_set_text(r->config, "model_type", "marian");
    for (int i = 0; i < 2 && status == ATTN_OK; i++)
        status = attn_config_set_bool(r->config, flags[i], true);
    for (int i = 0; i < 4 && status == ATTN_OK; i++)
        status = attn_config_set_int(r->config, numbers[i], values[i]);
    if (status == ATTN_OK)
        status = attn_config_set_bool(r->config, "share_encoder_decoder_embeddings", all);
    if (status == ATTN_OK)
        status = attn_config_set_bool(r->config, "tie_word_embeddings", all || is_on(r->model, "tied-embeddings"));
    return status == ATTN_OK ? attn_config_set_real(r->config, "layer_norm_eps", 1e-6) : status;
}

static attn_status set_model(const reading *r)
{
    bool all = is_on(r->model, "tied-embeddings-all");
    attn_status status = check_model(r);
    if (status == ATTN_OK)
        status = set_sizes(r);
    if (status == ATTN_OK)
        status = set_vocabularies(r, all);
    if (status == ATTN_OK)
        status = set_activation(r);
    return status == ATTN_OK ? set_rest(r, all) : status;
}

/* -------------------------------------------------------------------------------------------------- all */

attn_status attn__archive_read(attn__archive *archive, attn_config **config, attn_context *context,
                               const char *directory)
{
    char settings[ATTN__PATH + 32];
    reading r = {.context = context, .archive = archive, .directory = directory, .file = archive->settings};
    *archive = (attn__archive){0};
    attn_status status = attn__path(context, archive->settings, directory, "decoder.yml");
    if (status == ATTN_OK)
        status = attn_config_create(&r.config, context);
    if (status == ATTN_OK)
        status = read_file(&r, archive->settings);
    if (status == ATTN_OK)
        status = find_files(&r);
    if (status == ATTN_OK)
        status = set_search(&r);
    snprintf(settings, sizeof settings, "%s(special:model.yml)", archive->weights);
    r.file = settings;
    if (status == ATTN_OK)
        status = read_model(&r);
    if (status == ATTN_OK)
        status = set_model(&r);
    json_decref(r.decoder);
    json_decref(r.model);
    if (status != ATTN_OK)
        attn_config_destroy(r.config);
    *config = status == ATTN_OK ? r.config : NULL;
    return status;
}
