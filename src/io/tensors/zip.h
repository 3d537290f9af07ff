/* SPDX-License-Identifier: MIT
 *
 * zip.h - the entries of a zip archive in memory (PKWARE's APPNOTE 6.3.10: stored and deflated, zip64).
 */
#ifndef ATTN_IO_ZIP_H
#define ATTN_IO_ZIP_H

#include "io/input.h"

typedef struct attn__zip_entry {
    const char *name; /* name in the archive, not terminated by 0 */
    size_t name_size;
    unsigned method;
    uint32_t crc;
    size_t packed, size; /* size in the archive, and decompressed */
    size_t header;       /* offset of the local header */
    size_t data;         /* offset of the packed bytes */
} attn__zip_entry;

typedef struct attn__zip {
    const attn__input *input;
    attn__zip_entry *entries; /* sorted by name */
    size_t n;
    bool summed; /* false: all checksums are 0, as PyTorch writes them with set_crc32_options(False) */
} attn__zip;

bool attn__zip_matches(const attn__input *input);
/* Reads the directory and checks it: entries are inside the file, do not overlap, and are not encrypted. */
attn_status attn__zip_open(attn__zip *zip, const attn__input *input);
void attn__zip_close(attn__zip *zip);
/* Finds the entry `prefix` + `name`. Returns NULL if there is none. */
const attn__zip_entry *attn__zip_find(const attn__zip *zip, const char *prefix, size_t prefix_size, const char *name,
                                      size_t name_size);
/* Decompresses or copies an entry to `out` (entry->size bytes) and checks its CRC if the archive has checksums. For a
 * stored entry `out` may be NULL; then the entry is only checked. */
attn_status attn__zip_read(const attn__zip *zip, const attn__zip_entry *entry, uint8_t *out);

#endif
