/* SPDX-License-Identifier: MIT
 *
 * Reads image and patch sizes from the config, and checks the size of images for networks that have a fixed image size.
 */
#include "models/vision_parts.h"

#include "base/context.h"
#include "config/keys.h"
#include "tensor/tape_state.h"

#include <stdio.h>

bool attn__patches_fit(int64_t size[2], int64_t patch[2], int64_t grid[2], attn_nn_builder *builder,
                       const attn_config *config, const char *what)
{
    char before[48];
    snprintf(before, sizeof before, "%s: ", what);
    if (attn__config_need_sides(size, builder->context, config, "img_size", before) != ATTN_OK ||
        attn__config_need_sides(patch, builder->context, config, "patch_size", before) != ATTN_OK)
        return false;
    for (int i = 0; i < 2; i++) {
        grid[i] = size[i] / patch[i];
        if (grid[i] < 1) {
            attn__fail(builder->context, ATTN_ERROR_ARGUMENT, "%spatch_size %lld is larger than img_size %lld", before,
                       (long long)patch[i], (long long)size[i]);
            return false;
        }
    }
    return true;
}

bool attn__images_fit(attn_tape *tape, const char *what, const attn_tensor *x, int64_t height, int64_t width,
                      const char *remedy)
{
    if (!x || attn_tensor_rank(x) != 4 || (attn_tensor_length(x, 2) == height && attn_tensor_length(x, 3) == width))
        return x != NULL;
    char size[48];
    attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE,
               "%s: the images have %lld x %lld pixels, but img_size is %s%s", what,
               (long long)attn_tensor_length(x, 2), (long long)attn_tensor_length(x, 3),
               attn__sides_text(size, (int64_t[]){height, width}), remedy);
    return false;
}
