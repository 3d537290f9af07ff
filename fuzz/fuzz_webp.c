/* SPDX-License-Identifier: MIT
 *
 * Tests the WebP reader.
 */
#include "fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_image("RIFF", 4, data, size);
}
