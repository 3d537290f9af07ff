/* SPDX-License-Identifier: MIT
 *
 * Tests the PGM and PPM reader.
 */
#include "fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_image("P", 1, data, size);
}
