/* SPDX-License-Identifier: MIT
 *
 * Tests the IDX reader. It reads images, and then labels for these images.
 */
#include "fuzz.h"

#include "data/images.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    attn_context *context = fuzz_context();
    attn_named_bytes file = {data, size, "fuzz"};
    attn_image_set *set = NULL;
    attn_idx idx;
    /* A labels file. Its count becomes the number of images, if there are few. */
    uint8_t labels[64] = {0, 0, 8, 1};
    if (attn_idx_parse(&idx, context, &file) == ATTN_OK && idx.dims[0] <= 56) {
        labels[7] = (uint8_t)idx.dims[0];
        attn_named_bytes with = {labels, 8 + (size_t)idx.dims[0], "labels"};
        (void)attn_image_set_of_idx(&set, context, &file, &with, 10);
    }
    attn_image_set_destroy(set);
    return fuzz_end(context);
}
