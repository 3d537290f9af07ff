/* SPDX-License-Identifier: MIT
 * average.h - averages of a run's weights, for run.c: an exponential moving average (Polyak and Juditsky 1992), or an
 * average over the ends of the last epochs, as Marian averages checkpoints (Junczys-Dowmunt et al. 2018). */
#ifndef ATTN_APPS_RUN_AVERAGE_H
#define ATTN_APPS_RUN_AVERAGE_H

#include "apps/run/run.h"

/* Makes run->average a copy of the parameters if the setting "ema" is above 0 or "average" is above 1. Otherwise
 * run->average is empty. */
attn_status attn__run_average_begin(attn__run *run);
void attn__run_average_end(attn__run *run);
/* Adds the parameters at an epoch's end to the average of the last "average" epochs, if that setting is used. */
void attn__run_average_epoch(attn__run *run);
/* Updates the moving average after step `steps`, counted from 1: average = d average + (1 - d) parameters, where d
 * is the decay. */
void attn__run_average_step(attn__run *run, int64_t steps);
/* Returns the parameters that are written to the model's files: the average if there is one, else the parameters. An
 * average over epochs exists after the first epoch. */
const attn_named_list *attn__run_average_kept(const attn__run *run);
/* Exchanges parameters and average. The model then uses the average until the function is called again. */
void attn__run_average_swap(attn__run *run);

#endif
