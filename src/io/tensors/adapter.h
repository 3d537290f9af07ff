/* SPDX-License-Identifier: MIT
 *
 * adapter.h - low-rank adapters (LoRA: Hu et al. 2021, arXiv:2106.09685) in peft's format: a directory with
 * adapter_config.json and adapter_model.safetensors, whose tensors modify the weights of a base model. */
#ifndef ATTN_IO_ADAPTER_H
#define ATTN_IO_ADAPTER_H

#include "io/tensors/weights.h"

typedef struct attn__adapter {
    attn_context *context;
    attn_config *config; /* parsed config; NULL: no adapter */
    char *path;          /* path of its tensors */
    attn__input input;   /* mapped file */
} attn__adapter;

/* Finds out whether the directory has one of the two files. */
attn_status attn__adapter_is_in(bool *is, attn_context *context, const char *directory);
/* Reads the config and maps the tensors. Close the adapter in any case. ATTN_ERROR_UNSUPPORTED: a variant that is not
 * supported. */
attn_status attn__adapter_open(attn__adapter *adapter, attn_context *context, const char *directory);
void attn__adapter_close(attn__adapter *adapter);
/* Returns the path of the base model in the config, or "" if there is none. */
const char *attn__adapter_base(const attn__adapter *adapter);
/* Modifies the found arrays. Each pair gives weight + scale B A, and other tensors of the adapter replace the arrays of
 * the same name. The adapter must stay open while the arrays are used. ATTN_ERROR_FORMAT. */
attn_status attn__adapter_merge(const attn__adapter *adapter, attn__findings *findings);

/* Computes w [out,in] += scale B [out,rank] A [rank,in]. `sizes` are out, in and rank. */
void attn__low_rank_add(float *w, const float *a, const float *b, const int64_t sizes[3], float scale);

#endif
