/* SPDX-License-Identifier: MIT
 *
 * The files of a training run.  All that must fit together (parameters, moments, counters) is one file, which
 * is replaced as a whole; model.safetensors is written before it, so that whatever moment a run is killed at,
 * resuming repeats at most work whose results are already there.
 */
#include "apps/training_run.h"

#include "base/context.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char HISTORY_HEAD[] = "epoch\ttrain_loss\tvalid_loss\trate\n";

static attn_status path_in(const attn__run *run, char *path, const char *name)
{
    return attn__path(run->context, path, run->job->directory, name);
}

/* ------------------------------------------------------------------------------------------- beginning */

attn_status attn__run_check_directory(attn__run *run)
{
    static const char *const names[] = {"model.safetensors", "checkpoint.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[ATTN__PATH];
        attn_status status = path_in(run, path, names[i]);
        if (status != ATTN_OK)
            return status;
        if (attn_file_exists(path))
            return attn__fail(run->context, ATTN_ARGUMENT,
                              "%s is there already: go on with it (resume) or choose another directory", path);
    }
    return ATTN_OK;
}

/* training.json: every setting, and which data they were used on. */
static attn_status write_settings(const attn__run *run)
{
    char path[ATTN__PATH], hex[20];
    attn_config *all;
    attn_status status = attn_config_create(&all, run->context);
    if (status != ATTN_OK)
        return status;
    for (int64_t i = 0; status == ATTN_OK && i < attn_config_size(run->settings); i++) {
        const char *key = attn_config_key(run->settings, i);
        status = attn_config_set(all, key, attn_config_get(run->settings, key));
    }
    snprintf(hex, sizeof hex, "%016" PRIx64, run->fingerprint);
    if (status == ATTN_OK)
        status = attn_config_set_text(all, "data", run->data ? run->data : "phrasebook");
    if (status == ATTN_OK)
        status = attn_config_set_text(all, "fingerprint", hex);
    if (status == ATTN_OK)
        status = path_in(run, path, "training.json");
    if (status == ATTN_OK)
        status = attn_config_write(run->context, all, path);
    attn_config_destroy(all);
    return status;
}

static attn_status append_history(attn__run *run, const char *line)
{
    size_t length = strlen(line);
    char *longer = attn__realloc(run->context, run->history.data, run->history.size + length + 1);
    if (!longer)
        return ATTN_MEMORY;
    memcpy(longer + run->history.size, line, length + 1);
    run->history.data = longer;
    run->history.size += length;
    return ATTN_OK;
}

attn_status attn__run_begin_directory(attn__run *run)
{
    attn_status status = attn_directory_create(run->context, run->job->directory);
    if (status == ATTN_OK)
        status = attn__translator_write(run->model, run->settings, run->source, run->target, run->job->directory);
    if (status == ATTN_OK)
        status = write_settings(run);
    return status == ATTN_OK ? append_history(run, HISTORY_HEAD) : status;
}

/* -------------------------------------------------------------------------------------------- resuming */

/* The settings among the keys of training.json. */
static attn_status select_settings(attn__run *run)
{
    attn_config *given;
    attn_status status = attn_config_create(&given, run->context);
    if (status != ATTN_OK)
        return status;
    int n;
    const attn_key *keys = attn_translator_keys(&n);
    for (int i = 0; i < n && status == ATTN_OK; i++) {
        const attn_value *value = attn_config_get(run->stored, keys[i].name);
        if (value)
            status = attn_config_set(given, keys[i].name, value);
    }
    if (status == ATTN_OK)
        status = attn_translator_settings(&run->settings, run->context, given);
    attn_config_destroy(given);
    return status;
}

attn_status attn__run_read_settings(attn__run *run)
{
    char path[ATTN__PATH];
    attn_status status = path_in(run, path, "training.json");
    if (status == ATTN_OK)
        status = attn_config_read(&run->stored, run->context, path);
    if (status != ATTN_OK)
        return status;
    const char *data = attn_config_text(run->stored, "data", NULL);
    if (!data || !attn_config_text(run->stored, "fingerprint", NULL))
        return attn__fail(run->context, ATTN_FORMAT, "%s: \"data\" or \"fingerprint\" is missing", path);
    if (!run->data && !run->text) {
        if (strcmp(data, "phrasebook") == 0)
            run->text = attn_phrasebook(&run->text_size);
        else
            run->data = data;
    }
    return select_settings(run);
}

