/* SPDX-License-Identifier: MIT
 *
 * Reads and writes the files of a training run, which can be killed at any moment. Data that must be consistent
 * (parameters, the optimizer's moments, counters) is in one file, checkpoint.safetensors, which is replaced as a whole.
 * model.safetensors is written before the checkpoint. A resumed run therefore at most repeats work whose results are
 * already saved.
 */
#include "apps/run/internal.h"

#include "apps/checkpoint/model_directory.h"
#include "base/context.h"
#include "base/hash.h"
#include "dist/ranks.h"
#include "base/real.h"
#include "io/json_writer.h"
#include "io/directory.h"
#include "io/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_status path_in(const attn__run *run, char *path, const char *name)
{
    return attn__path(run->context, path, run->directory, name);
}

/* ------------------------------------------------------------------------------------------------- sums
 *
 * A damaged checkpoint may still be readable, and a training would then silently continue from wrong values. Therefore
 * a checkpoint contains a checksum of all data of the run. Each word is multiplied by an odd number, which is a
 * one-to-one map, so a change of any single word changes the checksum. */

/* The settings that a resumed run may change: the length of the run, and how often it is saved. */
static const char *const open_settings[] = {"epochs", "patience", "save_every", NULL};

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
    for (int i = 0; open_settings[i]; i++)
        open = open || strcmp(open_settings[i], key) == 0;
    return open;
}

/* Writes the settings as JSON. `fixed`: without those that a resumed run may change. The caller frees the text with
 * attn_json_free, even on failure. */
static attn_status settings_text(const attn__run *run, bool fixed, attn_json *json, const char **text)
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
    attn_status status = settings_text(run, false, &json, &text);
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

/* Computes the checksum of all data that belongs to a checkpoint: its metadata (settings and counters), config.json and
 * the application's own files in the directory, and the tensors. */
static attn_status sum_checkpoint(const attn__run *run, const attn_config *metadata, const attn_named_list *list,
                                  uint64_t *sum)
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

/* ------------------------------------------------------------------------------------------- beginning */

attn_status attn__run_check_directory(const attn__run *run)
{
    static const char *const names[] = {"model.safetensors", "checkpoint.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[ATTN__PATH];
        attn_status status = path_in(run, path, names[i]);
        if (status != ATTN_OK)
            return status;
        if (attn_file_exists(path))
            return attn__fail(run->context, ATTN_ERROR_ARGUMENT,
                              "%s exists already: resume its training (--resume) or choose another directory", path);
    }
    return ATTN_OK;
}

/* Writes training.json: all settings, and the path and fingerprint of the data. */
static attn_status write_settings(const attn__run *run)
{
    char path[ATTN__PATH], hex[20];
    attn_config *all;
    attn_status status = attn_config_create(&all, run->context);
    if (status != ATTN_OK)
        return status;
    /* settings are written in the order of the table, which is the same after resuming */
    for (int i = 0; status == ATTN_OK && i < run->kind->keys->n; i++) {
        const char *key = run->kind->keys->keys[i].name;
        const attn_config_value *value = attn_config_get(run->settings, key);
        status = value ? attn_config_set(all, key, value) : ATTN_OK;
    }
    snprintf(hex, sizeof hex, "%016" PRIx64, run->fingerprint);
    /* The path is stored as an absolute path, so that the data is found from any working directory. */
    char *whole = run->data ? realpath(run->data, NULL) : NULL;
    if (status == ATTN_OK)
        status = attn_config_set_text(all, "data", whole ? whole : run->data ? run->data : run->no_path);
    free(whole);
    if (status == ATTN_OK)
        status = attn_config_set_text(all, "fingerprint", hex);
    if (status == ATTN_OK)
        status = path_in(run, path, "training.json");
    if (status == ATTN_OK)
        status = attn_config_write(all, run->context, path);
    attn_config_destroy(all);
    return status;
}

static attn_status append_history(attn__run *run, const char *line)
{
    size_t length = strlen(line);
    char *longer = attn__realloc(run->context, run->history.data, run->history.size + length + 1);
    if (!longer)
        return ATTN_ERROR_MEMORY;
    memcpy(longer + run->history.size, line, length + 1);
    run->history.data = longer;
    run->history.size += length;
    return ATTN_OK;
}

