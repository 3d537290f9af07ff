/* SPDX-License-Identifier: MIT
 *
 * Writes and loads a translator's directory. When a directory is loaded, its parts are checked against each other.
 */
#include "apps/translator/translator.h"

#include "apps/checkpoint/foreign_model.h"
#include "apps/checkpoint/model_directory.h"
#include "apps/checkpoint/marian.h"
#include "apps/checkpoint/model_config.h"
#include "apps/translator/settings.h"
#include "base/context.h"
#include "base/rng.h"
#include "data/vocab.h"
#include "io/directory.h"
#include "models/kind.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* --------------------------------------------------------------------------------------------- writing */

static const char *vocab_file(attn_side side, bool subwords)
{
    static const char *const names[2][2] = {{"source.vocab", "source.spm"}, {"target.vocab", "target.spm"}};
    return names[side == ATTN_SIDE_TARGET][subwords];
}

attn_status attn__vocab_write(attn_context *context, attn_vocab *vocab, const char *directory, attn_side side)
{
    char path[ATTN__PATH];
    attn_bytes file = {0};
    attn_status status = attn__path(context, path, directory, vocab_file(side, attn_vocab_has_subwords(vocab)));
    if (status == ATTN_OK)
        status = attn_vocab_format(vocab, &file);
    if (status == ATTN_OK)
        status = attn_file_write(context, path, file.data, file.size);
    attn_bytes_free(context, &file);
    return status;
}

/* Settings of the training that the translator needs later. They determine how text is prepared and how pairs were
 * split. They are written to config.json. */
static const char *const kept[] = {"compat", "vocabulary",   "max_tokens", "space_before_marks", "seed", "valid",
                                   "test",   "max_examples", NULL};

static attn_status write_config(const attn_model *model, const attn_config *settings, const char *directory)
{
    attn_config *config = NULL;
    attn_status status = attn__model_config_create(&config, model, settings, kept);
    if (status == ATTN_OK)
        status = attn__model_config_write(config, attn_model_context(model), directory);
    attn_config_destroy(config);
    return status;
}

attn_status attn__translator_write(const attn_model *model, const attn_config *settings, attn_vocab *source,
                                   attn_vocab *target, const char *directory)
{
    attn_context *context = attn_model_context(model);
    attn_status status = attn__vocab_write(context, source, directory, ATTN_SIDE_SOURCE);
    if (status == ATTN_OK)
        status = attn__vocab_write(context, target, directory, ATTN_SIDE_TARGET);
    return status == ATTN_OK ? write_config(model, settings, directory) : status;
}

/* --------------------------------------------------------------------------------------------- loading */

attn_status attn__vocab_read(attn_vocab **vocab, attn_context *context, const char *directory, attn_side side,
                             attn_vocab_kind kind)
{
    bool subwords = kind != ATTN_VOCAB_WORDS;
    char path[ATTN__PATH];
    attn_bytes bytes = {0};
    *vocab = NULL;
    attn_status status = attn__path(context, path, directory, vocab_file(side, subwords));
    if (status == ATTN_OK)
        status = attn_file_read(&bytes, context, path, 0);
    if (status == ATTN_OK)
        status = subwords ? attn_vocab_parse_subwords(vocab, context, bytes.data, bytes.size, path)
                          : attn_vocab_parse(vocab, context, bytes.data, bytes.size, path);
    attn_bytes_free(context, &bytes);
    return status;
}

