/* SPDX-License-Identifier: MIT
 *
 * parts.h - freezes parts of a model, or gives parts their own learning rates.
 */
#ifndef ATTN_APPS_RUN_PARTS_H
#define ATTN_APPS_RUN_PARTS_H

#include "apps/run/run.h"

/* Calls part(user, i) for each parameter whose whole name matches a pattern of `size` bytes. attn__run_matching_modules
 * compares the name without ".weight". ATTN_ERROR_ARGUMENT: the pattern is invalid or matches no parameter. */
attn_status attn__run_matching(const attn__run *run, const char *setting, const char *text, size_t size,
                               void (*part)(void *user, int64_t i), void *user);
attn_status attn__run_matching_modules(const attn__run *run, const char *setting, const char *text, size_t size,
                                       void (*part)(void *user, int64_t i), void *user);
/* Freezes the parameters that the settings name. Call it before moments are allocated. ATTN_ERROR_ARGUMENT: a
 * pattern is invalid or matches no parameter, or no parameter is left to train. */
attn_status attn__run_freeze(const attn__run *run);
/* Sets the learning rates of the settings in the optimizer of run->training. */
attn_status attn__run_set_rates(const attn__run *run);
/* Writes fine-tuning.tsv: the source of each parameter (run->taken), and which parameters are frozen. */
attn_status attn__run_write_taken(const attn__run *run);

#endif
