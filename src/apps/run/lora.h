/* SPDX-License-Identifier: MIT
 *
 * lora.h - trains low-rank adapters (LoRA: Hu et al. 2021, arXiv:2106.09685) instead of the weights of a model.
 *
 * The factors of an adapter are parameters of the model, NAME.lora_A.weight and NAME.lora_B.weight, which follow the
 * model's own parameters. The directory of the run contains base.safetensors with the initial parameters. This file is
 * written once. Instead of model.safetensors the directory contains peft's files adapter_config.json and
 * adapter_model.safetensors. The checkpoint holds only trained parameters. */
#ifndef ATTN_APPS_RUN_LORA_H
#define ATTN_APPS_RUN_LORA_H

#include "apps/run/run.h"

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
/* Writes the files of the adapter. `parameters` must have the same order as the model's parameters. */
attn_status attn__run_lora_save(const attn__run *run, const attn_named_list *parameters);
/* Adds the lines about the adapters' factors to the table of fine-tuning.tsv. */
attn_status attn__run_lora_tell(const attn__run *run, attn_bytes *table);

#endif