/* Begins history.tsv with its header line. The metrics of the application are the last columns, so that all other
 * columns are the same for all kinds of trainings. */
static attn_status begin_history(attn__run *run)
{
    char head[160];
    const char *measure = run->kind->measure, *too = run->kind->measure_too;
    snprintf(head, sizeof head, "epoch\ttrain_loss\tvalid_loss\trate%s%s%s%s\n", measure ? "\t" : "",
             measure ? measure : "", too ? "\t" : "", too ? too : "");
    return append_history(run, head);
}

static attn_status save_checkpoint(attn__run *run);

/* The first checkpoint is written before the first model. If the run is killed after that, it can be resumed. If it is
 * killed before, it must be started again. */
attn_status attn__run_begin_directory(attn__run *run)
{
    attn_status status = attn_directory_create(run->context, run->directory);
    if (status == ATTN_OK)
        status = attn__directory_lock(run->context, run->directory, run->kind->own_files, &run->lock);
    if (status == ATTN_OK)
        status = attn__run_check_directory(run);
    if (status == ATTN_OK)
        status = run->kind->write(run);
    if (status == ATTN_OK)
        status = write_settings(run);
    if (status == ATTN_OK)
        status = attn__run_write_taken(run);
    if (status == ATTN_OK)
        status = begin_history(run);
    if (status == ATTN_OK && run->lora)
        status = attn__run_lora_write_base(run);
    if (status == ATTN_OK)
        status = save_checkpoint(run);
    return status == ATTN_OK ? attn__run_save(run, false) : status;
}

/* -------------------------------------------------------------------------------------------- resuming */

/* Returns the current name of a setting. In older files, a setting that was renamed later has its earlier name. */
static const char *name_of_today(const char *key)
{
    static const char *const renamed[][2] = {{"optimiser", "optimizer"}};
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (strcmp(renamed[i][0], key) == 0)
            return renamed[i][1];
    return key;
}

/* For each setting under an earlier name, copies its value to the current name, unless the current name is set. */
static attn_status add_names_of_today(attn_config *settings)
{
    attn_status status = ATTN_OK;
    for (int64_t i = 0, n = attn_config_size(settings); status == ATTN_OK && i < n; i++) {
        const char *key = attn_config_key(settings, i), *now = name_of_today(key);
        if (now != key && !attn_config_get(settings, now))
            status = attn_config_set(settings, now, attn_config_get(settings, key));
    }
    return status;
}

static attn_status overlay_settings(const attn__run *run, attn_config *settings)
{
    attn_status status = ATTN_OK;
    for (int i = 0; open_settings[i] && status == ATTN_OK; i++) {
        const char *key = open_settings[i];
        const attn_config_value *value = run->given ? attn_config_get(run->given, key) : NULL;
        if (value)
            status = attn_config_set(settings, key, value);
    }
    return status;
}

/* Checks that all names in training.json are known. An unknown name means that the file is damaged, or that a newer
 * version of attn wrote it. */
static attn_status check_names(const attn__run *run, const char *path)
{
    for (int64_t i = 0; i < attn_config_size(run->stored); i++) {
        const char *key = attn_config_key(run->stored, i);
        bool known = strcmp(key, "data") == 0 || strcmp(key, "fingerprint") == 0 ||
                     attn__key_find(run->kind->keys, name_of_today(key));
        if (!known)
            return attn__fail(run->context, ATTN_ERROR_FORMAT, "%s: \"%.60s\" is not a setting of this version of attn",
                              path, key);
    }
    return ATTN_OK;
}

/* Combines the settings of training.json with those of the caller, which override them. The settings are checked
 * both before and after this, so that an error names the file or the caller. */
static attn_status select_settings(attn__run *run, const char *path)
{
    attn_config *then;
    attn__keys_options of_file = {.name = path, .refusal = ATTN_ERROR_FORMAT, .select = true};
    attn_status status = attn__keys_resolve(&then, run->context, run->kind->keys, run->stored, &of_file);
    if (status == ATTN_OK)
        status = overlay_settings(run, then);
    if (status == ATTN_OK)
        status = attn__keys_resolve(&run->settings, run->context, run->kind->keys, then, NULL);
    attn_config_destroy(then);
    return status;
}

