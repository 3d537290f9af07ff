/* SPDX-License-Identifier: MIT
 * msa.h - what a loaded MSA Transformer is made of. */
#ifndef ATTN_APPS_MSA_H
#define ATTN_APPS_MSA_H

#include "attn/msa.h"
#include "models/msa_model.h"

struct attn_msa {
    attn_context *context;
    attn_model *model;
    attn_tape *tape; /* of the last run */
    bool has_regression;
    const attn_tensor *representations[ATTN__MAX_BLOCKS + 1]; /* what the last run's result points to */
};

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
