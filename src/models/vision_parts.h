/* SPDX-License-Identifier: MIT
 *
 * vision_parts.h - code that several image architectures share. */
#ifndef ATTN_MODELS_VISION_PARTS_H
#define ATTN_MODELS_VISION_PARTS_H

#include "nn/spatial.h"
#include "models/model_keys.h"

/* Reads the sizes of an image and of a patch in pixels from the keys img_size and patch_size, each an integer or
 * [height, width], and the number of patches down and across. False (error set): another list, or a patch larger than
 * the image. */
bool attn__patches_fit(int64_t size[2], int64_t patch[2], int64_t grid[2], attn_nn_builder *builder,
                       const attn_config *config, const char *what);

/* Whether x is not NULL and, if it has four axes, has height x width pixels; otherwise sets ATTN_ERROR_SHAPE, with
 * `remedy` in the message. Images of another size have other positions and features, even if their number is equal. */
bool attn__images_fit(attn_tape *tape, const char *what, const attn_tensor *x, int64_t height, int64_t width,
                      const char *remedy);

/* The key "mode" of non-local blocks: its values, and the value of a config. */
extern const char *const attn__pairwise_modes[];
attn_nn_pairwise attn__pairwise_of(const attn_config *config);

/* clang-format off */
#define ATTN__KEY_PAIRWISE                                                                                             \
    {"mode", ATTN_CONFIG_TYPE_TEXT, "embedded-gaussian", 0, 0, attn__pairwise_modes,                                         \
     "how pairs are weighted: by softmax of dot products, embedded or not, or by dot products or relu(w . [theta, "    \
     "phi]) divided by the number of keys"}
/* clang-format on */

#endif