attn_status attn__run_read_settings(attn__run *run)
{
    char path[ATTN__PATH];
    attn_status status = path_in(run, path, "training.json");
    if (status == ATTN_OK)
        status = attn_config_read(&run->stored, run->context, path);
    if (status == ATTN_OK)
        status = add_names_of_today(run->stored);
    if (status == ATTN_OK)
        status = attn__run_fix_schedule(run->stored);
    if (status != ATTN_OK)
        return status;
    const char *data = attn_config_text(run->stored, "data", NULL);
    if (!data || !attn_config_text(run->stored, "fingerprint", NULL))
        return attn__fail(run->context, ATTN_ERROR_FORMAT, "%s: \"%s\" is missing", path,
                          data ? "fingerprint" : "data");
    bool in_memory = false;
    for (const char *const *name = run->kind->in_memory; name && *name; name++)
        in_memory = in_memory || strcmp(data, *name) == 0;
    if (!run->data && !in_memory)
        run->data = data;
    status = check_names(run, path);
    return status == ATTN_OK ? select_settings(run, path) : status;
}

attn_status attn__run_check_data(const attn__run *run)
{
    if (!run->stored)
        return ATTN_OK;
    uint64_t then = strtoull(attn_config_text(run->stored, "fingerprint", ""), NULL, 16);
    if (then == run->fingerprint)
        return ATTN_OK;
    return attn__fail(run->context, ATTN_ERROR_ARGUMENT,
                      "%s: these are not the data that the training in %s began with",
                      run->data ? run->data : run->no_path, run->directory);
}

static attn_status add_all(const attn__run *run, attn_named_list *list, const char *prefix, const attn_named_list *from,
                           bool whole)
{
    /* number of the model's parameters; `from` may hold several copies of each, one list after the other */
    int64_t parameters = attn_model_parameters(run->model)->n;
    attn_status status = ATTN_OK;
    for (int64_t i = 0; i < from->n && status == ATTN_OK; i++) {
        char name[512];
        if (!whole && attn__run_lora_is_base(run, i % parameters))
            continue;
        snprintf(name, sizeof name, "%s%s", prefix, from->items[i].name);
        status = attn_named_add(list, name, from->items[i].tensor);
    }
    return status;
}

/* Lists the tensors of a checkpoint. The list borrows them. Parameters are named "p.NAME", and their averages "a.NAME".
 * The snapshots of epochs and the optimizer's state have names of their own. If `whole` is true, the list also has the
 * tensors of base.safetensors, which the checksum includes. */
static attn_status checkpoint_list(const attn__run *run, bool whole, attn_named_list *list)
{
    *list = (attn_named_list){.context = run->context};
    attn_status status = add_all(run, list, "p.", attn_model_parameters(run->model), whole);
    if (status == ATTN_OK)
        status = add_all(run, list, "a.", &run->average, whole);
    if (status == ATTN_OK)
        status = add_all(run, list, "", &run->snapshots, whole);
    if (status == ATTN_OK)
        status = add_all(run, list, "", attn_optimizer_state(attn_training_optimizer(run->training)), true);
    return status;
}

static attn_status restore_counters(attn__run *run, const attn_config *metadata, const char *path)
{
    const char *text = attn_config_text(metadata, "training", NULL);
    if (!text)
        return attn__fail(run->context, ATTN_ERROR_FORMAT, "%s: the metadata have no \"training\"", path);
    attn_config *counters;
    attn_status status = attn_config_parse(&counters, run->context, text, strlen(text), path);
    if (status != ATTN_OK)
        return status;
    status = attn_training_restore(run->training, counters);
    attn_config_destroy(counters);
    return status;
}

/* Checks that the run continues with the settings that the checkpoint contains. If the checkpoint lacks a setting,
 * the setting was added to attn later, and has its default. */
