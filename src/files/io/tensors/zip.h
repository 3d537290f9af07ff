/* SPDX-License-Identifier: MIT
 *
 * zip.h - reads the entries of a zip archive in memory (PKWARE's APPNOTE 6.3.10: stored and deflated entries, zip64).
 */
#ifndef ATTN_IO_ZIP_H
#define ATTN_IO_ZIP_H

#include "io/input.h"

typedef struct attn__zip_entry {
    const char *name; /* the name has no terminating 0 */
    size_t name_size;
    unsigned method;
    uint32_t crc;
    size_t packed, size; /* bytes in the archive, and bytes after decompression */
    size_t header;
    size_t data; /* offset of the entry's packed bytes */
} attn__zip_entry;

typedef struct attn__zip {
    const attn__input *input;
    attn__zip_entry *entries; /* sorted by name */
    size_t n;
    /* false: the archive has no checksums: all are 0, as PyTorch writes them after set_crc32_options(False) */
    bool summed;
} attn__zip;

bool attn__zip_matches(const attn__input *input);
/* Reads the directory of the archive. Checks that entries are inside the file, do not overlap, and are not
 * encrypted. */
attn_status attn__zip_open(attn__zip *zip, const attn__input *input);
void attn__zip_close(attn__zip *zip);
/* Finds the entry whose name is `prefix` followed by `name`. Returns NULL if there is no such entry. */
const attn__zip_entry *attn__zip_find(const attn__zip *zip, const char *prefix, size_t prefix_size, const char *name,
                                      size_t name_size);
/* Writes the bytes of an entry to `out` (entry->size bytes) and, if the archive has checksums, checks their CRC. If the
 * entry is stored, `out` may be NULL; then the entry is only checked. */
attn_status attn__zip_read(const attn__zip *zip, const attn__zip_entry *entry, uint8_t *out);

#endif
