/* SPDX-License-Identifier: MIT
 *
 * average.h - averages of a run's weights, for run.c. There are two kinds: an exponential moving average (Polyak and
 * Juditsky 1992), and the mean over the ends of the last epochs, as Marian averages checkpoints (Junczys-Dowmunt et al.
 * 2018).
 */
#ifndef ATTN_APPS_RUN_AVERAGE_H
#define ATTN_APPS_RUN_AVERAGE_H

#include "apps/run/run.h"

/* If the setting "ema" is above 0 or "average" is above 1, makes run->average a copy of the parameters. Otherwise
 * run->average stays empty. */
attn_status attn__run_average_begin(attn__run *run);
void attn__run_average_end(attn__run *run);
/* Must be called at the end of an epoch. If the setting "average" is used, adds the parameters to the average of the
 * last epochs. */
void attn__run_average_epoch(attn__run *run);
/* Updates the moving average after a step: average = d average + (1 - d) parameters, where d is the decay. `steps`
 * is the number of the step, counted from 1. */
void attn__run_average_step(attn__run *run, int64_t steps);
/* Returns the parameters that are written to the model's files. These are the averages if they exist, otherwise the
 * parameters themselves. An average over epochs exists only after the first epoch. */
const attn_named_list *attn__run_average_kept(const attn__run *run);
/* Exchanges the parameters and their averages. The model then computes with the averages, until this function is
 * called again. */
void attn__run_average_swap(attn__run *run);

#endif
