/* SPDX-License-Identifier: MIT */
#include "data/tokenizer/trie.h"

#include <string.h>

attn_status attn__trie_create(attn__trie *trie, attn_context *context)
{
    enum { FIRST = 64 };
    *trie = (attn__trie){.context = context, .nodes = 1, .mask = FIRST - 1};
    trie->values = attn__grow(context, NULL, 0, sizeof *trie->values);
    trie->edges = attn__alloc_zero(context, FIRST * sizeof *trie->edges);
    if (!trie->values || !trie->edges) {
        attn__trie_destroy(trie);
        return ATTN_ERROR_MEMORY;
    }
    trie->values[ATTN__TRIE_ROOT] = -1;
    return ATTN_OK;
}

void attn__trie_destroy(attn__trie *trie)
{
    attn__free(trie->context, trie->values);
    attn__free(trie->context, trie->edges);
    *trie = (attn__trie){0};
}

static void put_edge(attn__trie *trie, attn__trie_edge edge)
{
    uint64_t hash = ((uint64_t)edge.from << 8 | edge.byte) * UINT64_C(0x9e3779b97f4a7c15);
    size_t i = (size_t)(hash >> 20) & trie->mask;
    while (trie->edges[i].to != 0)
        i = (i + 1) & trie->mask;
    trie->edges[i] = edge;
}

static attn_status double_edges(attn__trie *trie)
{
    size_t slots = trie->mask + 1;
    attn__trie_edge *old = trie->edges;
    attn__trie_edge *edges = attn__alloc_zero(trie->context, attn__size_mul(2 * slots, sizeof *edges));
    if (!edges)
        return ATTN_ERROR_MEMORY;
    trie->edges = edges;
    trie->mask = 2 * slots - 1;
    for (size_t i = 0; i < slots; i++)
        if (old[i].to != 0)
            put_edge(trie, old[i]);
    attn__free(trie->context, old);
    return ATTN_OK;
}

static attn_status add_node(attn__trie *trie, uint32_t from, uint8_t byte, uint32_t *to)
{
    int32_t *values = attn__grow(trie->context, trie->values, trie->nodes, sizeof *values);
    if (!values)
        return ATTN_ERROR_MEMORY;
    trie->values = values;
    attn_status status = 2 * (size_t)trie->nodes > trie->mask ? double_edges(trie) : ATTN_OK;
    if (status != ATTN_OK)
        return status;
    *to = trie->nodes++;
    trie->values[*to] = -1;
    put_edge(trie, (attn__trie_edge){.from = from, .to = *to, .byte = byte});
    return ATTN_OK;
}

attn_status attn__trie_insert(attn__trie *trie, const char *text, size_t length, int32_t value)
{
    uint32_t node = ATTN__TRIE_ROOT;
    for (size_t i = 0; i < length; i++) {
        uint32_t next = attn__trie_next(trie, node, (uint8_t)text[i]);
        attn_status status = next == ATTN__TRIE_NONE ? add_node(trie, node, (uint8_t)text[i], &next) : ATTN_OK;
        if (status != ATTN_OK)
            return status;
        node = next;
    }
    trie->values[node] = value;
    return ATTN_OK;
}

uint32_t attn__trie_walk(const attn__trie *trie, uint32_t node, const char *text, size_t length)
{
    for (size_t i = 0; i < length && node != ATTN__TRIE_NONE; i++)
        node = attn__trie_next(trie, node, (uint8_t)text[i]);
    return node;
}

int32_t attn__trie_find(const attn__trie *trie, const char *text, size_t length)
{
    uint32_t node = attn__trie_walk(trie, ATTN__TRIE_ROOT, text, length);
    return node == ATTN__TRIE_NONE ? -1 : trie->values[node];
}
