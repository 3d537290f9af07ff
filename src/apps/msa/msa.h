/* SPDX-License-Identifier: MIT
 * msa.h - the struct of a loaded MSA Transformer. */
#ifndef ATTN_APPS_MSA_H
#define ATTN_APPS_MSA_H

#include "attn/msa.h"
#include "attn/trainer.h"
#include "data/proteins.h"
#include "models/msa_model.h"

struct attn_msa {
    attn_context *context;
    attn_model *model;
    attn_tape *tape; /* tape that owns the results of the last run */
    bool has_regression;
    const attn_tensor *representations[ATTN__MAX_BLOCKS + 1]; /* the representations that the last run returned */
};

/* Creates a new model with random parameters. `config` holds settings of the architecture msa-transformer, and may
 * be NULL. ATTN_ERROR_ARGUMENT: the architecture refuses a setting. ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn_msa_create(attn_msa **msa, attn_context *context, const attn_config *config, uint64_t seed);
/* Writes DIRECTORY/config.json and DIRECTORY/model.safetensors. If there is a contact regression, it is written too.
 * May return ATTN_ERROR_IO and ATTN_ERROR_MEMORY. */
attn_status attn_msa_save(const attn_msa *msa, const char *directory);

/* Returns the model of the architecture msa-transformer (models.h), for training and for its parameters. */
attn_model *attn_msa_model(const attn_msa *msa);
/* Reports whether contacts can be requested. This is the case if a contact regression was loaded or set by
 * attn_msa_set_regression. */
bool attn_msa_has_regression(const attn_msa *msa);
/* Sets the contact regression. Its weights [L*H] apply to the symmetric, corrected maps; the weight of head h of layer
 * l has the index l * H + h. */
void attn_msa_set_regression(attn_msa *msa, const float *weights, float bias);

/* Fills `msa` from a checkpoint of ESM or from a directory of attn. */
attn_status attn__msa_load_checkpoint(attn_msa *msa, const char *path, const attn_msa_load_options *options);
/* Loads a model by means of the names file options->names. */
attn_status attn__msa_load_foreign(attn_msa *msa, const char *path, const attn_msa_load_options *options);
/* Makes a blank model with the settings of the config.json `file`, for the weights in the file `weights`. */
attn_status attn__msa_build_from(attn_msa *msa, const attn_config *file, const char *weights,
                                 const attn_msa_load_options *options);
attn_status attn__msa_load_directory(attn_msa *msa, const char *path, const attn_msa_load_options *options);
/* Makes the model that `config` describes. It is blank or has random parameters, as `options` require. */
attn_status attn__msa_build(attn_msa *msa, const attn_config *config, const attn_model_options *options);
/* Fills `list` with all parameters of the model except those of the regression. The list shares its tensors and
 * names with the model. It must be freed with attn_named_clear. */
attn_status attn__msa_without_regression(const attn_msa *msa, attn_named_list *list);

/* `regression` is the state of the contact regression that is in model.safetensors: "fitted", "untrained" (initial
 * values) or "none". */
attn_status attn__msa_write_config(const attn_model *model, const char *regression, const char *directory);

#endif
