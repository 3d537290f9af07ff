/* SPDX-License-Identifier: MIT
 * Stores settings by name, in the order in which they were set. */
#include "attn/config.h"

#include "base/context.h"
#include "base/words.h"
#include "config/keys.h"

#include <string.h>

typedef struct entry {
    char *key;
    attn_config_value value; /* the entry owns the memory of `text` and lists inside this value */
} entry;

struct attn_config {
    attn_context *context;
    entry **entries; /* each in its own memory, so that attn_config_get's pointers stay valid when keys are added */
    int64_t n;
    attn__words keys; /* word i is the key of entry i */
};

/* ---------------------------------------------------------------------------------------------- values */

static void free_value(attn_context *context, attn_config_value *value)
{
    for (int64_t i = 0; value->texts && i < value->n; i++)
        attn__free(context, (void *)(uintptr_t)value->texts[i]);
    attn__free(context, (void *)(uintptr_t)value->texts);
    attn__free(context, (void *)(uintptr_t)value->integers);
    attn__free(context, (void *)(uintptr_t)value->reals);
    attn__free(context, (void *)(uintptr_t)value->text);
    *value = (attn_config_value){0};
}

static bool copy_texts(attn_context *context, attn_config_value *to, const attn_config_value *from)
{
    const char **texts = attn__alloc_zero(context, attn__size_mul((size_t)from->n, sizeof *texts));
    to->texts = texts;
    for (int64_t i = 0; texts && i < from->n; i++) {
        texts[i] = attn__strdup(context, from->texts[i] ? from->texts[i] : "");
        if (!texts[i])
            return false;
    }
    return texts != NULL;
}

static void *copy_numbers(attn_context *context, const void *from, int64_t n)
{
    size_t size = attn__size_mul((size_t)n, sizeof(int64_t));
    void *numbers = attn__alloc(context, size);
    if (numbers && size > 0)
        memcpy(numbers, from, size);
    return numbers;
}

/* Copies only the fields that the value's type uses. If memory runs out, returns false and leaves nothing allocated. */
static bool copy_value(attn_context *context, attn_config_value *to, const attn_config_value *from)
{
    *to =
        (attn_config_value){.type = from->type, .boolean = from->boolean, .integer = from->integer, .real = from->real};
    bool done = true;
    switch (from->type) {
    case ATTN_CONFIG_TYPE_INT:
        to->real = (double)from->integer;
        break;
    case ATTN_CONFIG_TYPE_TEXT:
        to->text = attn__strdup(context, from->text ? from->text : "");
        done = to->text != NULL;
        break;
    case ATTN_CONFIG_TYPE_INTS:
        to->n = from->n;
        to->integers = copy_numbers(context, from->integers, from->n);
        done = to->integers != NULL;
        break;
    case ATTN_CONFIG_TYPE_REALS:
        to->n = from->n;
        to->reals = copy_numbers(context, from->reals, from->n);
        done = to->reals != NULL;
        break;
    case ATTN_CONFIG_TYPE_TEXTS:
        to->n = from->n;
        done = copy_texts(context, to, from);
        break;
    default:
        break;
    }
    if (!done)
        free_value(context, to);
    return done;
}

static bool is_number(const attn_config_value *value)
{
    return value->type == ATTN_CONFIG_TYPE_INT || value->type == ATTN_CONFIG_TYPE_REAL;
}

static bool same_lists(const attn_config_value *a, const attn_config_value *b)
{
    bool same = a->n == b->n;
    for (int64_t i = 0; same && i < a->n; i++)
        same = a->type == ATTN_CONFIG_TYPE_INTS    ? a->integers[i] == b->integers[i]
               : a->type == ATTN_CONFIG_TYPE_REALS ? !(a->reals[i] < b->reals[i]) && !(a->reals[i] > b->reals[i])
                                                   : strcmp(a->texts[i], b->texts[i]) == 0;
    return same;
}

bool attn_config_value_equal(const attn_config_value *a, const attn_config_value *b)
{
    bool integers = a->type == ATTN_CONFIG_TYPE_INT && b->type == ATTN_CONFIG_TYPE_INT;
    if (is_number(a) && is_number(b) && !integers)
        return !(a->real < b->real) && !(a->real > b->real);
    if (a->type != b->type)
        return false;
    switch (a->type) {
    case ATTN_CONFIG_TYPE_BOOL:
        return a->boolean == b->boolean;
    case ATTN_CONFIG_TYPE_INT:
        return a->integer == b->integer;
    case ATTN_CONFIG_TYPE_TEXT:
        return strcmp(a->text, b->text) == 0;
    case ATTN_CONFIG_TYPE_INTS:
    case ATTN_CONFIG_TYPE_TEXTS:
    case ATTN_CONFIG_TYPE_REALS:
        return same_lists(a, b);
    default:
        return true;
    }
}

/* ---------------------------------------------------------------------------------------------- config */

attn_status attn_config_create(attn_config **config, attn_context *context)
{
    ATTN__CALL(context);
    *config = attn__alloc_zero(context, sizeof **config);
    if (!*config)
        return ATTN_ERROR_MEMORY;
    (*config)->context = context;
    attn_status status = attn__words_create(&(*config)->keys, context);
    if (status != ATTN_OK) {
        attn_config_destroy(*config);
        *config = NULL;
    }
    return status;
}

