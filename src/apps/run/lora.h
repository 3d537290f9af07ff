/* SPDX-License-Identifier: MIT
 *
 * lora.h - trains low-rank adapters (LoRA: Hu et al. 2021, arXiv:2106.09685) in place of a model's weights.
 *
 * The factors of an adapter are parameters of the model, NAME.lora_A.weight and NAME.lora_B.weight, which follow the
 * model's own parameters. The directory then has base.safetensors with the initial parameters, which is written once.
 * In place of model.safetensors the directory has peft's files, adapter_config.json and adapter_model.safetensors. The
 * checkpoint holds only trained parameters. */
#ifndef ATTN_APPS_RUN_LORA_H
#define ATTN_APPS_RUN_LORA_H

#include "apps/run/run.h"

/* Makes the adapters if the settings request them. All other parameters are frozen, except new parameters and those
 * that the settings train whole. A resumed run gets the parameters of its base. ATTN_ERROR_ARGUMENT: a setting is
 * invalid. */
attn_status attn__run_lora_begin(attn__run *run);
void attn__run_lora_end(attn__run *run);
/* Reports whether the model's i-th parameter is stored only in base.safetensors. */
bool attn__run_lora_is_base(const attn__run *run, int64_t i);
/* With `fold`, merges the adapters into the weights, for passes that read weights in other ways than a training
 * step. Otherwise it restores the weights. */
attn_status attn__run_lora_fold(attn__run *run, bool fold);
attn_status attn__run_lora_write_base(const attn__run *run);
/* Writes the adapter's files. `parameters` has the same order as the model's parameters. */
attn_status attn__run_lora_save(const attn__run *run, const attn_named_list *parameters);
/* Adds the lines of fine-tuning.tsv for the adapters' factors. */
attn_status attn__run_lora_tell(const attn__run *run, attn_bytes *table);

#endif
