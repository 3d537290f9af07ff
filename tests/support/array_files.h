/* SPDX-License-Identifier: MIT
 *
 * array_files.h - makes small files of arrays in memory, in the formats that attn reads.
 */
#ifndef ATTN_TESTS_ARRAY_FILES_H
#define ATTN_TESTS_ARRAY_FILES_H

#include <stddef.h>
#include <stdint.h>

/* Two arguments: the bytes of a literal without its final zero, and their number. */
#define BYTES(literal) literal, sizeof literal - 1

typedef struct array_file {
    uint8_t bytes[8192];
    size_t size;
} array_file;

/* Makes a .npy file of a version from 1 to 3. `dict` is the header without padding, `data` the elements. */
array_file array_file_npy(int version, const char *dict, const void *data, size_t size);
/* Makes a safetensors file from the text of its header and from the bytes of its tensors. */
array_file array_file_safetensors(const char *header, const void *data, size_t size);
/* Makes a file of PyTorch's older form from the pickle of an object, and from the pickled keys of the storages with the
 * storages. If `storages` is NULL, there are none. */
array_file array_file_pt(const char *object, size_t object_size, const void *storages, size_t size);

#endif
