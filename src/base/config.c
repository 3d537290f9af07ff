/* SPDX-License-Identifier: MIT
 * Typed settings by name. */
#include "attn/config.h"

#include "base/context.h"
#include "base/rng.h"

#include <string.h>

typedef struct entry {
    char *key;
    attn_value value;
    void *memory; /* what the value points to, in one block */
} entry;

struct attn_config {
    attn_context *context;
    entry *entries;
    int64_t n, capacity;
    int64_t *slots; /* a hash table of 2 * capacity places: number of the entry + 1; 0: free */
};

attn_status attn_config_create(attn_config **config, attn_context *context)
{
    *config = attn__alloc_zero(context, sizeof **config);
    if (!*config)
        return ATTN_MEMORY;
    (*config)->context = context;
    return ATTN_OK;
}

void attn_config_destroy(attn_config *config)
{
    if (!config)
        return;
    for (int64_t i = 0; i < config->n; i++) {
        attn__free(config->context, config->entries[i].key);
        attn__free(config->context, config->entries[i].memory);
    }
    attn__free(config->context, config->entries);
    attn__free(config->context, config->slots);
    attn__free(config->context, config);
}

/* ------------------------------------------------------------------------------------------ copied values */

static size_t texts_size(const attn_value *value)
{
    size_t size = attn__size_mul((size_t)value->n, sizeof *value->texts);
    for (int64_t i = 0; i < value->n; i++)
        size = attn__size_add(size, strlen(value->texts[i]) + 1);
    return size;
}

/* Bytes that a value points to. */
static size_t memory_size(const attn_value *value)
{
    switch (value->type) {
    case ATTN_VALUE_TEXT:
        return strlen(value->text) + 1;
    case ATTN_VALUE_INTS:
        return attn__size_mul((size_t)value->n, sizeof *value->integers);
    case ATTN_VALUE_TEXTS:
        return texts_size(value);
    default:
        return 0;
    }
}

/* The pointers first, the texts behind them. */
static void copy_texts(attn_value *value, void *memory)
{
    const char **texts = memory;
    char *at = (char *)(texts + value->n);
    for (int64_t i = 0; i < value->n; i++) {
        size_t size = strlen(value->texts[i]) + 1;
        texts[i] = memcpy(at, value->texts[i], size);
        at += size;
    }
    value->texts = texts;
}

/* Makes `copy` point into `memory`, where what `value` points to is copied. */
static attn_value copy_value(const attn_value *value, void *memory)
{
    attn_value copy = *value;
    if (copy.type == ATTN_VALUE_INT)
        copy.real = (double)copy.integer;
    if (copy.type == ATTN_VALUE_TEXT)
        copy.text = memcpy(memory, value->text, strlen(value->text) + 1);
    if (copy.type == ATTN_VALUE_INTS) {
        copy.integers = memory;
        if (copy.n > 0)
            memcpy(memory, value->integers, (size_t)copy.n * sizeof *value->integers);
    }
    if (copy.type == ATTN_VALUE_TEXTS)
        copy_texts(&copy, memory);
    return copy;
}

/* ---------------------------------------------------------------------------------------------- setting */

static uint64_t hash_key(const char *key)
{
    uint64_t hash = 0;
    for (; *key; key++)
        hash = (hash ^ (unsigned char)*key) * 0x100000001b3u;
    return attn__mix64(hash);
}

/* The slot of a key, or the free one where it would go; the capacity must not be 0. */
static int64_t *slot_of(const attn_config *config, const char *key)
{
    uint64_t mask = 2 * (uint64_t)config->capacity - 1, slot = hash_key(key) & mask;
    while (config->slots[slot] && strcmp(config->entries[config->slots[slot] - 1].key, key) != 0)
        slot = (slot + 1) & mask;
    return &config->slots[slot];
}

static entry *find(const attn_config *config, const char *key)
{
    const int64_t *slot = config->capacity ? slot_of(config, key) : NULL;
    return slot && *slot ? &config->entries[*slot - 1] : NULL;
}

