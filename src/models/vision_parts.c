/* SPDX-License-Identifier: MIT
 *
 * Checks of images by networks that are made for images of one size. */
#include "models/vision_parts.h"

#include "base/context.h"
#include "base/keys.h"
#include "tensor/tape_state.h"

bool attn__images_fit(attn_tape *tape, const char *what, const attn_tensor *x, int64_t height, int64_t width,
                      const char *remedy)
{
    if (!x || attn_tensor_rank(x) != 4 || (attn_tensor_length(x, 2) == height && attn_tensor_length(x, 3) == width)) {
        return x != NULL;
    }
    char size[48];
    attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE, "%s: images of %lld x %lld pixels, img_size is %s%s", what,
               (long long)attn_tensor_length(x, 2), (long long)attn_tensor_length(x, 3),
               attn__sides_text(size, (int64_t[]){height, width}), remedy);
    return false;
}
