/* SPDX-License-Identifier: MIT
 *
 * Checks the normalization rules inside a .spm file. The rules are a double array (Aoe 1989), which is searched with
 * the bytes of a text. Its leaves hold offsets of replacements in a block of texts. The library checks neither the
 * nodes nor the offsets, so a damaged file could make it read any address. Therefore every node that a text can reach
 * is checked here. */
#include "data/subword.h"

#include "base/context.h"

#include <string.h>

/* ------------------------------------------------------------------------------------------ protobuf fields */

typedef struct span {
    const unsigned char *at, *end;
} span;

static bool take_varint(span *s, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && s->at < s->end; shift += 7) {
        unsigned char byte = *s->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

static bool skip(span *s, uint64_t bytes)
{
    if (bytes > (uint64_t)(s->end - s->at))
        return false;
    s->at += bytes;
    return true;
}

/* If the field is a number, *body is empty. Returns false at the end of the data. If the field is damaged, sets
 * *damaged and returns false. */
static bool next_field(span *s, uint64_t *number, span *body, bool *damaged)
{
    uint64_t key, value;
    *body = (span){NULL, NULL};
    if (s->at == s->end)
        return false;
    *damaged = true;
    /* larger keys are refused, because protobuf would take them modulo 2^32, which would be the key of a different
     * field */
    if (!take_varint(s, &key) || key > UINT32_MAX)
        return false;
    *number = key >> 3;
    switch (key & 7) {
    case 0:
        *damaged = !take_varint(s, &value);
        break;
    case 1:
        *damaged = !skip(s, 8);
        break;
    case 5:
        *damaged = !skip(s, 4);
        break;
    case 2:
        if (take_varint(s, &value) && value <= (uint64_t)(s->end - s->at)) {
            *body = (span){s->at, s->at + value};
            s->at += value;
            *damaged = false;
        }
        break;
    default:
        break;
    }
    return !*damaged;
}

/* -------------------------------------------------------------------------------------------- the double array */

/* maximum number of replacements for the prefixes of one text, because the library's array has this size */
enum { MOST_MATCHES = 32 };
enum { UNSEEN = 0, OPEN, DONE };

/* A double array, seen as a graph. Nodes with the same children have the same base, so texts with the same end share
 * nodes. */
typedef struct trie {
    const unsigned char *units; /* n units of 4 bytes each, little endian */
    uint32_t n;
    size_t replacements; /* size of the block of replacements in bytes */
    /* lists of the nodes that have the same base; 0 ends a list (the root, node 0, is in no list) */
    uint32_t *head, *next;
    /* stack: nodes on the path from the root to the current node; child: for each node, the next child to visit */
    uint32_t *stack, *child;
    unsigned char *state;
    /* for each node, the maximum number of replacements on a path down from it, including its own */
    unsigned char *matches;
} trie;

static uint32_t unit_at(const trie *t, uint32_t i)
{
    const unsigned char *u = t->units + 4 * (size_t)i;
    return (uint32_t)u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
}

/* Begins the visit of node i. Returns whether all nodes that a text can reach from it are in bounds. */
static bool enter(trie *t, uint32_t i)
{
    uint32_t unit = unit_at(t, i), base = i ^ ((unit >> 10) << ((unit & (1u << 9)) >> 6));
    if ((base | 255) >= t->n)
        return false;
    bool leaf = i != 0 && unit >> 8 & 1;
    t->state[i] = OPEN;
    t->child[i] = t->head[base];
    t->matches[i] = leaf;
    return !leaf || (unit_at(t, base) & 0x7fffffff) < t->replacements;
}

static bool leave(trie *t, uint32_t i, const uint32_t *parent)
{
    t->state[i] = DONE;
    if (!parent)
        return true;
    uint32_t up = unit_at(t, *parent) >> 8 & 1 && *parent != 0, below = t->matches[i] + up;
    if (below > t->matches[*parent])
        t->matches[*parent] = (unsigned char)below;
    return below <= MOST_MATCHES;
}

static void link_nodes(trie *t)
{
    for (uint32_t i = 1; i < t->n; i++) {
        uint32_t unit = unit_at(t, i), label = unit & 0xff, base = i ^ label;
        if (unit >> 31 || label == 0 || base >= t->n) /* a leaf or an unused node has no children */
            continue;
        t->next[i] = t->head[base];
        t->head[base] = i;
    }
}

/* Visits all nodes depth first. The function is not recursive, because the file determines the depth. */
static bool walk(trie *t)
{
    uint32_t depth = 1;
    link_nodes(t);
    t->stack[0] = 0;
    if (!enter(t, 0))
        return false;
    while (depth > 0) {
        uint32_t i = t->stack[depth - 1], child = t->child[i];
        if (child)
            t->child[i] = t->next[child];
        /* the path contains a cycle, in which a search of the library would never end */
        if (child && t->state[child] == OPEN)
            return false;
        if (child && t->state[child] == UNSEEN) {
            t->stack[depth++] = child;
            if (!enter(t, child))
                return false;
        } else if (child ? !leave(t, child, &i) : !leave(t, i, --depth > 0 ? &t->stack[depth - 1] : NULL)) {
            return false;
        }
    }
    return true;
}

static attn_status check_trie(attn_context *context, trie *t, const char *name)
{
    size_t bytes = attn__size_mul(t->n, sizeof(uint32_t));
    uint32_t *numbers = attn__alloc_zero(context, attn__size_mul(bytes, 4));
    unsigned char *states = attn__alloc_zero(context, attn__size_mul(t->n, 2));
    attn_status status = numbers && states ? ATTN_OK : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK) {
        t->head = numbers;
        t->next = numbers + t->n;
        t->stack = numbers + 2 * (size_t)t->n;
        t->child = numbers + 3 * (size_t)t->n;
        t->state = states;
        t->matches = states + t->n;
        if (!walk(t))
            status = attn__fail(context, ATTN_ERROR_FORMAT,
                                "%s: the file is damaged: its normalization rules point outside of their table", name);
    }
    attn__free(context, numbers);
    attn__free(context, states);
    return status;
}