static attn_status grow(attn_config *config)
{
    int64_t capacity = config->capacity ? 2 * config->capacity : 16;
    entry *entries =
        attn__realloc(config->context, config->entries, attn__size_mul((size_t)capacity, sizeof *entries));
    if (!entries)
        return ATTN_MEMORY;
    config->entries = entries;
    int64_t *slots = attn__alloc_zero(config->context, attn__size_mul(2 * (size_t)capacity, sizeof *slots));
    if (!slots)
        return ATTN_MEMORY;
    attn__free(config->context, config->slots);
    config->slots = slots;
    config->capacity = capacity;
    for (int64_t i = 0; i < config->n; i++)
        *slot_of(config, entries[i].key) = i + 1;
    return ATTN_OK;
}

/* A new entry at the end, with a null value. */
static entry *add(attn_config *config, const char *key)
{
    if (config->n == config->capacity && grow(config) != ATTN_OK)
        return NULL;
    char *copy = attn__strdup(config->context, key);
    if (!copy)
        return NULL;
    *slot_of(config, key) = config->n + 1;
    config->entries[config->n] = (entry){.key = copy};
    return &config->entries[config->n++];
}

attn_status attn_config_set(attn_config *config, const char *key, const attn_value *value)
{
    size_t size = memory_size(value);
    void *memory = size > 0 ? attn__alloc(config->context, size) : NULL;
    if (size > 0 && !memory)
        return ATTN_MEMORY;
    entry *e = find(config, key);
    if (!e)
        e = add(config, key);
    if (!e) {
        attn__free(config->context, memory);
        return ATTN_MEMORY;
    }
    /* The old memory goes last: the new value may be a copy out of it. */
    attn_value copy = copy_value(value, memory);
    attn__free(config->context, e->memory);
    e->memory = memory;
    e->value = copy;
    return ATTN_OK;
}

attn_status attn_config_set_int(attn_config *config, const char *key, int64_t value)
{
    return attn_config_set(config, key, &(attn_value){.type = ATTN_VALUE_INT, .integer = value});
}

attn_status attn_config_set_real(attn_config *config, const char *key, double value)
{
    return attn_config_set(config, key, &(attn_value){.type = ATTN_VALUE_REAL, .real = value});
}

attn_status attn_config_set_bool(attn_config *config, const char *key, bool value)
{
    return attn_config_set(config, key, &(attn_value){.type = ATTN_VALUE_BOOL, .boolean = value});
}

attn_status attn_config_set_text(attn_config *config, const char *key, const char *value)
{
    return attn_config_set(config, key, &(attn_value){.type = ATTN_VALUE_TEXT, .text = value});
}

/* ---------------------------------------------------------------------------------------------- reading */

int64_t attn_config_size(const attn_config *config)
{
    return config->n;
}

const char *attn_config_key(const attn_config *config, int64_t i)
{
    return i >= 0 && i < config->n ? config->entries[i].key : NULL;
}

const attn_value *attn_config_get(const attn_config *config, const char *key)
{
    const entry *e = find(config, key);
    return e ? &e->value : NULL;
}

static const attn_value *typed(const attn_config *config, const char *key, attn_value_type type)
{
    const attn_value *value = attn_config_get(config, key);
    return value && value->type == type ? value : NULL;
}

int64_t attn_config_int(const attn_config *config, const char *key, int64_t otherwise)
{
    const attn_value *value = typed(config, key, ATTN_VALUE_INT);
    return value ? value->integer : otherwise;
}

double attn_config_real(const attn_config *config, const char *key, double otherwise)
{
    const attn_value *value = attn_config_get(config, key);
    bool number = value && (value->type == ATTN_VALUE_REAL || value->type == ATTN_VALUE_INT);
    return number ? value->real : otherwise;
}

bool attn_config_bool(const attn_config *config, const char *key, bool otherwise)
{
    const attn_value *value = typed(config, key, ATTN_VALUE_BOOL);
    return value ? value->boolean : otherwise;
}

const char *attn_config_text(const attn_config *config, const char *key, const char *otherwise)
{
    const attn_value *value = typed(config, key, ATTN_VALUE_TEXT);
    return value ? value->text : otherwise;
}
