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
    attn_tape *tape; /* tape of the last run */
    bool has_regression;
    const attn_tensor *representations[ATTN__MAX_BLOCKS + 1]; /* tensors of the last run's result */
};

/* Whether attn_msa_load may be able to load `path`: a name ending in .pt, or a directory whose config.json describes an
 * MSA Transformer. False if the path cannot be read. */
bool attn_msa_is_at(attn_context *context, const char *path);
/* A new model; `config` (may be NULL) has the settings of the architecture msa-transformer. ATTN_ERROR_ARGUMENT:
 * settings that the architecture refuses; ATTN_ERROR_MEMORY. */
attn_status attn_msa_create(attn_msa **msa, attn_context *context, const attn_config *config, uint64_t seed);
/* Writes DIRECTORY/config.json and DIRECTORY/model.safetensors, which includes the regression if there is one.
 * ATTN_ERROR_IO; ATTN_ERROR_MEMORY. */
attn_status attn_msa_save(const attn_msa *msa, const char *directory);

/* The model of the architecture msa-transformer (models.h), for training and for its parameters. */
attn_model *attn_msa_model(const attn_msa *msa);
/* Whether contacts can be requested: a regression was loaded, or attn_msa_set_regression was called. */
bool attn_msa_has_regression(const attn_msa *msa);
/* Sets the regression: weights [L*H] over the symmetric, corrected maps, in the order layer * H + head, and the
 * bias. */
void attn_msa_set_regression(attn_msa *msa, const float *weights, float bias);

/* Fills `msa` from one of ESM's checkpoints, or from one of attn's directories. */
attn_status attn__msa_load_checkpoint(attn_msa *msa, const char *path, const attn_msa_load_options *options);
/* Loads by the names file options->names. */
attn_status attn__msa_load_foreign(attn_msa *msa, const char *path, const attn_msa_load_options *options);
/* The blank model of settings from a config.json, for the weights of that path. */
attn_status attn__msa_build_from(attn_msa *msa, const attn_config *file, const char *weights,
                                 const attn_msa_load_options *options);
attn_status attn__msa_load_directory(attn_msa *msa, const char *path, const attn_msa_load_options *options);
/* The model that `config` describes, blank or with random parameters. */
attn_status attn__msa_build(attn_msa *msa, const attn_config *config, const attn_model_options *options);
/* The parameters except the regression's. The list shares tensors and names with the model's; free it with
 * attn_named_clear. */
attn_status attn__msa_without_regression(const attn_msa *msa, attn_named_list *list);

/* Writes config.json of a directory. `regression` tells the state of the regression in model.safetensors: "fitted",
 * "untrained" (initial values) or "none". */
attn_status attn__msa_write_config(const attn_model *model, const char *regression, const char *directory);

#endif
