/* SPDX-License-Identifier: MIT
 *
 * vit.h - Vision Transformers from elsewhere: checkpoints of Hugging Face and timm, by their own names.
 *
 *     attn_model *model;
 *     if (attn_vit_load(&model, context, "vit-base-patch16-224", NULL) != ATTN_OK)
 *         puts(attn_context_error(context));
 *
 * The result is an ordinary model of the architecture "vit", with that architecture's own parameter names, as
 * attn_weights_load and attn_safetensors_write use them.
 *
 * One thread at a time uses a context and its tapes; results belong to the tape.
 */
#ifndef ATTN_APPS_VIT_H
#define ATTN_APPS_VIT_H

#include "attn/models.h"

/* Zero means the default in each field. */
typedef struct attn_vit_options {
    int64_t num_heads;   /* default: what config.json, or a training's arguments in the file, say */
    int64_t img_size[2]; /* height and width; default: the checkpoint's; for another one its positions are interpolated
                          * along each axis (bicubic, as Hugging Face or timm does it) */
    int64_t num_classes; /* default: the checkpoint's; where it has another number, or no head, a fresh head */
    uint64_t seed;       /* of a fresh head */
} attn_vit_options;

/* `path`: a directory with config.json and model.safetensors or pytorch_model.bin, or a file of weights, whose
 * directory may hold config.json.  Hugging Face's names ("vit.encoder.layer.0...", with or without "vit.") need
 * config.json: from it come num_attention_heads, layer_norm_eps and hidden_act.  timm's ("blocks.0.attn.qkv.weight")
 * do not: eps is 1e-6 and GELU exact.  Their number of heads is in no tensor: model_args.num_heads or "architecture" of
 * config.json say it, or "arch" or the arguments of a training that saved them with the weights.  All sizes come from the
 * tensors' shapes, but for pictures of another size in timm's config.json.  Biases of queries, keys and values that a checkpoint lacks
 * (qkv_bias) are zero. `options` may be NULL.  *model is NULL on failure. ATTN_ERROR_NOT_FOUND: no such file;
 * ATTN_ERROR_FORMAT, ATTN_ERROR_UNSUPPORTED: no such checkpoint, or one with parts that a plain ViT has not
 * (distillation token, layer scale, ...: the tensor is named); ATTN_ERROR_SHAPE: tensors that do not fit each other or
 * config.json; ATTN_ERROR_ARGUMENT: num_heads unknown, or no head and no num_classes.  Source: Dosovitskiy et al. 2021,
 * arXiv:2010.11929. */
attn_status attn_vit_load(attn_model **model, attn_context *context, const char *path, const attn_vit_options *options);

/* How pictures are prepared for a classifier: (value / 255 - mean) / std, for each of three channels. */
typedef struct attn_pixel_scale {
    float mean[3], std[3];
} attn_pixel_scale;
/* A Vision Transformer as a classifier's directory (classify.h).  Classes are named as "id2label" of the checkpoint's
 * config.json has them, or timm's "label_names", else they are named by their numbers.  `scale` NULL: what
 * preprocessor_config.json in the same directory says, or "pretrained_cfg" of timm's config.json, else 0.5 for all, as
 * google/vit and timm's own were trained (DeiT and others: ImageNet's mean and deviation).  These files also say by
 * which filter pictures are resized.  Statuses of attn_vit_load, and ATTN_ERROR_IO. */
attn_status attn_vit_convert(attn_context *context, const char *path, const attn_vit_options *options,
                             const attn_pixel_scale *scale, const char *directory);

#endif
