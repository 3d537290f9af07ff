/* SPDX-License-Identifier: MIT
 *
 * parts.h - freezes parts of a model, or sets learning rates for parts of a model.
 */
#ifndef ATTN_APPS_RUN_PARTS_H
#define ATTN_APPS_RUN_PARTS_H

#include "apps/run/run.h"

/* Calls part(user, i) for each parameter i whose whole name matches the pattern `text` of `size` bytes.
 * attn__run_matching_modules does the same, but matches the name without ".weight". ATTN_ERROR_ARGUMENT: the pattern is
 * invalid or matches no parameter. */
attn_status attn__run_matching(const attn__run *run, const char *setting, const char *text, size_t size,
                               void (*part)(void *user, int64_t i), void *user);
attn_status attn__run_matching_modules(const attn__run *run, const char *setting, const char *text, size_t size,
                                       void (*part)(void *user, int64_t i), void *user);
/* Freezes the parameters that the settings name. It must be called before the optimizer's moments are allocated.
 * ATTN_ERROR_ARGUMENT: a pattern is invalid or matches no parameter, or no parameter is left to train. */
attn_status attn__run_freeze(const attn__run *run);
/* Sets the learning rates of parts in the optimizer of run->training, as the settings require. */
attn_status attn__run_set_rates(const attn__run *run);
/* Writes fine-tuning.tsv. It lists the source of each parameter (run->taken), and whether the parameter is frozen. */
attn_status attn__run_write_taken(const attn__run *run);

#endif
