/* SPDX-License-Identifier: MIT
 *
 * pt.h - reads PyTorch's files. A file contains a pickled tree, and the storages to which the tree refers.
 */
#ifndef ATTN_IO_PT_H
#define ATTN_IO_PT_H

#include "io/tensors/pickle.h"
#include "io/tensors/weights.h"

typedef struct attn__storage_bytes {
    const uint8_t *data;
    size_t size;
} attn__storage_bytes;

/* A function that finds the storage with a given key. According to the pickle, the storage has `numel` elements of
 * `element` bytes each. */
typedef attn_status (*attn__storage_find)(void *user, const char *key, size_t key_size, uint64_t numel, size_t element,
                                          attn__storage_bytes *bytes);

typedef struct attn__pt {
    attn__findings *findings;
    const attn__input *input; /* the pickle as an input; its name is used in messages */
    const attn__pickle *pickle;
    bool swapped; /* true: the storages are big endian */
    attn__storage_find find;
    void *user;
} attn__pt;

/* Visits the pickled tree. Tensors become arrays, and plain values become metadata. The names of nested members are
 * joined by dots. */
attn_status attn__pt_walk(const attn__pt *pt);

/* Returns whether a file has PyTorch's format before 1.6. attn__pt_legacy_find finds the arrays of such a file. */
bool attn__pt_legacy_matches(const attn__input *input);
attn_status attn__pt_legacy_find(attn__findings *findings, const attn__input *input);

#endif
