/* SPDX-License-Identifier: MIT
 *
 * detr_settings.h - settings of a foreign DETR that the shapes of its tensors do not show.
 */
#ifndef ATTN_APPS_DETR_SETTINGS_H
#define ATTN_APPS_DETR_SETTINGS_H

#include "apps/checkpoint/identify.h"
#include "attn/config.h"
#include "attn/io.h"

/* Detects checkpoints that have the tensor names of DETR but belong to another network, such as the extension for
 * panoptic segmentation. For such a checkpoint, returns the name of the network, and sets *tensor to the name of a
 * tensor that only this network has. Returns NULL for other checkpoints. */
const char *attn__detr_other(const attn_checkpoint *weights, const char **tensor);
/* Checks that the checkpoint `weights` of the file `path` does not belong to another network with DETR's tensor
 * names. If it does, returns ATTN_ERROR_UNSUPPORTED. */
attn_status attn__detr_check(attn_context *context, const attn_checkpoint *weights, const char *path);

/* Adds the number of heads, dilation and dropout to *config, from the arguments stored in the checkpoint `is`. If
 * *config was read from Hugging Face's file `settings`, it is replaced by a config with attn's keys for these settings
 * and the class names (id2label.N). ATTN_ERROR_UNSUPPORTED: attn's DETR does not have these settings. Otherwise returns
 * the statuses of attn__detr_check and attn_checkpoint_open. */
attn_status attn__detr_settings(attn_config **config, attn__identity *is, const char *settings);
/* Checks that the sizes and classes in Hugging Face's file `settings` are those of `model`, a config of attn that has
 * the sizes of the tensors. ATTN_ERROR_SHAPE: they differ; the message names the setting. A file of attn is not
 * checked. May return the errors of attn_config_read. */
attn_status attn__detr_agrees(const attn_config *model, attn_context *context, const char *settings);

#endif