attn_status attn__translator_model(attn_model **model, attn_context *context, const attn_config *settings,
                                   const attn_vocab *source, const attn_vocab *target)
{
    bool bahdanau = strcmp(attn_config_text(settings, "model", ""), "bahdanau") == 0;
    const char *name = bahdanau ? "seq2seq-attention" : "transformer";
    attn_config *config;
    *model = NULL;
    attn_status status = attn_config_create(&config, context);
    if (status != ATTN_OK)
        return status;
    status = attn_architecture_select(attn_architecture_find(name), settings, config);
    if (status == ATTN_OK)
        status = attn_config_set_int(config, "src_vocab_size", attn_vocab_size(source));
    if (status == ATTN_OK)
        status = attn_config_set_int(config, "tgt_vocab_size", attn_vocab_size(target));
    /* With pre-norm, a block normalizes its input but not its output. Therefore encoder and decoder end with an
     * additional norm. */
    bool pre = strcmp(attn_config_text(settings, "norm", "post"), "pre") == 0;
    if (status == ATTN_OK && pre && !bahdanau)
        status = attn_config_set_bool(config, "encoder_norm", true);
    if (status == ATTN_OK && pre && !bahdanau)
        status = attn_config_set_bool(config, "decoder_norm", true);
    /* D2L compatibility uses D2L's initial weights and an encoder that does not mask padding. */
    bool d2l = attn__setting_compat(settings) == ATTN_COMPAT_D2L;
    if (status == ATTN_OK && d2l)
        status = attn_config_set_text(config, "init", "torch");
    if (status == ATTN_OK && bahdanau)
        status = attn_config_set_bool(config, "pack_padding", !d2l);
    attn_model_options options = {.seed = (uint64_t)attn_config_int(settings, "seed", 1)};
    if (status == ATTN_OK)
        status = attn_model_create(model, context, name, config, &options);
    attn_config_destroy(config);
    return status;
}

static attn_status check_vocabularies(const attn_translator *t, const char *directory)
{
    int64_t source = attn_config_int(t->config, "src_vocab_size", -1);
    int64_t target = attn_config_int(t->config, "tgt_vocab_size", -1);
    if (source != attn_vocab_size(t->source) || target != attn_vocab_size(t->target))
        return attn__fail(t->context, ATTN_ERROR_FORMAT,
                          "%s: the vocabularies have %lld and %lld tokens, but config.json gives %lld and %lld",
                          directory, (long long)attn_vocab_size(t->source), (long long)attn_vocab_size(t->target),
                          (long long)source, (long long)target);
    if (attn_vocab_special(t->target, ATTN_SPECIAL_BOS) < 0)
        return attn__fail(t->context, ATTN_ERROR_FORMAT, "%s: the target vocabulary has no <bos>", directory);
    return ATTN_OK;
}

/* Checks the settings in config.json against the table of settings, because another program may have written
 * config.json. */
static attn_status read_kept(attn_translator *t, const char *path)
{
    attn_config *given, *resolved = NULL;
    attn__keys_options of_file = {.name = path, .refusal = ATTN_ERROR_FORMAT};
    attn_status status = attn_config_create(&given, t->context);
    for (int i = 0; status == ATTN_OK && kept[i]; i++) {
        const attn_config_value *value = attn_config_get(t->config, kept[i]);
        status = value ? attn_config_set(given, kept[i], value) : ATTN_OK;
    }
    if (status == ATTN_OK)
        status = attn__keys_resolve(&resolved, t->context, &attn__translator_keys, given, &of_file);
    for (int i = 0; status == ATTN_OK && kept[i]; i++)
        status = attn_config_set(t->config, kept[i], attn_config_get(resolved, kept[i]));
    attn_config_destroy(given);
    attn_config_destroy(resolved);
    return status;
}

/* Reads how the data was split, if a published model was trained further. These settings are then in training.json. */
static attn_status read_split(attn_translator *t, const char *directory)
{
    static const char *const keys[] = {"seed", "valid", "test", "max_examples"};
    char path[ATTN__PATH];
    attn_config *training = NULL;
    attn_status status = attn__settings_beside(&training, t->context, directory, "training.json", path);
    for (size_t i = 0; training && i < sizeof keys / sizeof *keys && status == ATTN_OK; i++) {
        const attn_config_value *value = attn_config_get(training, keys[i]);
        bool number = value && (value->type == ATTN_CONFIG_TYPE_INT || value->type == ATTN_CONFIG_TYPE_REAL);
        status = number ? attn_config_set(t->config, keys[i], value) : ATTN_OK;
    }
    attn_config_destroy(training);
    return status;
}

