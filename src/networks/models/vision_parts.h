/* SPDX-License-Identifier: MIT
 *
 * vision_parts.h - code that several architectures for images share.
 */
#ifndef ATTN_MODELS_VISION_PARTS_H
#define ATTN_MODELS_VISION_PARTS_H

#include "nn/spatial.h"
#include "models/model_keys.h"

/* Reads the sizes of an image and of a patch in pixels from the keys img_size and patch_size, each an integer or
 * [height, width]. `grid` gets the number of patches along the height and along the width. If a list does not have two
 * elements, or the patch is larger than the image, sets the error and returns false. */
bool attn__patches_fit(int64_t size[2], int64_t patch[2], int64_t grid[2], attn_nn_builder *builder,
                       const attn_config *config, const char *what);

/* Checks that x is not NULL and, if it has four axes, has height x width pixels. If the check fails, sets
 * ATTN_ERROR_SHAPE, with `remedy` in the message, and returns false. Images of another size are refused even if they
 * have the same number of positions, because the positions would have other meanings. */
bool attn__images_fit(attn_tape *tape, const char *what, const attn_tensor *x, int64_t height, int64_t width,
                      const char *remedy);

/* The allowed values of the config key "mode" of non-local blocks, and a function that returns the value of this
 * key. */
extern const char *const attn__pairwise_modes[];
attn_nn_pairwise attn__pairwise_of(const attn_config *config);

/* clang-format off */
#define ATTN__KEY_PAIRWISE                                                                                             \
    {"mode", ATTN_CONFIG_TYPE_TEXT, "embedded-gaussian", 0, 0, attn__pairwise_modes, \
     "how pairs are weighted: by softmax of dot products, embedded or not, or by dot products or relu(w . [theta, "    \
     "phi]) divided by the number of keys"}
/* clang-format on */

#endif
