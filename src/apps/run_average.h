/* SPDX-License-Identifier: MIT
 * run_average.h - an exponential moving average of a run's weights (Polyak and Juditsky 1992), for run.c. */
#ifndef ATTN_APPS_RUN_AVERAGE_H
#define ATTN_APPS_RUN_AVERAGE_H

#include "apps/run.h"

/* run->average becomes a copy of the parameters if the setting "ema" is more than 0; else it stays empty. */
attn_status attn__run_average_begin(attn__run *run);
/* average = d average + (1 - d) parameters, after step `steps` (from 1). */
void attn__run_average_step(attn__run *run, int64_t steps);
/* Exchanges parameters and average: the model is the averaged one until the next call. */
void attn__run_average_swap(attn__run *run);

#endif