static attn_status load_vocabularies(attn_translator *t, const char *directory)
{
    attn_vocab_kind kind = attn__setting_vocabulary(t->config);
    attn_status status = attn__vocab_read(&t->source, t->context, directory, ATTN_SIDE_SOURCE, kind);
    if (status == ATTN_OK)
        status = attn__vocab_read(&t->target, t->context, directory, ATTN_SIDE_TARGET, kind);
    return status == ATTN_OK ? check_vocabularies(t, directory) : status;
}

/* The length of a line is limited by the number of the model's positions. A recurrent model has no such limit. The
 * length of a translation is limited in proportion to the length of its line, but the limit is at least the training's
 * maximum length. With D2L compatibility, all lengths are equal. */
static void set_lengths(attn_translator *t)
{
    enum { UNBOUNDED = 1 << 16 };
    int64_t trained = attn_config_int(t->config, "max_tokens", 64);
    t->compat = attn__setting_compat(t->config);
    t->max_tokens =
        t->compat == ATTN_COMPAT_D2L ? trained : attn_config_int(attn_model_config(t->model), "max_len", UNBOUNDED);
    t->max_output = t->max_tokens;
    t->search.length_factor = t->compat == ATTN_COMPAT_D2L ? 0 : 3;
    t->search.least_limit = trained;
}

/* Loads a directory of attn. It can also load a directory whose weights have other names, which a names file maps to
 * attn's names. */
static attn_status load_own(attn_translator *t, const char *directory, const attn__foreign *from)
{
    attn_status status = attn__product_check(t->context, from->settings, t->config, ATTN__PRODUCT_TRANSLATOR);
    if (status == ATTN_OK)
        status = read_kept(t, from->settings);
    if (status == ATTN_OK)
        status = load_vocabularies(t, directory);
    if (status == ATTN_OK)
        status = attn__foreign_model(&t->model, t->context, from, NULL);
    if (status == ATTN_OK)
        status = attn__low_score_read(&t->low_score, t->context, directory);
    if (status == ATTN_OK)
        set_lengths(t);
    return status;
}

static attn_status load_archive(attn_translator *t, const char *directory, const char *names)
{
    attn__archive archive;
    attn_status status = attn__archive_read(&archive, &t->config, t->context, directory);
    return status == ATTN_OK ? attn__marian_load(t, directory, &archive, names) : status;
}

static attn_status load_parts(attn_translator *t, const char *names, attn__foreign *from)
{
    const char *directory = from->is.path;
    if (from->is.form == ATTN__FORM_MARIAN)
        return load_archive(t, directory, names);
    /* MarianMT directories are loaded by another function, because their form has names files of its own */
    bool marian = strcmp(from->is.type, "marian") == 0;
    attn_status status = attn__foreign_describe(from, &(attn__foreign_wish){.names = marian ? NULL : names});
    t->config = from->config;
    if (status == ATTN_OK && marian) {
        status = attn__marian_load(t, directory, NULL, names);
        if (status == ATTN_OK)
            status = read_split(t, directory);
    } else if (status == ATTN_OK) {
        status = load_own(t, directory, from);
    }
    from->config = NULL;
    return status;
}

attn_status attn_translator_load(attn_translator **translator, attn_context *context, const char *directory,
                                 const char *names)
{
    ATTN__CALL(context);
    attn__foreign from;
    *translator = NULL;
    attn_translator *made = attn__alloc_zero(context, sizeof *made);
    if (!made)
        return ATTN_ERROR_MEMORY;
    made->context = context;
    made->low_score = -INFINITY;
    attn_status status = attn__foreign_open(&from, context, directory);
    if (status == ATTN_OK && !names)
        status = attn__identity_translates(&from.is);
    if (status == ATTN_OK)
        status = load_parts(made, names, &from);
    attn__foreign_end(&from);
    if (status != ATTN_OK) {
        attn_translator_destroy(made);
        return status;
    }
    *translator = made;
    return ATTN_OK;
}

