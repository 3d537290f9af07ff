/* SPDX-License-Identifier: MIT
 * sum.h - sums of bits over what makes a run: whether several ranks begin alike, and whether a directory still holds
 * what was written. */
#ifndef ATTN_APPS_RUN_SUM_H
#define ATTN_APPS_RUN_SUM_H

#include "apps/run/run.h"
#include "io/json_writer.h"

/* The checksum of every tensor of a list, in its order. */
uint64_t attn__run_sum_tensors(const attn_named_list *list);
/* The checksum of every setting.  ATTN_ERROR_MEMORY. */
attn_status attn__run_sum_settings(const attn__run *run, uint64_t *sum);
/* The settings as JSON; `fixed`: without those that a resumed run may be told anew.  The text lives until attn_json_free,
 * which the caller calls in any case.  ATTN_ERROR_MEMORY. */
attn_status attn__run_settings_text(const attn__run *run, bool fixed, attn_json *json, const char **text);
/* Of all that a checkpoint must fit to: settings and counters as its metadata has them, config.json and the
 * application's own files as they are in the directory, the tensors.  ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO,
 * ATTN_ERROR_MEMORY: a file cannot be read. */
attn_status attn__run_sum(const attn__run *run, const attn_config *metadata, const attn_named_list *list,
                          uint64_t *sum);

/* The settings that a resumed run may be told anew: how long to go on, and how often to save; NULL-terminated. */
extern const char *const attn__run_open_settings[];

#endif
