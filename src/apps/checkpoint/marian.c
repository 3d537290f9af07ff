/* SPDX-License-Identifier: MIT
 *
 * Loads a MarianMT model of Hugging Face: converts its settings and parameters to those of the architecture
 * transformer, and reads its search settings.
 */
#include "apps/checkpoint/marian.h"

#include "apps/checkpoint/model_directory.h"
#include "base/context.h"
#include "base/system.h"
#include "io/directory.h"
#include "io/tensors/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char HEAD[] = "decoder.dense.weight", TABLE[] = "decoder.embedding.weight";

/* -------------------------------------------------------------------------------------------- settings */

/* Checks keys that have the same fixed value in all MarianMT models. Old files contain these keys. */
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
            return attn__fail(t->context, ATTN_ERROR_UNSUPPORTED,
                              "%s: \"%s\" is %s, which is not supported for a MarianMT model", path, flags[i].key,
                              flags[i].wanted ? "false" : "true");
    }
    return ATTN_OK;
}

static attn_status set_activation(const attn_translator *t, const char *path, attn_config *to)
{
    static const char *const names[][2] = {{"swish", "silu"},         {"silu", "silu"},
                                           {"relu", "relu"},          {"gelu", "gelu"},
                                           {"gelu_new", "gelu_tanh"}, {"quick_gelu", "gelu_sigmoid"}};
    const char *name = attn_config_text(t->config, "activation_function", "gelu");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], name) == 0)
            return attn_config_set_text(to, "activation", names[i][1]);
    return attn__fail(
        t->context, ATTN_ERROR_UNSUPPORTED,
        "%s: activation_function is \"%.40s\", which is not one of swish, silu, relu, gelu, gelu_new, quick_gelu", path,
        name);
}

