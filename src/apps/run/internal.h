/* SPDX-License-Identifier: MIT
 *
 * internal.h - what the files of this folder share: run.c (the course of a training), files.c (its directory) and
 * parameters.c.
 */
#ifndef ATTN_APPS_RUN_INTERNAL_H
#define ATTN_APPS_RUN_INTERNAL_H

#include "apps/run/run.h"

/* ------------------------------------------------------------------------------------------ files */

/* Fails if the directory already contains a model, because a new run would overwrite it. */
attn_status attn__run_check_directory(const attn__run *run);
/* Creates the directory with the files that training does not change, and with the first checkpoint. */
attn_status attn__run_begin_directory(attn__run *run);
/* Reads the settings and the path of the data of a resumed run from training.json. */
attn_status attn__run_read_settings(attn__run *run);
/* Reads parameters, optimizer, counters and history from the checkpoint. */
attn_status attn__run_restore(attn__run *run);
attn_status attn__run_save(attn__run *run, bool improved);
/* Appends a line about the epoch to the history in memory. The line is saved with the next checkpoint. */
void attn__run_note_epoch(attn__run *run, const attn_progress *progress);

/* Returns the checksum of all tensors of a list, in their order. */
uint64_t attn__run_sum_tensors(const attn_named_list *list);
/* ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn__run_sum_settings(const attn__run *run, uint64_t *sum);

/* ------------------------------------------------------------------------------------- parameters */

/* Freezes the parameters that the settings name. It must be called before the optimizer's moments are allocated.
 * ATTN_ERROR_ARGUMENT: a pattern is invalid or matches no parameter, or no parameter is left to train. */
attn_status attn__run_freeze(const attn__run *run);
/* Sets the learning rates of parts in the optimizer of run->training, as the settings require. */
attn_status attn__run_set_rates(const attn__run *run);
/* Writes fine-tuning.tsv. It lists the source of each parameter (run->taken), and whether the parameter is frozen. */
attn_status attn__run_write_taken(const attn__run *run);

/* Low-rank adapters (LoRA: Hu et al. 2021, arXiv:2106.09685) instead of the weights of a model. Their factors are
 * parameters of the model, NAME.lora_A.weight and NAME.lora_B.weight, which follow the model's own parameters. The
 * directory of the run contains base.safetensors with the initial parameters, written once. Instead of
 * model.safetensors it contains peft's files adapter_config.json and adapter_model.safetensors. The checkpoint holds
 * only trained parameters. */

/* If the settings request adapters, makes them. All other parameters are then frozen, except new parameters and
 * those that the settings train completely. If the run is resumed, reads the parameters of its base.
 * ATTN_ERROR_ARGUMENT: a setting is invalid. */
attn_status attn__run_lora_begin(attn__run *run);
void attn__run_lora_end(attn__run *run);
/* Reports whether the model's i-th parameter is stored only in base.safetensors. */
bool attn__run_lora_is_base(const attn__run *run, int64_t i);
/* If `fold` is true, merges the adapters into the weights. This is needed for passes that read weights in other ways
 * than a training step does. If `fold` is false, restores the weights. */
attn_status attn__run_lora_fold(attn__run *run, bool fold);
attn_status attn__run_lora_write_base(const attn__run *run);
/* `parameters` must have the same order as the model's parameters. */
attn_status attn__run_lora_save(const attn__run *run, const attn_named_list *parameters);

/* Averages of the weights: an exponential moving average (Polyak and Juditsky 1992), and the mean over the ends of the
 * last epochs, as Marian averages checkpoints (Junczys-Dowmunt et al. 2018). */

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
