/* SPDX-License-Identifier: MIT
 *
 * convert.h - converts foreign checkpoints, in any format that io.h reads, to this library's model directories and to
 * safetensors files.
 *
 *     attn_checkpoint_kind kind;
 *     attn_checkpoint_kind_of(&kind, context, "model.pt");
 *     if (kind == ATTN_CHECKPOINT_MSA) ...            // attn_msa_load and attn_msa_save of msa.h
 *
 * One thread at a time uses a context; different contexts are independent. */
#ifndef ATTN_APPS_CONVERT_H
#define ATTN_APPS_CONVERT_H

#include "apps/checkpoint/identify.h"
#include "attn/models.h"
#include "attn/io.h"

typedef enum attn_checkpoint_kind {
    ATTN_CHECKPOINT_OTHER = 0, /* unknown: the names of the tensors match no known model */
    ATTN_CHECKPOINT_MSA,       /* a checkpoint of facebookresearch/esm, with the arguments of its training */
    ATTN_CHECKPOINT_VIT,       /* a Vision Transformer of Hugging Face or timm */
    ATTN_CHECKPOINT_MARIAN     /* a translator's directory in Marian's own form: decoder.yml, an .npz, vocabularies */
} attn_checkpoint_kind;

/* Determines the kind of a file of weights or of a Hugging Face directory. It reads no tensors. Returns the statuses
 * of attn_weights_read. */
attn_status attn_checkpoint_kind_of(attn_checkpoint_kind *kind, attn_context *context, const char *path);
/* Does the same for a path that is identified already. */
attn_status attn__checkpoint_kind(attn_checkpoint_kind *kind, attn__identity *is);

/* Converts a directory in Marian's own form to Hugging Face's MarianMT form. Returns the statuses of
 * attn_translator_load. Returns ATTN_ERROR_IO if a file cannot be written. */
attn_status attn_marian_convert(attn_context *context, const char *path, const char *directory);

/* Writes all tensors of a file to a .safetensors file. Names and values do not change. The types are the same as when
 * the file is read with keep_types (attn_weights_options in io.h). Other numbers and texts of a .pt file are stored in
 * __metadata__. *tensors gets the number of tensors; `tensors` may be NULL. `report` is as in attn_weights_read.
 * Returns the statuses of attn_weights_read, or ATTN_ERROR_IO. */
attn_status attn_weights_convert(attn_context *context, const char *path, const char *to, int64_t *tensors,
                                 attn_bytes *report);

/* Merges the adapter of a directory into its model, and writes the model to another directory: config.json,
 * vocabularies and model.safetensors. ATTN_ERROR_ARGUMENT: `to` is the same directory, or contains an adapter.
 * Otherwise returns the statuses of attn_weights_read. */
attn_status attn_model_merge_adapter(attn_context *context, const char *directory, const char *to);

/* Writes the model of one of attn's directories to another directory or to the same directory. The weights of its
 * linear layers are stored in fewer bytes. A weight becomes one tensor of type BF16, or a tensor I8 [out,in] with its
 * scales "NAME.int8_scale", F32 [out]. All other tensors are unchanged. When the weights are read, they are converted
 * to f32 again. In the requested precision, the model then gives the same bits as before. Some weights have no exact
 * int8 form and stay unchanged. These are weights with infinite or NaN elements, with elements close to the largest
 * float, or with rows of more than 130,000 elements. config.json and vocabularies are copied. ATTN_ERROR_ARGUMENT: the
 * precision is neither bf16 nor int8, or `to` contains an adapter. ATTN_ERROR_UNSUPPORTED: the layers of the
 * architecture do not support int8 (the MSA Transformer and its layers, the axial image transformer). Otherwise returns
 * the statuses of attn_weights_read. */
attn_status attn_model_quantize(attn_context *context, const char *directory, const char *to, attn_precision precision);
/* Reports whether attn_model_quantize supports this architecture in this precision. Any thread may call it, without
 * a context. */
bool attn_architecture_quantizes(const attn_architecture *architecture, attn_precision precision);

#endif