static attn_status check_settings(const attn__run *run, const attn_config *then, const char *path)
{
    for (int64_t i = 0; i < attn_config_size(then); i++) {
        const char *key = attn_config_key(then, i);
        const attn_config_value *now = attn_config_get(run->settings, name_of_today(key));
        if (!now)
            return attn__fail(
                run->context, ATTN_ERROR_FORMAT,
                "%s: the checkpoint has a setting \"%.60s\" that training.json or this version of attn does not have",
                path, key);
        if (!attn_config_value_equal(attn_config_get(then, key), now))
            return attn__fail(run->context, ATTN_ERROR_FORMAT,
                              "%s: the setting \"%.60s\" differs from the same setting in training.json", path, key);
    }
    return ATTN_OK;
}

static attn_status compare_sum(const attn__run *run, const attn_config *metadata, const attn_named_list *list,
                               const char *path)
{
    uint64_t sum;
    char hex[20];
    attn_status status = sum_checkpoint(run, metadata, list, &sum);
    if (status != ATTN_OK)
        return status;
    snprintf(hex, sizeof hex, "%016" PRIx64, sum);
    if (strcmp(hex, attn_config_text(metadata, "sum", "")) == 0)
        return ATTN_OK;
    return attn__fail(
        run->context, ATTN_ERROR_FORMAT,
        "%s: its checksum does not match its content and the files beside it: one of them was damaged or changed",
        path);
}

/* Checks the checksum and the settings of a checkpoint. Checkpoints of earlier versions are not checked, because
 * they contain no settings (docs/formats.md). */
static attn_status check_whole(const attn__run *run, const attn_config *metadata, const char *path)
{
    attn_config *then;
    attn_named_list list = {0};
    const char *text = attn_config_text(metadata, "settings", NULL);
    if (!text)
        return ATTN_OK;
    attn_status status = checkpoint_list(run, true, &list);
    if (status == ATTN_OK)
        status = compare_sum(run, metadata, &list, path);
    attn_named_clear(&list);
    if (status == ATTN_OK)
        status = attn_config_parse(&then, run->context, text, strlen(text), path);
    if (status != ATTN_OK)
        return status;
    status = check_settings(run, then, path);
    attn_config_destroy(then);
    return status;
}

/* Reads history.tsv. Keeps the header, and the lines of the epochs that the checkpoint includes. Later lines are
 * dropped, because their epochs are run again. */
static attn_status restore_history(attn__run *run)
{
    char path[ATTN__PATH];
    attn_status status = path_in(run, path, "history.tsv");
    if (status != ATTN_OK || !attn_file_exists(path))
        return status != ATTN_OK ? status : begin_history(run);
    status = attn_file_read(&run->history, run->context, path, 0);
    if (status != ATTN_OK)
        return status;
    int64_t lines = attn__run_epoch(run) + 1;
    size_t keep = 0;
    while (lines > 0 && keep < run->history.size)
        lines -= run->history.data[keep++] == '\n';
    run->history.size = keep;
    run->history.data[keep] = '\0';
    return ATTN_OK;
}

attn_status attn__run_restore(attn__run *run)
{
    char path[ATTN__PATH];
    attn_named_list list = {0};
    attn_config *metadata = NULL;
    /* if there are several processes, only rank 0 writes files and holds the lock */
    bool first = attn__ranks_first(run->context);
    attn_status status = path_in(run, path, "checkpoint.safetensors");
    if (status == ATTN_OK && first)
        status = attn__directory_lock(run->context, run->directory, run->kind->own_files, &run->lock);
    if (status == ATTN_OK)
        status = attn_config_create(&metadata, run->context);
    if (status == ATTN_OK)
        status = checkpoint_list(run, false, &list);
    if (status == ATTN_OK)
        status = attn_weights_load(&list, path, NULL, metadata, NULL);
    if (status == ATTN_OK)
        status = check_whole(run, metadata, path);
    if (status == ATTN_OK)
        status = restore_counters(run, metadata, path);
    if (status == ATTN_OK)
        status = restore_history(run);
    if (status == ATTN_OK && first)
        /* training.json is written again, because the caller may have changed settings for the resumed run */
        status = write_settings(run);
    attn_named_clear(&list);
    attn_config_destroy(metadata);
    return status;
}

/* ---------------------------------------------------------------------------------------------- saving */

