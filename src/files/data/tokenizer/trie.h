/* SPDX-License-Identifier: MIT
 *
 * trie.h - a trie of byte strings with a value each. Its edges are in one hash table. */
#ifndef ATTN_DATA_TOKENIZER_TRIE_H
#define ATTN_DATA_TOKENIZER_TRIE_H

#include "base/context.h"

enum { ATTN__TRIE_ROOT = 0 };
#define ATTN__TRIE_NONE UINT32_MAX

typedef struct attn__trie_edge {
    uint32_t from, to; /* to = 0: the slot is free */
    uint8_t byte;
} attn__trie_edge;

typedef struct attn__trie {
    attn_context *context;
    int32_t *values; /* of the nodes; -1: no string ends here */
    uint32_t nodes;
    attn__trie_edge *edges; /* at most half of the slots are in use */
    size_t mask;
} attn__trie;

attn_status attn__trie_create(attn__trie *trie, attn_context *context);
void attn__trie_destroy(attn__trie *trie); /* a trie of zeros is allowed */
/* Inserts a string, or replaces its value, which must not be negative. */
attn_status attn__trie_insert(attn__trie *trie, const char *text, size_t length, int32_t value);
/* Returns the value of a string, or -1. */
int32_t attn__trie_find(const attn__trie *trie, const char *text, size_t length);
/* Walks from a node along a string. Returns ATTN__TRIE_NONE if the trie has no such path. */
uint32_t attn__trie_walk(const attn__trie *trie, uint32_t node, const char *text, size_t length);

static inline uint32_t attn__trie_next(const attn__trie *trie, uint32_t node, uint8_t byte)
{
    uint64_t hash = ((uint64_t)node << 8 | byte) * UINT64_C(0x9e3779b97f4a7c15);
    for (size_t i = (size_t)(hash >> 20) & trie->mask;; i = (i + 1) & trie->mask) {
        const attn__trie_edge *edge = &trie->edges[i];
        if (edge->to == 0)
            return ATTN__TRIE_NONE;
        if (edge->from == node && edge->byte == byte)
            return edge->to;
    }
}

#endif
