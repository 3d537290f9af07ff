/* SPDX-License-Identifier: MIT
 *
 * Tests the BMP reader.
 */
#include "fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_image("BM", 2, data, size);
}
