/* SPDX-License-Identifier: MIT
 * detr_settings.h - the settings of a DETR of other makers that its shapes do not have. */
#ifndef ATTN_APPS_DETR_SETTINGS_H
#define ATTN_APPS_DETR_SETTINGS_H

#include "attn/config.h"

/* Adds to *config heads, dilation and dropout, from the arguments that the checkpoint `weights` has.  A config of Hugging
 * Face, whose file is `settings`, is exchanged for one with attn's keys for these, and its names of classes (id2label.N).
 * ATTN_ERROR_UNSUPPORTED: another network than DETR for detection, such as its extension for panoptic segmentation, or
 * settings that attn's has not; statuses of attn_checkpoint_open. */
attn_status attn__detr_settings(attn_config **config, attn_context *context, const char *settings, const char *weights);

#endif
