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
#ifndef ATTN_APPS_CONVERT_H
#define ATTN_APPS_CONVERT_H

#include "attn/models.h"
#include "attn/io.h"

typedef enum attn_checkpoint_kind {
    ATTN_CHECKPOINT_OTHER = 0, /* tensors of no model that is known by its names */
    ATTN_CHECKPOINT_MSA,       /* of facebookresearch/esm: its arguments are in it */
    ATTN_CHECKPOINT_VIT,       /* a Vision Transformer of Hugging Face or timm */
    ATTN_CHECKPOINT_MARIAN     /* a translator's directory as Marian leaves it: decoder.yml, an .npz, vocabularies */
} attn_checkpoint_kind;

/* The kind of a file of weights or of a Hugging Face directory; no tensor is read.  Statuses of attn_weights_read. */
attn_status attn_checkpoint_kind_of(attn_checkpoint_kind *kind, attn_context *context, const char *path);

/* A directory as Marian leaves it, written as one in Hugging Face's MarianMT form.  Statuses of attn_translator_load, and
 * ATTN_ERROR_IO. */
attn_status attn_marian_convert(attn_context *context, const char *path, const char *directory);

/* All tensors of a file as a .safetensors file, their names and numbers as they are, their types as keep_types of
 * attn_weights_options (io.h) keeps them; other numbers and texts of a .pt become __metadata__.  *tensors (may be
 * NULL) gets how many.  `report` and statuses as in attn_weights_read, and ATTN_ERROR_IO. */
attn_status attn_weights_convert(attn_context *context, const char *path, const char *to, int64_t *tensors,
                                 attn_bytes *report);

/* Whether a directory holds attn's config.json and a low-rank adapter (adapter_config.json, adapter_model.safetensors).
 * Readers of weights merge it as they read. */
bool attn_model_has_adapter(attn_context *context, const char *directory);
/* Writes such a directory's model with the adapter in its weights to another directory: config.json, its
 * vocabularies and model.safetensors.  ATTN_ERROR_ARGUMENT: the same directory, or one with an adapter; the statuses
 * of attn_weights_read. */
attn_status attn_model_merge_adapter(attn_context *context, const char *directory, const char *to);

/* Writes the model of a directory of attn's own to another directory, or to the same, with the weights of its linear
 * layers, real numbers of any type, in fewer bytes: BF16, or INT8, I8 [out,in] with "NAME.int8_scale", F32 [out];
 * everything else stays as it is.  Read again, which makes f32 of them, the model gives in that precision the bits that
 * it gave before.  Weights whose int8 form would not stay as they are: numbers that are not finite, or next to the
 * largest, and rows of more than 130,000 numbers.  config.json and vocabularies are copied.  ATTN_ERROR_ARGUMENT: another
 * precision, or an adapter in `to`; ATTN_ERROR_UNSUPPORTED: int8 of an architecture whose layers have none (the MSA
 * Transformer and its layers, the axial image transformer); the statuses of attn_weights_read. */
attn_status attn_model_quantize(attn_context *context, const char *directory, const char *to, attn_precision precision);
/* Whether attn_model_quantize takes models of this architecture in this precision.  Any thread, without a context. */
bool attn_architecture_quantizes(const attn_architecture *architecture, attn_precision precision);

#endif
