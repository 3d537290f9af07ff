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
    attn_tape *tape; /* tape that holds the last run's results */
    bool has_regression;
    const attn_tensor *representations[ATTN__MAX_BLOCKS + 1]; /* representations that the last run returned */
};

/* Reports whether attn_msa_load may be able to load `path`: its name ends in .pt, or it is a directory whose
 * config.json describes an MSA Transformer. Returns false if the path cannot be read. */
bool attn_msa_is_at(attn_context *context, const char *path);
/* Creates a new model with random parameters. `config` (may be NULL) has settings of the architecture
 * msa-transformer. ATTN_ERROR_ARGUMENT: the architecture refuses a setting. ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn_msa_create(attn_msa **msa, attn_context *context, const attn_config *config, uint64_t seed);
/* Writes DIRECTORY/config.json and DIRECTORY/model.safetensors, which includes the contact regression if there is
 * one. Errors: ATTN_ERROR_IO, ATTN_ERROR_MEMORY. */
attn_status attn_msa_save(const attn_msa *msa, const char *directory);

/* Returns the model of the architecture msa-transformer (models.h), for training and for its parameters. */
attn_model *attn_msa_model(const attn_msa *msa);
/* Reports whether contacts can be requested: a contact regression was loaded, or attn_msa_set_regression was called. */
bool attn_msa_has_regression(const attn_msa *msa);
/* Sets the contact regression: weights [L*H] for the symmetric, corrected maps, in the order layer * H + head, and
 * the bias. */
void attn_msa_set_regression(attn_msa *msa, const float *weights, float bias);

/* Fills `msa` from one of ESM's checkpoints, or from one of attn's directories. */
attn_status attn__msa_load_checkpoint(attn_msa *msa, const char *path, const attn_msa_load_options *options);
/* Loads a model through the names file options->names. */
attn_status attn__msa_load_foreign(attn_msa *msa, const char *path, const attn_msa_load_options *options);
/* Makes a blank model by the settings of a config.json, for the weights in the file `weights`. */
attn_status attn__msa_build_from(attn_msa *msa, const attn_config *file, const char *weights,
                                 const attn_msa_load_options *options);
attn_status attn__msa_load_directory(attn_msa *msa, const char *path, const attn_msa_load_options *options);
/* Makes the model that `config` describes, blank or with random parameters. */
attn_status attn__msa_build(attn_msa *msa, const attn_config *config, const attn_model_options *options);
/* Fills `list` with the model's parameters except those of the regression. The list shares tensors and names with
 * the model. Free it with attn_named_clear. */
attn_status attn__msa_without_regression(const attn_msa *msa, attn_named_list *list);

/* Writes config.json of a directory. `regression` is the state of the contact regression in model.safetensors:
 * "fitted", "untrained" (initial values) or "none". */
attn_status attn__msa_write_config(const attn_model *model, const char *regression, const char *directory);

#endif
