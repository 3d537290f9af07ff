/* SPDX-License-Identifier: MIT
 *
 * sum.h - checksums of the data of a run. They serve to check that all ranks start with the same data, and that a
 * directory is not damaged.
 */
#ifndef ATTN_APPS_RUN_SUM_H
#define ATTN_APPS_RUN_SUM_H

#include "apps/run/run.h"
#include "io/json_writer.h"

/* Returns the checksum of all tensors of a list, in their order. */
uint64_t attn__run_sum_tensors(const attn_named_list *list);
/* Computes the checksum of all settings. ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn__run_sum_settings(const attn__run *run, uint64_t *sum);
/* Writes the settings as JSON. If `fixed` is true, the settings that a resumed run may change are left out. The
 * caller frees the text with attn_json_free, even on failure. ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn__run_settings_text(const attn__run *run, bool fixed, attn_json *json, const char **text);
/* Computes the checksum of all data that belongs to a checkpoint: its metadata (settings and counters), config.json
 * and the application's own files in the directory, and the tensors. ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO,
 * ATTN_ERROR_MEMORY: a file cannot be read. */
attn_status attn__run_sum(const attn__run *run, const attn_config *metadata, const attn_named_list *list,
                          uint64_t *sum);

/* The settings that a resumed run may change: the length of the run, and how often it is saved. The list ends with
 * NULL. */
extern const char *const attn__run_open_settings[];

#endif
