/* SPDX-License-Identifier: MIT
 *
 * convert.h - checkpoints from elsewhere, in any form that io.h reads, as directories and safetensors of this library.
 *
 *     attn_checkpoint_kind kind;
 *     attn_checkpoint_kind_of(&kind, context, "model.pt");
 *     if (kind == ATTN_CHECKPOINT_MSA) ...            // attn_msa_load and attn_msa_save of msa.h
 *
 * One thread at a time uses a context; different contexts are independent.
 */
#ifndef ATTN_CONVERT_H
#define ATTN_CONVERT_H

#include "attn/models.h"
#include "attn/io.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum attn_checkpoint_kind {
    ATTN_CHECKPOINT_OTHER = 0, /* tensors of no model that is known by its names */
    ATTN_CHECKPOINT_MSA,       /* of facebookresearch/esm: its arguments are in it */
    ATTN_CHECKPOINT_VIT,       /* a Vision Transformer of Hugging Face or timm */
    ATTN_CHECKPOINT_MARIAN     /* a translator's directory as Marian leaves it: decoder.yml, an .npz, vocabularies */
} attn_checkpoint_kind;

/* The kind of a file of weights or of a Hugging Face directory; no tensor is read.  Statuses of attn_weights_read. */
ATTN_API attn_status attn_checkpoint_kind_of(attn_checkpoint_kind *kind, attn_context *context, const char *path);

/* Writes DIRECTORY/config.json (the architecture's name and settings) and DIRECTORY/model.safetensors, in that
 * architecture's own names, as attn_model_create and attn_weights_load take them.  ATTN_ERROR_IO; ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_model_save(const attn_model *model, const char *directory);

/* Zero means the default in each field. */
typedef struct attn_model_load_options {
    const attn_config *config; /* the settings, in place of config.json; NULL: that of the directory */
    /* Which architecture; NULL: the one that the settings name by "architecture", or the names file. */
    const char *architecture;
    const char *names; /* a names file of io.h, or the name of one that is built in, for weights of foreign names */
    attn_dtype dtype;  /* ATTN_F32 or ATTN_F64 */
    attn_precision precision; /* as in attn_model_options */
    int64_t reserved[4];
} attn_model_load_options;
/* A model with its weights, to be destroyed by the caller with attn_model_destroy: from a directory of config.json and
 * weights, as attn_model_save and trainings write it, or from a file of weights with `config`, or with `names`.
 * Settings that the architecture does not have are passed over.  `options` may be NULL.
 *
 *     attn_model *model;
 *     if (attn_model_load(&model, context, "out/demo", NULL) != ATTN_OK)
 *         puts(attn_context_error(context));
 *
 * *model is NULL on failure.  ATTN_ERROR_NOT_FOUND: no such file; ATTN_ERROR_ARGUMENT: nothing says what model it is, or
 * a setting is wrong; ATTN_ERROR_SHAPE: parameters are missing, extra or misshapen; the statuses of attn_weights_load
 * and attn_name_map_read. */
ATTN_API attn_status attn_model_load(attn_model **model, attn_context *context, const char *path,
                                     const attn_model_load_options *options);

/* A directory as Marian leaves it, written as one in Hugging Face's MarianMT form.  Statuses of attn_translator_load, and
 * ATTN_ERROR_IO. */
ATTN_API attn_status attn_marian_convert(attn_context *context, const char *path, const char *directory);

/* All tensors of a file as a .safetensors file, their names and numbers as they are, their types as keep_types of
 * attn_weights_options (io.h) keeps them; other numbers and texts of a .pt become __metadata__.  *tensors (may be
 * NULL) gets how many.  `report` and statuses as in attn_weights_read, and ATTN_ERROR_IO. */
ATTN_API attn_status attn_weights_convert(attn_context *context, const char *path, const char *to, int64_t *tensors,
                                          attn_bytes *report);

/* Whether a directory holds attn's config.json and a low-rank adapter (adapter_config.json, adapter_model.safetensors).
 * Readers of weights merge it as they read. */
ATTN_API bool attn_model_has_adapter(attn_context *context, const char *directory);
/* Writes such a directory's model with the adapter in its weights to another directory: config.json, its
 * vocabularies and model.safetensors.  ATTN_ERROR_ARGUMENT: the same directory, or one with an adapter; the statuses
 * of attn_weights_read. */
ATTN_API attn_status attn_model_merge_adapter(attn_context *context, const char *directory, const char *to);

/* Writes the model of a directory of attn's own to another directory, or to the same, with the weights of its linear
 * layers, real numbers of any type, in fewer bytes: BF16, or INT8, I8 [out,in] with "NAME.int8_scale", F32 [out];
 * everything else stays as it is.  Read again, which makes f32 of them, the model gives in that precision the bits that
 * it gave before.  Weights whose int8 form would not stay as they are: numbers that are not finite, or next to the
 * largest, and rows of more than 130,000 numbers.  config.json and vocabularies are copied.  ATTN_ERROR_ARGUMENT: another
 * precision, or an adapter in `to`; ATTN_ERROR_UNSUPPORTED: int8 of an architecture whose layers have none (the MSA
 * Transformer and its layers, the axial image transformer); the statuses of attn_weights_read. */
ATTN_API attn_status attn_model_quantize(attn_context *context, const char *directory, const char *to,
                                         attn_precision precision);
/* Whether attn_model_quantize takes models of this architecture in this precision.  Any thread, without a context. */
ATTN_API bool attn_architecture_quantizes(const attn_architecture *architecture, attn_precision precision);

#ifdef __cplusplus
}
#endif
#endif