void attn__run_note_epoch(attn__run *run, const attn_progress *p)
{
    char line[200];
    int n = snprintf(line, sizeof line, "%lld\t%.6f\t%.6f\t%.6g", (long long)p->epoch, p->loss, p->valid_loss, p->rate);
    if (run->kind->measure)
        n += snprintf(line + n, sizeof line - (size_t)n, "\t%.6f", run->measure);
    if (run->kind->measure_too)
        n += snprintf(line + n, sizeof line - (size_t)n, "\t%.6f", run->measure_too);
    snprintf(line + n, sizeof line - (size_t)n, "\n");
    attn__text_points(line);
    (void)append_history(run, line); /* a failure is not handled here, because the next save reports it */
}

static attn_status counters_as_text(const attn__run *run, attn_config *metadata)
{
    attn_config *counters;
    attn_json json;
    const char *text;
    attn_status status = attn_config_create(&counters, run->context);
    if (status != ATTN_OK)
        return status;
    status = attn_training_store(run->training, counters);
    attn_json_begin(&json, run->context, false);
    attn_json_config(&json, NULL, counters);
    if (status == ATTN_OK)
        status = attn_json_finish(&json, &text);
    if (status == ATTN_OK)
        status = attn_config_set_text(metadata, "training", text);
    attn_json_free(&json);
    attn_config_destroy(counters);
    return status;
}

static attn_status add_settings_and_sum(const attn__run *run, attn_config *metadata, const attn_named_list *list)
{
    uint64_t sum = 0;
    char hex[20];
    attn_json json;
    const char *text;
    attn_status status = settings_text(run, true, &json, &text);
    if (status == ATTN_OK)
        status = attn_config_set_text(metadata, "settings", text);
    attn_json_free(&json);
    if (status == ATTN_OK)
        status = sum_checkpoint(run, metadata, list, &sum);
    snprintf(hex, sizeof hex, "%016" PRIx64, sum);
    return status == ATTN_OK ? attn_config_set_text(metadata, "sum", hex) : status;
}

static attn_status save_checkpoint(attn__run *run)
{
    char path[ATTN__PATH];
    attn_named_list list = {0}, whole = {0};
    attn_config *metadata = NULL;
    attn_status status = path_in(run, path, "checkpoint.safetensors");
    if (status == ATTN_OK)
        status = attn_config_create(&metadata, run->context);
    if (status == ATTN_OK)
        status = counters_as_text(run, metadata);
    if (status == ATTN_OK)
        status = checkpoint_list(run, true, &whole);
    if (status == ATTN_OK)
        status = add_settings_and_sum(run, metadata, &whole);
    attn_named_clear(&whole);
    if (status == ATTN_OK)
        status = checkpoint_list(run, false, &list);
    if (status == ATTN_OK)
        status = attn_safetensors_write(&list, path, metadata);
    attn_named_clear(&list);
    attn_config_destroy(metadata);
    return status;
}

attn_status attn__run_save(attn__run *run, bool improved)
{
    char model[ATTN__PATH], history[ATTN__PATH];
    /* If there was no memory for a line of the history, saving must fail: resuming counts the lines, so a missing
     * line would be a missing epoch. */
    attn_status status = attn__call_status(run->context);
    if (status == ATTN_OK)
        status = path_in(run, model, "model.safetensors");
    if (status == ATTN_OK)
        status = path_in(run, history, "history.tsv");
    /* Before the first validation, there is no best epoch. The current model is then saved. */
    bool latest = strcmp(attn_config_text(run->settings, "keep", "best"), "last") == 0 || attn__run_epoch(run) == 0;
    const attn_named_list *kept = attn__run_average_kept(run);
    if (status == ATTN_OK && (improved || latest))
        status = run->lora         ? attn__run_lora_save(run, kept)
                 : run->kind->save ? run->kind->save(run, kept, model)
                                   : attn_safetensors_write(kept, model, NULL);
    /* The history is written before the checkpoint. If the run is killed in between, resuming can remove the
     * additional lines. It could not restore missing lines. */
    if (status == ATTN_OK)
        status = attn_file_write(run->context, history, run->history.data, run->history.size);
    return status == ATTN_OK ? save_checkpoint(run) : status;
}
