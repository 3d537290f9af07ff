/* SPDX-License-Identifier: MIT */
#ifndef ATTN_BASE_WORDS_H
#define ATTN_BASE_WORDS_H

#include "base/context.h"

typedef struct attn__word {
    const char *text; /* `length` bytes, which may lack a terminating 0 */
    uint32_t length;
    int64_t count;
} attn__word;

/* A set of words in a hash table with linear probing, which is at most half full. */
typedef struct attn__words {
    attn_context *context;
    attn__word *items;
    int64_t n, capacity;
    int32_t *slots; /* index of the word plus 1; 0: the slot is free */
    size_t mask;
} attn__words;

attn_status attn__words_create(attn__words *words, attn_context *context);
void attn__words_destroy(attn__words *words);
int32_t attn__words_find(const attn__words *words, const char *text, size_t length);
/* Adds `count` to the count of a word, which is inserted first if it is new. `text` is borrowed. */
attn_status attn__words_count(attn__words *words, const char *text, size_t length, int64_t count);

#endif
