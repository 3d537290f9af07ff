/* SPDX-License-Identifier: MIT
 *
 * lora.h - training low-rank adapters (LoRA: Hu et al. 2021, arXiv:2106.09685) in place of a model's weights.
 *
 * The factors of an adapter are parameters of the model, NAME.lora_A.weight and NAME.lora_B.weight, after its own. The
 * directory then has base.safetensors with the initial parameters, written once. In place of model.safetensors it has
 * peft's files, adapter_config.json and adapter_model.safetensors. The checkpoint holds only trained parameters. */
#ifndef ATTN_APPS_RUN_LORA_H
#define ATTN_APPS_RUN_LORA_H

#include "apps/run/run.h"

/* If the settings request adapters, makes them and freezes all other parameters, except new ones and those to be
 * trained whole. A resumed run gets the parameters of its base. ATTN_ERROR_ARGUMENT: settings. */
attn_status attn__run_lora_begin(attn__run *run);
void attn__run_lora_end(attn__run *run);
/* Whether the model's i-th parameter is stored only in base.safetensors. */
bool attn__run_lora_is_base(const attn__run *run, int64_t i);
/* Merges the adapters into the weights, for passes that read weights in other ways than a training step; and restores
 * the weights. */
attn_status attn__run_lora_fold(attn__run *run, bool fold);
attn_status attn__run_lora_write_base(const attn__run *run);
/* Writes the adapter from the parameters in the list, which has the model's order. */
attn_status attn__run_lora_save(const attn__run *run, const attn_named_list *parameters);
/* Lines of fine-tuning.tsv for the factors. */
attn_status attn__run_lora_tell(const attn__run *run, attn_bytes *table);

#endif
