/* SPDX-License-Identifier: MIT
 *
 * Computes checksums of a run's data. A damaged checkpoint may still be readable, and a training would then silently
 * continue from wrong values. Therefore a checkpoint contains a checksum of all data of the run. Each word is
 * multiplied by an odd number, which is a one-to-one map. So a change of any single word changes the checksum.
 */
#include "apps/run/sum.h"

#include "apps/checkpoint/model_directory.h"
#include "base/context.h"
#include "base/hash.h"
#include "io/json_writer.h"
#include "io/directory.h"

#include <string.h>

const char *const attn__run_open_settings[] = {"epochs", "patience", "save_every", NULL};

static uint64_t sum_words(uint64_t sum, const void *data, size_t bytes)
{
    const unsigned char *from = data;
    uint64_t word;
    for (; bytes >= sizeof word; from += sizeof word, bytes -= sizeof word) {
        memcpy(&word, from, sizeof word);
        sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
        sum ^= sum >> 29;
    }
    return attn__hash_bytes(sum, from, bytes);
}

static uint64_t sum_tensors(uint64_t sum, const attn_named_list *list)
{
    for (int64_t i = 0; i < list->n; i++) {
        const attn_tensor *x = list->items[i].tensor;
        sum = sum_words(sum, attn_tensor_data(x), (size_t)attn_tensor_size(x) * attn_dtype_size(attn_tensor_dtype(x)));
    }
    return sum;
}

uint64_t attn__run_sum_tensors(const attn_named_list *list)
{
    return sum_tensors(ATTN__HASH_BEGIN, list);
}

static bool is_open(const char *key)
{
    bool open = false;
    for (int i = 0; attn__run_open_settings[i]; i++)
        open = open || strcmp(attn__run_open_settings[i], key) == 0;
    return open;
}

attn_status attn__run_settings_text(const attn__run *run, bool fixed, attn_json *json, const char **text)
{
    attn_json_begin(json, run->context, false);
    attn_json_object(json, NULL);
    /* Uses the order of the table, because the order in the config can differ: some settings are set only while data
     * is read. */
    for (int i = 0; i < run->kind->keys->n; i++) {
        const char *key = run->kind->keys->keys[i].name;
        const attn_config_value *value = attn_config_get(run->settings, key);
        if (value && (!fixed || !is_open(key)))
            attn_json_value(json, key, value);
    }
    attn_json_end(json);
    return attn_json_finish(json, text);
}

attn_status attn__run_sum_settings(const attn__run *run, uint64_t *sum)
{
    attn_json json;
    const char *text;
    attn_status status = attn__run_settings_text(run, false, &json, &text);
    *sum = status == ATTN_OK ? sum_words(ATTN__HASH_BEGIN, text, strlen(text)) : 0;
    attn_json_free(&json);
    return status;
}

static attn_status sum_file(const attn__run *run, const char *name, uint64_t *sum)
{
    char path[ATTN__PATH];
    attn_bytes bytes = {0};
    attn_status status = attn__path(run->context, path, run->directory, name);
    if (status == ATTN_OK)
        status = attn_file_read(&bytes, run->context, path, 0);
    if (status == ATTN_OK)
        *sum = sum_words(*sum, bytes.data, bytes.size);
    attn_bytes_free(run->context, &bytes);
    return status;
}

/* Adds the contents of a file of the application to the checksum. The file may be missing, because some files are
 * written only with certain settings. */
static attn_status sum_own_file(const attn__run *run, const char *name, uint64_t *sum)
{
    char path[ATTN__PATH];
    attn_status status = attn__path(run->context, path, run->directory, name);
    return status == ATTN_OK && attn_file_exists(path) ? sum_file(run, name, sum) : status;
}

attn_status attn__run_sum(const attn__run *run, const attn_config *metadata, const attn_named_list *list, uint64_t *sum)
{
    static const char *const texts[] = {"settings", "training"};
    const char *const *own = run->kind->own_files;
    *sum = ATTN__HASH_BEGIN;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *text = attn_config_text(metadata, texts[i], "");
        *sum = sum_words(*sum, text, strlen(text));
    }
    attn_status status = sum_file(run, "config.json", sum);
    for (int i = 0; own && own[i] && status == ATTN_OK; i++)
        status = sum_own_file(run, own[i], sum);
    *sum = sum_tensors(*sum, list);
    return status;
}