void attn_config_destroy(attn_config *config)
{
    if (!config)
        return;
    for (int64_t i = 0; i < config->n; i++) {
        attn__free(config->context, config->entries[i]->key);
        free_value(config->context, &config->entries[i]->value);
        attn__free(config->context, config->entries[i]);
    }
    attn__free(config->context, config->entries);
    attn__words_destroy(&config->keys);
    attn__free(config->context, config);
}

static entry *find(const attn_config *config, const char *key)
{
    int32_t i = attn__words_find(&config->keys, key, strlen(key));
    return i < 0 ? NULL : config->entries[i];
}

static bool has_room(attn_config *config)
{
    entry **entries = attn__grow(config->context, config->entries, config->n, sizeof *entries);
    config->entries = entries ? entries : config->entries;
    return entries != NULL;
}

attn_status attn_config_set(attn_config *config, const char *key, const attn_config_value *value)
{
    ATTN__CALL(config->context);
    if (!key || !*key)
        return attn__fail(config->context, ATTN_ERROR_ARGUMENT, "a setting has no name");
    if (value->type < ATTN_CONFIG_TYPE_NULL || value->type > ATTN_CONFIG_TYPE_REALS)
        return attn__fail(config->context, ATTN_ERROR_ARGUMENT,
                          "setting \"%.80s\": type is %d; it must be between %d and %d", key, (int)value->type,
                          (int)ATTN_CONFIG_TYPE_NULL, (int)ATTN_CONFIG_TYPE_REALS);
    if (value->n < 0)
        return attn__fail(config->context, ATTN_ERROR_ARGUMENT, "setting \"%.80s\": n is %lld; it must not be negative",
                          key, (long long)value->n);
    attn_config_value copy;
    if (!copy_value(config->context, &copy, value))
        return ATTN_ERROR_MEMORY;
    entry *old = find(config, key);
    if (old) { /* the old value is freed after the copy is made, because `value` may point into the old value */
        free_value(config->context, &old->value);
        old->value = copy;
        return ATTN_OK;
    }
    entry *fresh = has_room(config) ? attn__alloc(config->context, sizeof *fresh) : NULL;
    char *name = fresh ? attn__strdup(config->context, key) : NULL;
    attn_status status = name ? attn__words_count(&config->keys, name, strlen(name), 1) : ATTN_ERROR_MEMORY;
    if (status != ATTN_OK) {
        attn__free(config->context, name);
        attn__free(config->context, fresh);
        free_value(config->context, &copy);
        return status;
    }
    *fresh = (entry){name, copy};
    config->entries[config->n++] = fresh;
    return ATTN_OK;
}

attn_status attn_config_set_int(attn_config *config, const char *key, int64_t value)
{
    return attn_config_set(config, key, &(attn_config_value){.type = ATTN_CONFIG_TYPE_INT, .integer = value});
}

attn_status attn_config_set_real(attn_config *config, const char *key, double value)
{
    return attn_config_set(config, key, &(attn_config_value){.type = ATTN_CONFIG_TYPE_REAL, .real = value});
}

attn_status attn_config_set_bool(attn_config *config, const char *key, bool value)
{
    return attn_config_set(config, key, &(attn_config_value){.type = ATTN_CONFIG_TYPE_BOOL, .boolean = value});
}

attn_status attn_config_set_text(attn_config *config, const char *key, const char *value)
{
    return attn_config_set(config, key, &(attn_config_value){.type = ATTN_CONFIG_TYPE_TEXT, .text = value});
}

/* --------------------------------------------------------------------------------------------- reading */

int64_t attn_config_size(const attn_config *config)
{
    return config->n;
}

const char *attn_config_key(const attn_config *config, int64_t i)
{
    return i >= 0 && i < config->n ? config->entries[i]->key : NULL;
}

const attn_config_value *attn_config_get(const attn_config *config, const char *key)
{
    const entry *found = find(config, key);
    return found ? &found->value : NULL;
}

static const attn_config_value *typed(const attn_config *config, const char *key, attn_config_type type)
{
    const attn_config_value *value = attn_config_get(config, key);
    return value && value->type == type ? value : NULL;
}

int64_t attn_config_int(const attn_config *config, const char *key, int64_t otherwise)
{
    const attn_config_value *value = typed(config, key, ATTN_CONFIG_TYPE_INT);
    return value ? value->integer : otherwise;
}

/* A setting that holds an integer is accepted too, because a file may write 1.0 as 1. */
double attn_config_real(const attn_config *config, const char *key, double otherwise)
{
    const attn_config_value *value = typed(config, key, ATTN_CONFIG_TYPE_REAL);
    if (!value)
        value = typed(config, key, ATTN_CONFIG_TYPE_INT);
    return value ? value->real : otherwise;
}

bool attn_config_bool(const attn_config *config, const char *key, bool otherwise)
{
    const attn_config_value *value = typed(config, key, ATTN_CONFIG_TYPE_BOOL);
    return value ? value->boolean : otherwise;
}

const char *attn_config_text(const attn_config *config, const char *key, const char *otherwise)
{
    const attn_config_value *value = typed(config, key, ATTN_CONFIG_TYPE_TEXT);
    return value ? value->text : otherwise;
}
