/* SPDX-License-Identifier: MIT
 * msa.h - what a loaded MSA Transformer is made of. */
#ifndef ATTN_APPS_MSA_H
#define ATTN_APPS_MSA_H

#include "attn/msa.h"
#include "attn/trainer.h"
#include "data/proteins.h"
#include "models/msa_model.h"

struct attn_msa {
    attn_context *context;
    attn_model *model;
    attn_tape *tape; /* of the last run */
    bool has_regression;
    const attn_tensor *representations[ATTN__MAX_BLOCKS + 1]; /* what the last run's result points to */
};

/* True if `path` looks like something attn_msa_load can load: a name ending in .pt, or a directory whose config.json
 * describes an MSA Transformer. False if it cannot be read. */
bool attn_msa_is_at(attn_context *context, const char *path);
/* A model with fresh parameters; `config` (may be NULL) as the architecture msa-transformer takes it.
 * ATTN_ERROR_ARGUMENT: settings that the architecture refuses; ATTN_ERROR_MEMORY. */
attn_status attn_msa_create(attn_msa **msa, attn_context *context, const attn_config *config, uint64_t seed);
/* Writes DIRECTORY/config.json and DIRECTORY/model.safetensors, the regression (where there is one) with the rest.
 * ATTN_ERROR_IO; ATTN_ERROR_MEMORY. */
attn_status attn_msa_save(const attn_msa *msa, const char *directory);

/* The model itself, the architecture msa-transformer of models.h, for training and for its parameters. */
attn_model *attn_msa_model(const attn_msa *msa);
/* Whether contacts can be requested: a regression was loaded, or attn_msa_set_regression called. */
bool attn_msa_has_regression(const attn_msa *msa);
/* weights [L*H], feature layer * H + head, and the bias: of the symmetric, corrected maps. */
void attn_msa_set_regression(attn_msa *msa, const float *weights, float bias);

/* Fills `msa` from one of ESM's checkpoints, or from a directory of ours. */
attn_status attn__msa_load_checkpoint(attn_msa *msa, const char *path, const attn_msa_load_options *options);
/* By options->names. */
attn_status attn__msa_load_foreign(attn_msa *msa, const char *path, const attn_msa_load_options *options);
/* The model of settings as a config.json has them, blank, for the weights of that path. */
attn_status attn__msa_build_from(attn_msa *msa, const attn_config *file, const char *weights,
                                 const attn_msa_load_options *options);
attn_status attn__msa_load_directory(attn_msa *msa, const char *path, const attn_msa_load_options *options);
/* The model that `config` describes, blank or with random parameters. */
attn_status attn__msa_build(attn_msa *msa, const attn_config *config, const attn_model_options *options);
/* The parameters without the regression's, sharing tensors and names with the model's list; freed by
 * attn_named_clear. */
attn_status attn__msa_without_regression(const attn_msa *msa, attn_named_list *list);

/* config.json of a directory; `regression` says what model.safetensors holds of it: "fitted", "untrained" (its start)
 * or "none". */
attn_status attn__msa_write_config(const attn_model *model, const char *regression, const char *directory);

#endif
