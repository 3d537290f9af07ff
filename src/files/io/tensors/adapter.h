/* SPDX-License-Identifier: MIT
 *
 * adapter.h - low-rank adapters (LoRA: Hu et al. 2021, arXiv:2106.09685) in peft's format: a directory with
 * adapter_config.json and adapter_model.safetensors, whose tensors modify the weights of a base model. */
#ifndef ATTN_IO_ADAPTER_H
#define ATTN_IO_ADAPTER_H

#include "io/tensors/weights.h"

typedef struct attn__adapter {
    attn_context *context;
    attn_config *config; /* the parsed config; NULL: there is no adapter */
    char *path;
    attn__input input; /* mapped file */
} attn__adapter;

/* Reports whether the directory has adapter_config.json or adapter_model.safetensors. */
bool attn__adapter_is_in(const char *directory);
/* Reads the config of an adapter and maps its tensors into memory. The adapter must be closed even if this fails.
 * ATTN_ERROR_UNSUPPORTED: this variant of adapters is not supported. */
attn_status attn__adapter_open(attn__adapter *adapter, attn_context *context, const char *directory);
void attn__adapter_close(attn__adapter *adapter);
/* Returns the path of the base model that the adapter's config names, or "" if it names none. */
const char *attn__adapter_base(const attn__adapter *adapter);
/* If the adapter has factors A and B for an array, the array becomes weight + scale B A. Other tensors of the adapter
 * replace the arrays with the same name. The adapter must stay open while the arrays are used. May return
 * ATTN_ERROR_FORMAT. */
attn_status attn__adapter_merge(const attn__adapter *adapter, attn__findings *findings);

/* Computes w [out,in] += scale B [out,rank] A [rank,in]. `sizes` holds out, in and rank. */
void attn__low_rank_add(float *w, const float *a, const float *b, const int64_t sizes[3], float scale);

#endif