/* Checks the rules. They consist of a size, a double array of this size in bytes, and texts that each end with a 0. */
static attn_status check_rules(attn_context *context, span rules, const char *name)
{
    size_t bytes = (size_t)(rules.end - rules.at);
    if (bytes == 0)
        return ATTN_OK;
    uint64_t size = 0;
    for (int i = 3; i >= 0 && bytes >= 4; i--)
        size = size << 8 | rules.at[i];
    if (bytes <= 4 || size >= bytes - 4 || size == 0 || size % 1024 != 0 || rules.end[-1] != 0)
        return attn__fail(context, ATTN_ERROR_FORMAT,
                          "%s: the file is damaged: its %zu bytes of normalization rules have no valid table", name,
                          bytes);
    trie t = {.units = rules.at + 4, .n = (uint32_t)(size / 4), .replacements = bytes - 4 - (size_t)size};
    return check_trie(context, &t, name);
}

enum { NORMALIZER = 3, DENORMALIZER = 5, RULES = 2 }; /* field numbers */

attn_status attn__subword_check(attn_context *context, const char *bytes, size_t size, const char *name)
{
    span file = {(const unsigned char *)bytes, (const unsigned char *)bytes + size}, part, rules;
    uint64_t number;
    bool damaged = size == 0 || size > INT32_MAX;
    attn_status status = ATTN_OK;
    while (!damaged && status == ATTN_OK && next_field(&file, &number, &part, &damaged)) {
        if (number != NORMALIZER && number != DENORMALIZER)
            continue;
        while (!damaged && status == ATTN_OK && next_field(&part, &number, &rules, &damaged))
            status = number == RULES ? check_rules(context, rules, name) : ATTN_OK;
    }
    if (status == ATTN_OK && damaged)
        status = attn__fail(context, ATTN_ERROR_FORMAT, "%s: the file is damaged or not a SentencePiece model", name);
    return status;
}
