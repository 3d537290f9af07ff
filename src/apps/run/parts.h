/* SPDX-License-Identifier: MIT
 *
 * parts.h - parts of a model that are frozen or have their own learning rate. */
#ifndef ATTN_APPS_RUN_PARTS_H
#define ATTN_APPS_RUN_PARTS_H

#include "apps/run/run.h"

/* Calls part(user, i) for each parameter whose whole name matches a pattern of `size` bytes. For modules the name
 * without ".weight" must match. ATTN_ERROR_ARGUMENT: an invalid pattern, or no match. */
attn_status attn__run_matching(const attn__run *run, const char *setting, const char *text, size_t size,
                               void (*part)(void *user, int64_t i), void *user);
attn_status attn__run_matching_modules(const attn__run *run, const char *setting, const char *text, size_t size,
                                       void (*part)(void *user, int64_t i), void *user);
/* Freezes the parameters that the settings name, before moments are allocated. ATTN_ERROR_ARGUMENT: an invalid pattern,
 * a pattern without a match, or no parameter left to train. */
attn_status attn__run_freeze(const attn__run *run);
/* Gives the optimizer of run->training the learning rates of the settings. */
attn_status attn__run_set_rates(const attn__run *run);
/* Writes run->taken to fine-tuning.tsv, and which parameters are frozen. */
attn_status attn__run_write_taken(const attn__run *run);

#endif
