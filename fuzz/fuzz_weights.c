/* SPDX-License-Identifier: MIT
 *
 * Tests the readers of weights: safetensors, PyTorch's files in the zip form and the older form, and .npz files.
 */
#include "fuzz.h"
#include "attn/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    attn_context *context = fuzz_context();
    attn_named_list list = {.context = context, .owns = true};
    attn_config *metadata = NULL;
    attn_bytes report = {0};
    attn_config_create(&metadata, context);
    (void)attn_weights_parse(&list, data, size, "fuzz", NULL, metadata, &report);
    attn_bytes_free(context, &report);
    attn_named_clear(&list);
    attn_config_destroy(metadata);
    return fuzz_end(context);
}