attn_status attn__run_check_fingerprint(attn__run *run)
{
    if (!run->stored)
        return ATTN_OK;
    uint64_t then = strtoull(attn_config_text(run->stored, "fingerprint", ""), NULL, 16);
    if (then == run->fingerprint)
        return ATTN_OK;
    return attn__fail(run->context, ATTN_ARGUMENT, "%s: not the data that the training in %s began with",
                      run->data ? run->data : "phrasebook", run->job->directory);
}

/* Everything that a checkpoint holds, as one list of borrowed tensors: parameters as "p.NAME", the optimiser's
 * under their own names. */
static attn_status checkpoint_list(const attn__run *run, attn_named_list *list)
{
    const attn_named_list *parameters = attn_model_parameters(run->model);
    const attn_named_list *state = attn_optimiser_state(attn_training_optimiser(run->training));
    attn_status status = ATTN_OK;
    *list = (attn_named_list){.context = run->context};
    for (int64_t i = 0; i < parameters->n && status == ATTN_OK; i++) {
        char name[512];
        snprintf(name, sizeof name, "p.%s", parameters->items[i].name);
        status = attn_named_add(list, name, parameters->items[i].tensor);
    }
    for (int64_t i = 0; i < state->n && status == ATTN_OK; i++)
        status = attn_named_add(list, state->items[i].name, state->items[i].tensor);
    return status;
}

static attn_status restore_counters(attn__run *run, const attn_config *metadata, const char *path)
{
    const char *text = attn_config_text(metadata, "training", NULL);
    if (!text)
        return attn__fail(run->context, ATTN_FORMAT, "%s: its metadata lacks \"training\"", path);
    attn_config *counters;
    attn_status status = attn_config_parse(&counters, run->context, text, strlen(text), path);
    if (status != ATTN_OK)
        return status;
    status = attn_training_restore(run->training, counters);
    attn_config_destroy(counters);
    return status;
}

/* The head and the lines of the epochs that the checkpoint knows; later ones are made again. */
static attn_status restore_history(attn__run *run)
{
    char path[ATTN__PATH];
    attn_status status = path_in(run, path, "history.tsv");
    if (status != ATTN_OK || !attn_file_exists(path))
        return status != ATTN_OK ? status : append_history(run, HISTORY_HEAD);
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
    attn_status status = path_in(run, path, "checkpoint.safetensors");
    if (status == ATTN_OK)
        status = attn_config_create(&metadata, run->context);
    if (status == ATTN_OK)
        status = checkpoint_list(run, &list);
    if (status == ATTN_OK)
        status = attn_weights_load(&list, path, NULL, metadata, NULL);
    if (status == ATTN_OK)
        status = restore_counters(run, metadata, path);
    if (status == ATTN_OK)
        status = restore_history(run);
    attn_named_clear(&list);
    attn_config_destroy(metadata);
    return status;
}

/* ---------------------------------------------------------------------------------------------- saving */

int64_t attn__run_epoch(const attn__run *run)
{
    return attn_training_epoch(run->training);
}

void attn__run_note_epoch(attn__run *run, const attn_progress *p)
{
    char line[160];
    snprintf(line, sizeof line, "%lld\t%.6f\t%.6f\t%.6g\n", (long long)p->epoch, p->loss, p->valid_loss, p->rate);
    (void)append_history(run, line); /* without memory a line is lost; the training is not */
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

static attn_status save_checkpoint(attn__run *run)
{
    char path[ATTN__PATH];
    attn_named_list list = {0};
    attn_config *metadata = NULL;
    attn_status status = path_in(run, path, "checkpoint.safetensors");
    if (status == ATTN_OK)
        status = attn_config_create(&metadata, run->context);
    if (status == ATTN_OK)
        status = counters_as_text(run, metadata);
    if (status == ATTN_OK)
        status = checkpoint_list(run, &list);
    if (status == ATTN_OK)
        status = attn_safetensors_write(&list, path, metadata);
    attn_named_clear(&list);
    attn_config_destroy(metadata);
    return status;
}

attn_status attn__run_save(attn__run *run, bool improved)
{
    char model[ATTN__PATH], history[ATTN__PATH];
    attn_status status = path_in(run, model, "model.safetensors");
    if (status == ATTN_OK)
        status = path_in(run, history, "history.tsv");
    bool last = strcmp(attn_config_text(run->settings, "keep", "best"), "last") == 0;
    /* A run stopped before its first validation leaves a model too. */
    if (status == ATTN_OK && (improved || last || !attn_file_exists(model)))
        status = attn_safetensors_write(attn_model_parameters(run->model), model, NULL);
    if (status == ATTN_OK)
        status = save_checkpoint(run);
    return status == ATTN_OK ? attn_file_write(run->context, history, run->history.data, run->history.size) : status;
}
