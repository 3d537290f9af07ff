/* SPDX-License-Identifier: MIT
 *
 * plain_settings.h - settings of other programs that attn does not follow: each must have the value that attn computes.
 */
#ifndef ATTN_APPS_PLAIN_SETTINGS_H
#define ATTN_APPS_PLAIN_SETTINGS_H

#include "attn/config.h"

/* A setting, the values that attn computes (a list that ends with NULL), and what the error adds. A value of the file
 * is compared as it is written, without a tag of timm's such as .a1_in1k; a missing one, or null, is plain. */
typedef struct attn__plain_setting {
    const char *key, *values[6], *what;
} attn__plain_setting;

/* Checks n settings of the file `path`, whose keys begin with `prefix`. ATTN_ERROR_UNSUPPORTED: a setting has another
 * value; the message names both. */
attn_status attn__plain_check(attn_context *context, const attn_config *config, const char *path, const char *prefix,
                              const attn__plain_setting *settings, size_t n);

/* How preprocessor_config.json of Hugging Face makes numbers from pixels of 0 to 255: (x / 255 - mean) / std.
 * do_rescale, rescale_factor, do_normalize, image_mean and image_std decide. `mean` and `std` hold the defaults of the
 * processor before. */
void attn__preparation_read(const attn_config *preparation, float mean[3], float std[3]);
/* Returns element i of a setting that is a list of integers or reals. If the setting is a single number, returns this
 * number. If the setting is missing, returns `fallback`. */
double attn__config_number_at(const attn_config *config, const char *key, int i, double fallback);
/* Returns the name of the filter that "resample" means, which is a number of Pillow; a missing one is `fallback`. */
const char *attn__preparation_filter(const attn_config *preparation, const char *fallback);

#endif
