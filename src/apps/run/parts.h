/* SPDX-License-Identifier: MIT
 *
 * parts.h - parts of a model that are trained in their own way: not at all, or at a rate of their own.
 */
#ifndef ATTN_APPS_RUN_PARTS_H
#define ATTN_APPS_RUN_PARTS_H

#include "apps/run/run.h"

/* Calls part(user, i) for each parameter whose whole name a pattern of `size` bytes matches, or, for modules, whose name
 * without ".weight".  ATTN_ERROR_ARGUMENT: no pattern, or none matches. */
attn_status attn__run_matching(const attn__run *run, const char *setting, const char *text, size_t size,
                               void (*part)(void *user, int64_t i), void *user);
attn_status attn__run_matching_modules(const attn__run *run, const char *setting, const char *text, size_t size,
                                       void (*part)(void *user, int64_t i), void *user);
/* Freezes the parameters that the settings name, before moments are made for them.  ATTN_ERROR_ARGUMENT: a pattern that
 * is none, or that no parameter matches, or nothing left to train. */
attn_status attn__run_freeze(const attn__run *run);
/* Gives the optimizer of run->training the rates of the settings. */
attn_status attn__run_set_rates(const attn__run *run);
/* Writes run->taken to fine-tuning.tsv, with what is frozen. */
attn_status attn__run_write_taken(const attn__run *run);

#endif
