/* SPDX-License-Identifier: MIT */
#include "base/words.h"

#include "base/hash.h"
#include "base/rng.h"

#include <string.h>

/* attn__mix64 is applied at the end, because the hash table uses the low bits. */
static uint64_t hash_word(const char *text, size_t length)
{
    return attn__mix64(attn__hash_bytes(length, text, length));
}

static size_t slot_of(const attn__words *words, const char *text, size_t length)
{
    size_t slot = hash_word(text, length) & words->mask;
    for (; words->slots[slot]; slot = (slot + 1) & words->mask) {
        const attn__word *word = &words->items[words->slots[slot] - 1];
        if (word->length == length && memcmp(word->text, text, length) == 0)
            break;
    }
    return slot;
}

/* Makes room for `capacity` words, which must be a power of two. */
static attn_status resize(attn__words *words, int64_t capacity)
{
    size_t slots = 2 * (size_t)capacity;
    attn__word *items = attn__realloc(words->context, words->items, attn__size_mul((size_t)capacity, sizeof *items));
    if (!items)
        return ATTN_ERROR_MEMORY;
    words->items = items;
    int32_t *table = attn__alloc_zero(words->context, attn__size_mul(slots, sizeof *table));
    if (!table)
        return ATTN_ERROR_MEMORY;
    attn__free(words->context, words->slots);
    words->slots = table;
    words->mask = slots - 1;
    words->capacity = capacity;
    for (int64_t i = 0; i < words->n; i++)
        table[slot_of(words, items[i].text, items[i].length)] = (int32_t)(i + 1);
    return ATTN_OK;
}

attn_status attn__words_create(attn__words *words, attn_context *context)
{
    *words = (attn__words){.context = context};
    return resize(words, 64);
}

void attn__words_destroy(attn__words *words)
{
    attn__free(words->context, words->items);
    attn__free(words->context, words->slots);
}

int32_t attn__words_find(const attn__words *words, const char *text, size_t length)
{
    return words->slots[slot_of(words, text, length)] - 1;
}

attn_status attn__words_count(attn__words *words, const char *text, size_t length, int64_t count)
{
    size_t slot = slot_of(words, text, length);
    if (words->slots[slot]) {
        words->items[words->slots[slot] - 1].count += count;
        return ATTN_OK;
    }
    if (words->n == words->capacity) {
        if (words->n > INT32_MAX / 4)
            return attn__fail(words->context, ATTN_ERROR_UNSUPPORTED,
                              "the text has too many different words; at most %d are supported", INT32_MAX / 4);
        if (length > UINT32_MAX)
            return attn__fail(words->context, ATTN_ERROR_UNSUPPORTED,
                              "a word has %zu bytes; at most 2^32 - 1 are supported", length);
        attn_status status = resize(words, 2 * words->capacity);
        if (status != ATTN_OK)
            return status;
        slot = slot_of(words, text, length);
    }
    words->items[words->n] = (attn__word){text, (uint32_t)length, count};
    words->slots[slot] = (int32_t)++words->n;
    return ATTN_OK;
}
