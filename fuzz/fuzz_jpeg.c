/* SPDX-License-Identifier: MIT
 *
 * Tests the JPEG reader, and the EXIF block of JPEG files.
 */
#include "fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_image("\xff\xd8\xff", 3, data, size);
}
