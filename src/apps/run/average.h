/* SPDX-License-Identifier: MIT
 * average.h - averages of a run's weights, for run.c: an exponential moving one (Polyak and Juditsky 1992), or
 * that of the last epochs' ends, as Marian averages checkpoints (Junczys-Dowmunt et al. 2018). */
#ifndef ATTN_APPS_RUN_AVERAGE_H
#define ATTN_APPS_RUN_AVERAGE_H

#include "apps/run/run.h"

/* run->average becomes a copy of the parameters if the setting "ema" is more than 0 or "average" more than 1; else it
 * stays empty. */
attn_status attn__run_average_begin(attn__run *run);
void attn__run_average_end(attn__run *run);
/* Takes the parameters of an epoch's end into the average of the last "average" epochs, where there is one. */
void attn__run_average_epoch(attn__run *run);
/* average = d average + (1 - d) parameters, after step `steps` (from 1). */
void attn__run_average_step(attn__run *run, int64_t steps);
/* The parameters that the model's files get: the average if there is one, which that of epochs is from the first one's
 * end on; else the parameters. */
const attn_named_list *attn__run_average_kept(const attn__run *run);
/* Exchanges parameters and average: the model is the averaged one until the next call. */
void attn__run_average_swap(attn__run *run);

#endif
