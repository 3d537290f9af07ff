/* SPDX-License-Identifier: MIT
 *
 * Tests the PNG reader. If a byte changes, a chunk's checksum is nearly always wrong, and libpng stops reading. So
 * three of four changed files get correct checksums, which tests the code behind the check.
 */
#include "fuzz_image.h"

#include <zlib.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

enum { SIGNATURE = 8, FRAME = 12 };

/* Corrects the checksums. A chunk has its length, its name, its content, and the checksum of name and content. The
 * last chunk may be cut off. */
static void put_sums_right(uint8_t *data, size_t size)
{
    for (size_t at = SIGNATURE; at + FRAME <= size;) {
        size_t length = (size_t)data[at] << 24 | (size_t)data[at + 1] << 16 | (size_t)data[at + 2] << 8 | data[at + 3];
        if (length > size - at - FRAME)
            return;
        unsigned long sum = crc32(0, data + at + 4, (uInt)length + 4);
        for (size_t i = 0; i < 4; i++)
            data[at + 8 + length + i] = (uint8_t)(sum >> (24 - 8 * i));
        at += length + FRAME;
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    size = LLVMFuzzerMutate(data, size, most);
    if (seed % 4)
        put_sums_right(data, size);
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_image("\x89PNG\r\n\x1a\n", 8, data, size);
}
