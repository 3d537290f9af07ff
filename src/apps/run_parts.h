/* SPDX-License-Identifier: MIT
 *
 * run_parts.h - parts of a model that are trained in their own way: not at all, or at a rate of their own.
 */
#ifndef ATTN_APPS_RUN_PARTS_H
#define ATTN_APPS_RUN_PARTS_H

#include "apps/run.h"

/* Freezes what the settings say, before moments are made for it.  ATTN_ARGUMENT: a pattern that is none, or that no
 * parameter matches, or nothing left to train. */
attn_status attn__run_freeze(const attn__run *run);
/* Gives the optimiser of run->training the rates that the settings say. */
attn_status attn__run_set_rates(const attn__run *run);
/* Writes run->taken to fine-tuning.tsv, with what is frozen. */
attn_status attn__run_write_taken(const attn__run *run);

#endif
