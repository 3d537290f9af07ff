/* SPDX-License-Identifier: MIT
 *
 * Tests the .npy reader.
 */
#include "fuzz.h"
#include "io/tensors/formats.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    attn_context *context = fuzz_context();
    attn_tensor *tensor = NULL;
    (void)attn_npy_parse(&tensor, context, data, size, "fuzz");
    attn_tensor_destroy(tensor);
    return fuzz_end(context);
}
