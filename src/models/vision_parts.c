/* SPDX-License-Identifier: MIT
 *
 * Checks of images by networks that are made for images of one size. */
#include "models/vision_parts.h"

#include "base/context.h"

bool attn__images_fit(attn_tape *tape, const char *what, const attn_tensor *x, int64_t size, const char *remedy)
{
    if (!x || attn_tensor_rank(x) != 4 || (attn_tensor_length(x, 2) == size && attn_tensor_length(x, 3) == size)) {
        return x != NULL;
    }
    attn__fail(attn_tape_context(tape), ATTN_ERROR_SHAPE, "%s: images of %lld x %lld pixels, img_size is %lld%s", what,
               (long long)attn_tensor_length(x, 2), (long long)attn_tensor_length(x, 3), (long long)size, remedy);
    return false;
}
