/* SPDX-License-Identifier: MIT
 *
 * Reads settings of a model from the shapes of a checkpoint's tensors. The names file has a line for each setting that
 * is read. */
#include "io/names/names.h"

#include <stdlib.h>
#include <string.h>

static bool find(const attn_checkpoint *weights, const char *target, attn_checkpoint_entry *entry)
{
    for (int64_t i = 0; attn_checkpoint_at(weights, i, entry); i++)
        if (strcmp(entry->name, target) == 0)
            return true;
    return false;
}

/* Returns one more than the largest number that follows the prefix in the name of a tensor. */
static int64_t count_of(const attn_checkpoint *weights, const char *prefix)
{
    attn_checkpoint_entry entry;
    size_t n = strlen(prefix);
    int64_t most = 0;
    for (int64_t i = 0; attn_checkpoint_at(weights, i, &entry); i++) {
        const char *digits = entry.name + n;
        if (strncmp(entry.name, prefix, n) != 0 || strspn(digits, "0123456789") == 0 ||
            strspn(digits, "0123456789") > 6)
            continue;
        long number = strtol(digits, NULL, 10) + 1;
        most = number > most ? number : most;
    }
    return most;
}

static attn_status measure(const attn__measure *m, const attn_checkpoint *weights, attn_config *config)
{
    attn_checkpoint_entry entry;
    if (m->kind == ATTN__COUNT_OF) {
        int64_t n = count_of(weights, m->target);
        return n > 0 ? attn_config_set_int(config, m->key, n) : ATTN_OK;
    }
    if (!find(weights, m->target, &entry))
        return ATTN_OK;
    if (m->kind == ATTN__WHEN)
        return attn__names_set(config, m->key, m->value);
    return m->axis < entry.rank ? attn_config_set_int(config, m->key, entry.shape[m->axis] + m->add) : ATTN_OK;
}

/* Null is no value, because some programs write null for missing values. */
static bool is_set(const attn_config *config, const char *key)
{
    const attn_config_value *value = attn_config_get(config, key);
    return value && value->type != ATTN_CONFIG_TYPE_NULL;
}

attn_status attn_name_map_infer_config(const attn_name_map *names, const attn_checkpoint *weights, attn_config *config)
{
    attn_status status = ATTN_OK;
    for (int i = 0; i < names->nmeasures && status == ATTN_OK; i++)
        if (!is_set(config, names->measures[i].key))
            status = measure(&names->measures[i], weights, config);
    for (int64_t i = 0; i < attn_config_size(names->settings) && status == ATTN_OK; i++) {
        const char *key = attn_config_key(names->settings, i);
        if (!is_set(config, key))
            status = attn_config_set(config, key, attn_config_get(names->settings, key));
    }
    return status;
}
