/* SPDX-License-Identifier: MIT
 * detr_settings.h - the settings of a DETR of other makers that its shapes do not have. */
#ifndef ATTN_APPS_DETR_SETTINGS_H
#define ATTN_APPS_DETR_SETTINGS_H

#include "attn/config.h"
#include "attn/io.h"

/* Names the network of a checkpoint that shares DETR's names but is another network, such as the extension for panoptic
 * segmentation. *tensor gets a tensor that only that network has. NULL: the checkpoint is no such network. */
const char *attn__detr_other(const attn_checkpoint *weights, const char **tensor);
/* ATTN_ERROR_UNSUPPORTED if the checkpoint `weights` of the file `path` is such a network. */
attn_status attn__detr_check(attn_context *context, const attn_checkpoint *weights, const char *path);

/* Adds to *config heads, dilation and dropout, from the arguments that the checkpoint `weights` has.  A config of Hugging
 * Face, whose file is `settings`, is exchanged for one with attn's keys for these, and its names of classes (id2label.N).
 * ATTN_ERROR_UNSUPPORTED: settings that attn's DETR has not; statuses of attn__detr_check and attn_checkpoint_open. */
attn_status attn__detr_settings(attn_config **config, attn_context *context, const char *settings, const char *weights);

#endif
