/* SPDX-License-Identifier: MIT
 *
 * Contains the list of the kinds of training, the function that runs one of them, and the one that finds the kind of
 * training that makes a model.
 */
#include "attn/trainer.h"

#include "apps/run/run.h"
#include "base/context.h"
#include "base/integers.h"
#include "io/directory.h"
#include "io/names/names.h"

#include <stdio.h>
#include <string.h>

static const attn__run_kind *const kinds[] = {&attn__translator_training_kind, &attn__classifier_training_kind,
                                              &attn__generator_training_kind, &attn__msa_training_kind,
                                              &attn__detector_training_kind};

enum { KINDS = sizeof kinds / sizeof *kinds };

const attn_trainer *attn_trainer_at(int i)
{
    return i >= 0 && i < KINDS ? kinds[i]->about : NULL;
}

static const attn__run_kind *find(const char *name)
{
    for (int i = 0; i < KINDS; i++)
        if (strcmp(kinds[i]->about->kind, name) == 0)
            return kinds[i];
    return NULL;
}

const attn_trainer *attn_trainer_find(const char *kind)
{
    const attn__run_kind *found = kind ? find(kind) : NULL;
    return found ? found->about : NULL;
}

/* Returns the kind of training with this name. If there is none, sets an error that lists all kinds, and returns
 * NULL. */
static const attn__run_kind *need(attn_context *context, const char *name)
{
    const attn__run_kind *kind = name ? find(name) : NULL;
    char all[160] = "";
    for (int i = 0; !kind && i < KINDS; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", kinds[i]->about->kind);
    if (!kind)
        attn__fail(context, ATTN_ERROR_NOT_FOUND, "unknown kind of training \"%s\"; expected one of %s",
                   name ? name : "", all);
    return kind;
}

attn_status attn_train(attn_context *context, const attn_trainer_job *job)
{
    ATTN__CALL(context);
    const attn__run_kind *kind = need(context, job->kind);
    if (!kind)
        return ATTN_ERROR_NOT_FOUND;
    if (ATTN__CHECK_RESERVED(context, job, attn_trainer_job) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    if (!job->directory)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "attn_trainer_job: directory is NULL");
    if (!kind->in_memory && (job->text || job->left_out))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "%s: sentence pairs (text, left_out) apply to translate only",
                          job->kind);
    if (job->data && job->text)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "attn_trainer_job: data and text are both given; expected one of them");
    if (!job->data && !job->text && !job->resume)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "%s: no data are given; expected %s", job->kind,
                          kind->about->data);
    return attn__run_train(context, kind, job);
}

attn_status attn_trainer_settings(attn_config **settings, attn_context *context, const char *kind,
                                  const attn_config *given)
{
    ATTN__CALL(context);
    *settings = NULL;
    const attn__run_kind *found = need(context, kind);
    return found ? attn__keys_resolve(settings, context, found->keys, given, NULL) : ATTN_ERROR_NOT_FOUND;
}

attn_status attn_trainer_of(const attn_trainer **trainer, attn_context *context, const char *path, const char *names)
{
    ATTN__CALL(context);
    attn__identity is = {0};
    attn_name_map *map = NULL;
    *trainer = NULL;
    attn_status status = names ? attn_name_map_read(&map, context, names) : ATTN_OK;
    const char *architecture = map ? attn_name_map_architecture(map) : NULL;
    if (status == ATTN_OK && !architecture)
        status = attn__identify(&is, context, path);
    if (status == ATTN_OK && !architecture && (is.form == ATTN__FORM_FILE || is.product == ATTN__PRODUCT_NONE))
        status = attn__identify_weights(&is);
    if (status == ATTN_OK && !architecture && is.form == ATTN__FORM_NONE)
        status = attn__fail(context, ATTN_ERROR_NOT_FOUND, "%s: there is no such file or directory", path);
    attn__application product = architecture ? attn__product_of(architecture) : is.product;
    for (int i = 0; status == ATTN_OK && i < KINDS; i++)
        if (kinds[i]->product == product)
            *trainer = kinds[i]->about;
    attn__identity_end(&is);
    attn_name_map_destroy(map);
    return status;
}
