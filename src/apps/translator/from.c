/* SPDX-License-Identifier: MIT
 *
 * Starts the fine-tuning of a translator. The vocabularies and the model are those of a directory of attn or of
 * MarianMT's form.
 */
#include "apps/translator/training.h"

#include "apps/checkpoint/marian.h"
#include "apps/checkpoint/model_directory.h"
#include "apps/translator/settings.h"
#include "base/context.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Sets the kind of vocabulary to that of the checkpoint. Refuses settings that would change the vocabularies. */
static attn_status take_vocabulary(const attn__translator_training *t, const char *path)
{
    static const char *const making[] = {"vocabulary_size", "character_coverage", "joint_vocabulary", "min_frequency",
                                         "max_words"};
    bool marian = t->from->marian;
    const char *its = marian ? "unigram" : attn_config_text(t->from->config, "vocabulary", "word");
    const attn_config_value value = {.type = ATTN_CONFIG_TYPE_TEXT, .text = its};
    char why[64];
    snprintf(why, sizeof why, "comes with its vocabularies (%s)", its);
    attn_status status = ATTN_OK;
    if (t->run.given && strcmp(attn_config_text(t->run.given, "vocabulary", "auto"), "auto") != 0)
        status = attn__run_refuse(&t->run, "vocabulary", &value, why);
    for (size_t i = 0; i < sizeof making / sizeof *making && status == ATTN_OK; i++)
        status = attn__run_refuse(&t->run, making[i], NULL, why);
    if (status == ATTN_OK && attn__setting_compat(t->run.settings) != t->from->compat)
        status = attn__fail(
            t->run.context, ATTN_ERROR_ARGUMENT, "%s: the translator's compat is %s, but --compat is %s", path,
            t->from->compat == ATTN_COMPAT_D2L ? "d2l" : "none", attn_config_text(t->run.settings, "compat", "none"));
    return status == ATTN_OK ? attn_config_set_text(t->run.settings, "vocabulary", its) : status;
}

/* Sets the kind of model to that of the checkpoint. Refuses a setting that requests another kind. */
static attn_status take_kind(const attn__translator_training *t)
{
    bool transformer = strcmp(attn_model_architecture(t->from->model)->name, "transformer") == 0;
    const attn_config_value its = {.type = ATTN_CONFIG_TYPE_TEXT, .text = transformer ? "transformer" : "bahdanau"};
    attn_status status = attn__run_refuse(&t->run, "model", &its, transformer ? "is a transformer" : "is a bahdanau");
    return status == ATTN_OK ? attn_config_set(t->run.settings, "model", &its) : status;
}

/* Replaces the sizes in the settings by those of the checkpoint. */
static attn_status take_sizes(const attn__translator_training *t)
{
    static const char *const keys[] = {"num_hiddens", "ffn_num_hiddens", "num_heads", "num_blks", NULL};
    attn_status status = ATTN_OK;
    for (int i = 0; keys[i] && status == ATTN_OK; i++) {
        const attn_config_value *its = attn_config_get(attn_model_config(t->from->model), keys[i]);
        if (its && attn_config_get(t->run.settings, keys[i]))
            status = attn_config_set(t->run.settings, keys[i], its);
    }
    return status;
}

static attn_status take_settings(const attn__translator_training *t, const char *path)
{
    attn_config *settings = t->run.settings;
    if (t->from->marian && attn_config_get(settings, "lora"))
        return attn__fail(t->run.context, ATTN_ERROR_UNSUPPORTED,
                          "%s is a MarianMT directory, which cannot store adapters: leave out --lora", path);
    const attn_config_value *marks = attn_config_get(t->from->config, "space_before_marks");
    int64_t longest = attn_config_int(attn_model_config(t->from->model), "max_len", t->from->max_tokens);
    attn_status status = marks ? attn__run_refuse(&t->run, "space_before_marks", marks, "has another value") : ATTN_OK;
    if (status == ATTN_OK)
        status = take_vocabulary(t, path);
    if (status == ATTN_OK && attn_config_int(settings, "max_tokens", 64) > longest)
        status = attn__fail(t->run.context, ATTN_ERROR_ARGUMENT,
                            "--max-tokens is %" PRId64 ", but %s takes at most %" PRId64 " tokens",
                            attn_config_int(settings, "max_tokens", 64), path, longest);
    if (status == ATTN_OK)
        status = take_kind(t);
    if (status == ATTN_OK)
        status = take_sizes(t);
    return status == ATTN_OK && marks ? attn_config_set(settings, "space_before_marks", marks) : status;
}

attn_status attn__training_from(attn__translator_training *t)
{
    const char *path = attn_config_text(t->run.settings, "from", "");
    if (!*path)
        return ATTN_OK;
    /* a resumed run loads its own directory, for which no names file is needed */
    attn_status status = attn_translator_load(&t->from, t->run.context, t->run.resume ? t->run.directory : path,
                                              t->run.resume ? NULL : attn_config_text(t->run.settings, "names", NULL));
    if (status == ATTN_OK && !t->run.resume)
        status = take_settings(t, path);
    if (status != ATTN_OK)
        return status;
    t->source = t->from->source;
    t->target = t->from->target;
    t->from->source = t->from->target = NULL;
    return ATTN_OK;
}

attn_status attn__training_from_model(attn__translator_training *t)
{
    if (!t->from)
        return ATTN_OK;
    attn_status status =
        attn__run_copy_model(&t->run, t->from->model, NULL, t->from->no_bias ? "decoder.dense.bias" : NULL);
    attn_model_destroy(t->from->model); /* the original model is not needed, because the copy is trained */
    t->from->model = NULL;
    return status;
}

/* ----------------------------------------------------------------------------------------------- files */

attn_status attn__training_from_files(const attn__translator_training *t)
{
    return attn__marian_files(t->run.context, t->from->config, t->source, t->target,
                              attn_config_text(t->run.settings, "from", ""), t->run.directory);
}
