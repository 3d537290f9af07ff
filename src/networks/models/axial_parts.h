/* SPDX-License-Identifier: MIT
 *
 * axial_parts.h - declarations that the axial architectures share.
 */
#ifndef ATTN_MODELS_AXIAL_PARTS_H
#define ATTN_MODELS_AXIAL_PARTS_H

#include "nn/axial.h"
#include "models/model_keys.h"

extern const char *const attn__resize_choices[];

/* clang-format off */
#define ATTN__KEY_RESIZE                                                                                               \
    {"resize", ATTN_CONFIG_TYPE_TEXT, "none", 0, 0, attn__resize_choices, \
     "positions for another size than `shape`: none (an error, as in the original), slice (the first ones), linear or " \
     "cubic (interpolated)"}
/* clang-format on */

/* Returns the value of the key `resize`. */
attn_nn_positions_fit attn__positions_fit(const attn_config *config);

#endif
