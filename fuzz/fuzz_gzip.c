/* SPDX-License-Identifier: MIT
 *
 * Tests reading whole files, and compressed files in particular. The file in memory begins with gzip's first bytes, and
 * the input follows.
 */
#define _GNU_SOURCE
#include "fuzz.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int file = -1;
    static char path[64];
    if (file < 0) {
        file = memfd_create("fuzz", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    }
    attn_context *context = fuzz_context();
    attn_bytes bytes = {0};
    if (file < 0 || ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != (ssize_t)size ||
        (size > 3 && pwrite(file, "\x1f\x8b\x08", 3, 0) != 3))
        abort();
    /* The limits are small, because the output may be a thousand times as large as the input. */
    size_t limit = size & 1 ? 1000 : 1 << 20;
    if (attn_file_read(&bytes, context, path, limit) == ATTN_OK &&
        (bytes.size > limit || bytes.data[bytes.size] != '\0'))
        abort();
    attn_bytes_free(context, &bytes);
    return fuzz_end(context);
}
