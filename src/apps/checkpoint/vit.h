/* SPDX-License-Identifier: MIT
 *
 * vit.h - loads and converts foreign Vision Transformers: checkpoints of Hugging Face and timm with their own names.
 *
 *     attn_model *model;
 *     if (attn_vit_load(&model, context, "vit-base-patch16-224", NULL) != ATTN_OK)
 *         puts(attn_context_error(context));
 *
 * The result is an ordinary model of the architecture "vit" with that architecture's own parameter names.
 *
 * One thread at a time uses a context and its tapes; results belong to the tape. */
#ifndef ATTN_APPS_VIT_H
#define ATTN_APPS_VIT_H

#include "attn/models.h"

/* A field that is zero has its default. */
typedef struct attn_vit_options {
    /* number of heads; default: the number in config.json, or in the training arguments that are stored in the file */
    int64_t num_heads;
    /* height and width of pictures; default: those of the checkpoint. For another size, the positions are
     * interpolated along each axis, with a bicubic filter as in Hugging Face or timm. */
    int64_t img_size[2];
    /* number of classes; default: that of the checkpoint. The head is new if the number differs or the checkpoint
     * has no head. */
    int64_t num_classes;
    uint64_t seed; /* seed of a new head's initial values */
} attn_vit_options;

/* Loads a foreign Vision Transformer. `path` is a directory with config.json and model.safetensors or
 * pytorch_model.bin. It may also be a file of weights, whose directory may contain config.json. Hugging Face's names
 * ("vit.encoder.layer.0...", with or without "vit.") need config.json for num_attention_heads, layer_norm_eps and
 * hidden_act. timm's names ("blocks.0.attn.qkv.weight") do not need config.json: eps is 1e-6, and GELU is exact. No
 * tensor of timm shows the number of heads. The number comes from model_args.num_heads or "architecture" of
 * config.json, or from "arch" or the training arguments that were saved with the weights. All sizes come from the
 * tensors' shapes; only the picture size may come from timm's config.json. Missing biases of queries, keys and values
 * (qkv_bias) are zero. `options` may be NULL. *model is NULL on failure. ATTN_ERROR_NOT_FOUND: the file does not exist.
 * ATTN_ERROR_FORMAT and ATTN_ERROR_UNSUPPORTED: the file is not such a checkpoint, or has parts that a plain ViT does
 * not have (distillation token, layer scale, ...). The message names the tensor. ATTN_ERROR_SHAPE: the tensors do not
 * fit each other or config.json. ATTN_ERROR_ARGUMENT: num_heads is unknown, or there is no head and no num_classes.
 * Source: Dosovitskiy et al. 2021, arXiv:2010.11929. */
attn_status attn_vit_load(attn_model **model, attn_context *context, const char *path, const attn_vit_options *options);

/* The normalization of pictures for a classifier: (value / 255 - mean) / std, for each of three channels. */
typedef struct attn_pixel_scale {
    float mean[3], std[3];
} attn_pixel_scale;
/* Writes a Vision Transformer as a classifier's directory (classify.h). The names of the classes are those in
 * "id2label" of the checkpoint's config.json, or in timm's "label_names". If there are none, the names are numbers. If
 * `scale` is NULL, mean and deviation are those in preprocessor_config.json of the same directory, or in
 * "pretrained_cfg" of timm's config.json. If these files are missing, mean and deviation are 0.5, as in the training of
 * google/vit and of timm's own models. (DeiT and others were trained with ImageNet's mean and deviation.) The same
 * files determine the filter for resizing pictures. Returns the statuses of attn_vit_load, or ATTN_ERROR_IO. */
attn_status attn_vit_convert(attn_context *context, const char *path, const attn_vit_options *options,
                             const attn_pixel_scale *scale, const char *directory);

#endif