/* Returns the number of rows of the embedding table of a side. */
static int64_t table_rows(const attn_config *config, int side)
{
    int64_t rows = attn_config_int(config, "vocab_size", 0);
    return side ? attn_config_int(config, "decoder_vocab_size", rows) : rows;
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
    return status == ATTN_OK ? attn_config_set_int(to, "tgt_vocab_size", table_rows(t->config, 1)) : status;
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
    /* "layer_norm_eps" is attn's own key, which exists because Marian's eps differs from the default */
    if (status == ATTN_OK && attn_config_get(t->config, "layer_norm_eps"))
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
                      "%s: the model has %lld source and %lld target pieces, but its vocabularies have %lld and %lld",
                      path, (long long)source, (long long)target, (long long)attn_vocab_size(t->source),
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

/* Returns the names file for the checkpoint. It depends on the form (`native` means Marian's own), and on whether
 * both sides share one embedding table. */
static const char *names_of(const attn_config *model, bool native)
{
    static const char *const names[2][2] = {{"marian-huggingface-two", "marian-huggingface"},
                                            {"marian-native-two", "marian-native"}};
    return names[native][strcmp(attn_config_text(model, "tie", ""), "all") == 0];
}

/* How the checkpoint stores its embedding tables. Several layers may share one table. */
typedef struct loading {
    const attn_translator *t;
    /* true: the shared table is stored under the name of the output layer; false: under the name of the decoder */
    bool head_is_table;
} loading;

/* Selects the checkpoint's parameters. The table of the output layer may be stored a second time under its own name.
 * This copy is ignored. */
static bool is_parameter(void *user, const char *name, char *to, size_t size)
{
    const loading *l = user;
    bool own = strcmp(name, HEAD) != 0 || attn_named_find(attn_model_parameters(l->t->model), name);
    return (own || l->head_is_table) && snprintf(to, size, "%s", own ? name : TABLE) > 0;
}

static attn_status check_equal(const attn_translator *t, const attn_checkpoint *weights, int64_t head, int64_t table)
{
    attn_tensor *a = NULL, *b = NULL;
    attn_status status = attn_checkpoint_tensor(&a, weights, head);
    if (status == ATTN_OK)
        status = attn_checkpoint_tensor(&b, weights, table);
    if (status == ATTN_OK &&
        (attn_tensor_size(a) != attn_tensor_size(b) || attn_tensor_dtype(a) != attn_tensor_dtype(b) ||
         memcmp(attn_tensor_data(a), attn_tensor_data(b),
                (size_t)attn_tensor_size(a) * attn_dtype_size(attn_tensor_dtype(a))) != 0))
        status = attn__fail(
            t->context, ATTN_ERROR_FORMAT,
            "%s: \"tie_word_embeddings\" is on, but the output layer's table and the decoder's embedding differ; "
            "remove one of the two tensors",
            attn_checkpoint_path(weights));
    attn_tensor_destroy(a);
    attn_tensor_destroy(b);
    return status;
}

/* Finds out whether the checkpoint has a bias of the output layer, and a table of the output layer. If the model
 * shares its tables, the output layer's table must equal the decoder's. */
static attn_status look_through(attn_translator *t, const char *path, const attn_name_map *names, loading *l)
{
    attn_checkpoint *weights;
    attn_checkpoint_entry entry;
    int64_t head = -1, table = -1;
    attn_status status =
        attn_checkpoint_open(&weights, t->context, path, &(attn_weights_options){.names = names}, NULL);
    t->no_bias = true;
    for (int64_t i = 0; status == ATTN_OK && attn_checkpoint_at(weights, i, &entry); i++) {
        t->no_bias = t->no_bias && strcmp(entry.name, "decoder.dense.bias") != 0;
        head = strcmp(entry.name, HEAD) == 0 ? i : head;
        table = strcmp(entry.name, TABLE) == 0 ? i : table;
    }
    bool tied = status == ATTN_OK && head >= 0 && !attn_named_find(attn_model_parameters(t->model), HEAD);
    l->head_is_table = tied && table < 0;
    if (tied && table >= 0)
        status = check_equal(t, weights, head, table);
    attn_checkpoint_close(weights);
    return status;
}

/* Checks a stored table of positions. It must hold the same values as the positions that the model computes. */
static attn_status check_sines(const attn_translator *t, const attn_checkpoint *weights, int64_t i,
                               const attn_checkpoint_entry *entry)
{
    const double tolerance = entry->type[0] == 'f' && strcmp(entry->type, "f16") != 0 ? 1e-4 : 5e-3;
    const attn_config *config = attn_model_config(t->model);
    const int64_t width = attn_config_int(config, "num_hiddens", 0), half = (width + 1) / 2;
    attn_tensor *table = NULL;
    attn_status status = attn_checkpoint_tensor(&table, weights, i);
    bool same = status == ATTN_OK && attn_tensor_dtype(table) == ATTN_F32 && attn_tensor_rank(table) == 2 &&
                attn_tensor_length(table, 0) == t->max_tokens && attn_tensor_length(table, 1) == width;
    for (int64_t k = 0; same && k < attn_tensor_size(table); k++) {
        int64_t column = k % width, pair = column < half ? column : column - half;
        const int64_t position = k / width;
        double angle = (double)position * pow(10000, -2.0 * (double)pair / (double)width);
        same = fabs((double)((const float *)attn_tensor_data(table))[k] - (column < half ? sin(angle) : cos(angle))) <=
               tolerance;
    }
    attn_tensor_destroy(table);
    if (status == ATTN_OK && !same)
        return attn__fail(
            t->context, ATTN_ERROR_UNSUPPORTED,
            "%s: the tensor \"%s\" must have the %lld x %lld sines and cosines of MarianMT's positions; other "
            "positions are not supported",
            attn_checkpoint_path(weights), entry->name, (long long)t->max_tokens, (long long)width);
    return status;
}

static attn_status check_positions(const attn_translator *t, const char *path)
{
    static const char ending[] = ".embed_positions.weight";
    attn_checkpoint *weights;
    attn_checkpoint_entry entry;
    attn_status status = attn_checkpoint_open(&weights, t->context, path, NULL, NULL);
    for (int64_t i = 0; status == ATTN_OK && attn_checkpoint_at(weights, i, &entry); i++) {
        size_t length = strlen(entry.name), size = sizeof ending - 1;
        if (length > size && strcmp(entry.name + length - size, ending) == 0)
            status = check_sines(t, weights, i, &entry);
    }
    attn_checkpoint_close(weights);
    return status;
}

static attn_status load_parameters(attn_translator *t, const char *path, bool native, const char *file)
{
    attn_name_map *names;
    loading l = {.t = t};
    attn_status status =
        attn_name_map_read(&names, t->context, file ? file : names_of(attn_model_config(t->model), native));
    attn_weights_options options = {.names = names, .rename = is_parameter, .rename_user = &l};
    if (status == ATTN_OK)
        status = look_through(t, path, names, &l);
    if (status == ATTN_OK && !native)
        status = check_positions(t, path);
    if (status == ATTN_OK)
        status = attn_weights_load(attn_model_parameters(t->model), path, &options, NULL, NULL);
    attn_name_map_destroy(names);
    return status;
}

/* Moves the row of <pad>, which was appended to an archive's tables. In the longer table, the row is exchanged with
 * the row at the id of <pad>, as in the vocabulary. In the shorter table, the row is already at this id. */
static attn_status place_pad(const attn_translator *t)
{
    static const char *const tables[] = {"encoder.embedding.weight", "decoder.embedding.weight", "decoder.dense.weight",
                                         "decoder.dense.bias"};
    const int64_t pad = attn_vocab_special(t->target, ATTN_SPECIAL_PAD);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        attn_tensor *table = attn_named_find(attn_model_parameters(t->model), tables[i]);
        int64_t last = table ? attn_tensor_length(table, 0) - 1 : pad;
        if (last <= pad)
            continue;
        size_t size = (size_t)(attn_tensor_size(table) / (last + 1)) * attn_dtype_size(attn_tensor_dtype(table));
        char *rows = attn_tensor_data(table), *row = attn__alloc(t->context, size);
        if (!row)
            return ATTN_ERROR_MEMORY;
        memcpy(row, rows + (size_t)pad * size, size);
        memcpy(rows + (size_t)pad * size, rows + (size_t)last * size, size);
        memcpy(rows + (size_t)last * size, row, size);
        attn__free(t->context, row);
    }
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------ load */

static attn_status take_archive(attn_translator *t, const attn__archive *archive)
{
    t->search.prefixed = archive->prefixed;
    t->search.shortlist_first = archive->shortlist_first;
    t->search.shortlist_best = archive->shortlist_best;
    if (archive->shortlist[0] && !(t->search.shortlist = attn__strdup(t->context, archive->shortlist)))
        return ATTN_ERROR_MEMORY;
    return place_pad(t);
}

static attn_status read_vocabularies(attn_translator *t, const char *directory, const attn__archive *archive)
{
    static const char *const pieces[] = {"source.spm", "target.spm"};
    attn_vocab **const sides[] = {&t->source, &t->target};
    char vocabulary[ATTN__PATH], spm[ATTN__PATH];
    attn__marian_tokenizer tokenizer;
    attn_status status = attn__marian_tokenizer_read(&tokenizer, t->context, directory);
    for (int i = 0; i < 2 && status == ATTN_OK; i++) {
        /* As in transformers, the file target_vocab.json alone does not make a vocabulary for the target. */
        bool own = i && json_is_true(json_object_get(tokenizer.config, "separate_vocabs"));
        status = attn__path(t->context, vocabulary, directory, own ? "target_vocab.json" : "vocab.json");
        if (status == ATTN_OK)
            status = attn__path(t->context, spm, directory, pieces[i]);
        attn__marian_vocab_source source = {.path = archive ? archive->vocabularies[i] : vocabulary,
                                            .spm = spm,
                                            .config = t->config,
                                            .tokenizer = &tokenizer,
                                            .pad = archive != NULL,
                                            .rows = table_rows(t->config, i)};
        if (status == ATTN_OK)
            status = attn__marian_vocab(sides[i], t->context, &source);
    }
    attn__marian_tokenizer_free(&tokenizer);
    return status;
}

attn_status attn__marian_load(attn_translator *t, const char *directory, const attn__archive *archive,
                              const char *names)
{
    char config[ATTN__PATH];
    t->marian = true;
    attn_status status = attn__path(t->context, config, directory, archive ? "decoder.yml" : "config.json");
    if (status == ATTN_OK)
        status = read_vocabularies(t, directory, archive);
    if (status == ATTN_OK) {
        /* Returns the freed memory of the parsed JSON to the system. The weights do not fit into the gaps that it
         * leaves. */
        attn__system_trim();
        status = build_model(t, config);
    }
    if (status != ATTN_OK)
        return status;
    t->max_tokens = attn_config_int(attn_model_config(t->model), "max_len", 512);
    status = attn__marian_search(t, directory);
    if (status == ATTN_OK)
        status = load_parameters(t, archive ? archive->weights : directory, archive != NULL, names);
    return status == ATTN_OK && archive ? take_archive(t, archive) : status;
}
