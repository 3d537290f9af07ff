/* SPDX-License-Identifier: MIT
 * The JPEG reader, and the EXIF block in it. */
#include "fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_image("\xff\xd8\xff", 3, data, size);
}