void attn_translator_destroy(attn_translator *t)
{
    if (!t)
        return;
    attn_model_destroy(t->model);
    attn_vocab_destroy(t->source);
    attn_vocab_destroy(t->target);
    attn_config_destroy(t->config);
    attn__free(t->context, t->search.banned);
    for (int64_t i = 0; i < t->search.nsequences; i++)
        attn__free(t->context, (void *)(uintptr_t)t->search.sequences[i].ids);
    attn__free(t->context, t->search.sequences);
    attn__free(t->context, t->search.shortlist);
    attn__free(t->context, t);
}

attn_model *attn_translator_model(const attn_translator *translator)
{
    return translator->model;
}

const attn_vocab *attn_translator_vocab(const attn_translator *translator, attn_side side)
{
    return side == ATTN_SIDE_SOURCE ? translator->source : translator->target;
}

attn_tensor *attn__ids_on_tape(attn_tape *tape, int64_t rows, int64_t cols, const int32_t *ids)
{
    return attn_tape_tensor(tape, ATTN_I32, 2, (int64_t[]){rows, cols}, ids);
}

attn_status attn__normalized_words(attn_context *context, const char *line, attn_compat compat, char **text)
{
    size_t length = strlen(line), size = attn__size_add(attn__size_mul(length, 2), 1);
    *text = attn__alloc(context, size);
    return *text ? attn_text_normalize(context, line, length, compat, *text, size, NULL) : ATTN_ERROR_MEMORY;
}

attn_status attn__normalized(const attn_translator *t, const char *line, char **text)
{
    if (attn_vocab_has_subwords(t->source))
        return (*text = attn__strdup(t->context, line)) ? ATTN_OK : ATTN_ERROR_MEMORY;
    return attn__normalized_words(t->context, line, t->compat, text);
}

attn_status attn__detokenized(const attn_translator *t, const char *tokens, char **text)
{
    if (attn_vocab_has_subwords(t->target))
        return attn__vocab_join(t->target, tokens, text);
    bool french = attn_config_bool(t->config, "space_before_marks", true);
    size_t size = attn_text_detokenize(tokens, french, NULL, 0) + 1;
    *text = attn__alloc(t->context, size);
    if (!*text)
        return ATTN_ERROR_MEMORY;
    attn_text_detokenize(tokens, french, *text, size);
    return ATTN_OK;
}

attn_status attn__reference(const attn_translator *t, const char *target, char **text)
{
    if (!attn_vocab_has_subwords(t->target))
        return attn__detokenized(t, target, text);
    return (*text = attn__strdup(t->context, target)) ? ATTN_OK : ATTN_ERROR_MEMORY;
}

attn_encode_options attn__encoding(const attn_translator *t)
{
    return (attn_encode_options){.compat = t->compat, .steps = t->max_tokens};
}

/* ------------------------------------------------------------------------------------------------ pairs */

uint64_t attn__fingerprint(const char *text, size_t size)
{
    uint64_t hash = attn__mix64(size);
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = 0;
        memcpy(&word, text + i, size - i < 8 ? size - i : 8);
        hash = attn__mix64(hash ^ word);
    }
    return hash;
}

const char *attn__pairs_name(const attn_pairs_source *data)
{
    return data->path ? data->path : data->name ? data->name : "phrasebook";
}

attn_status attn__pairs_read(attn_pairs **pairs, attn_context *context, const attn_pairs_source *data,
                             const attn_pairs_options *options, uint64_t *fingerprint)
{
    attn_bytes bytes = {0};
    const char *path = data->path, *text = data->text;
    size_t size = data->size;
    *pairs = NULL;
    if (path) {
        attn_status status = attn_file_read(&bytes, context, path, 0);
        if (status != ATTN_OK)
            return status;
        text = bytes.data;
        size = bytes.size;
    }
    if (fingerprint)
        *fingerprint = attn__fingerprint(text, size);
    attn_pairs_options how = *options;
    how.bad = data->bad;
    attn_status status = attn_pairs_parse(pairs, context, text, size, attn__pairs_name(data), &how);
    attn_bytes_free(context, &bytes);
    return status;
}
