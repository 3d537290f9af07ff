/* SPDX-License-Identifier: MIT
 *
 * pt.h - reads PyTorch's files: the pickled tree and its storages. */
#ifndef ATTN_IO_PT_H
#define ATTN_IO_PT_H

#include "io/tensors/pickle.h"
#include "io/tensors/weights.h"

/* The bytes of a storage. */
typedef struct attn__storage_bytes {
    const uint8_t *data;
    size_t size;
} attn__storage_bytes;

/* A function that finds the storage of a key. According to the pickle, the storage has `numel` elements of `element`
 * bytes. */
typedef attn_status (*attn__storage_find)(void *user, const char *key, size_t key_size, uint64_t numel, size_t element,
                                          attn__storage_bytes *bytes);

typedef struct attn__pt {
    attn__findings *findings;
    const attn__input *input; /* name of the pickle, for messages */
    const attn__pickle *pickle;
    bool swapped; /* storages are big endian */
    attn__storage_find find;
    void *user;
} attn__pt;

/* Visits the tree. Tensors become arrays, plain values become metadata, and names are joined by dots. */
attn_status attn__pt_walk(const attn__pt *pt);

/* Returns whether a file has the format before 1.6. attn__pt_legacy_find finds its arrays. */
bool attn__pt_legacy_matches(const attn__input *input);
attn_status attn__pt_legacy_find(attn__findings *findings, const attn__input *input);

#endif
