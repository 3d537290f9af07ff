/* SPDX-License-Identifier: MIT
 * run_sum.h - sums of bits over what makes a run: whether several ranks begin alike, and whether a directory still holds
 * what was written. */
#ifndef ATTN_APPS_RUN_SUM_H
#define ATTN_APPS_RUN_SUM_H

#include "apps/run.h"

/* Of every tensor of a list, in its order. */
uint64_t attn__run_sum_tensors(const attn_named_list *list);
/* Of the settings; `fixed`: without those that a resumed run may be told anew. */
uint64_t attn__run_sum_settings(const attn__run *run, bool fixed);
/* Of all that a checkpoint must fit to: the fixed settings, config.json and the application's own files as they lie in the
 * directory, the counters as text, the tensors.  ATTN_NOT_FOUND, ATTN_IO, ATTN_MEMORY: a file cannot be read. */
attn_status attn__run_sum(const attn__run *run, const char *counters, const attn_named_list *list, uint64_t *sum);

/* The settings that a resumed run may be told anew: how long to go on, and how often to save; NULL-terminated. */
extern const char *const attn__run_open_settings[];

#endif
