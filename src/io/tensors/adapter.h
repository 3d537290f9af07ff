/* SPDX-License-Identifier: MIT
 *
 * adapter.h - low-rank adapters (LoRA: Hu et al. 2021, arXiv:2106.09685) as peft keeps them: a directory with
 * adapter_config.json and adapter_model.safetensors, whose tensors change those of the weights that they are for.
 */
#ifndef ATTN_IO_ADAPTER_H
#define ATTN_IO_ADAPTER_H

#include "io/tensors/weights.h"

typedef struct attn__adapter {
    attn_context *context;
    attn_config *config; /* NULL: there is none */
    char *path;          /* of its tensors */
    attn__input input;   /* mapped */
} attn__adapter;

/* Whether the directory has either of the two files. */
attn_status attn__adapter_is_in(bool *is, attn_context *context, const char *directory);
/* Reads the config and maps the tensors.  To be closed in any case.  ATTN_ERROR_UNSUPPORTED: of a kind that is not
 * read. */
attn_status attn__adapter_open(attn__adapter *adapter, attn_context *context, const char *directory);
void attn__adapter_close(attn__adapter *adapter);
/* The base model that it names, a path; "" if it names none. */
const char *attn__adapter_base(const attn__adapter *adapter);
/* Changes the arrays found: weight + scale B A for each pair, and the rest of its tensors in place of those of their
 * names.  The adapter must stay open while the arrays are used.  ATTN_ERROR_FORMAT. */
attn_status attn__adapter_merge(const attn__adapter *adapter, attn__findings *findings);

/* w [out,in] += scale B [out,rank] A [rank,in]; sizes: out, in, rank. */
void attn__low_rank_add(float *w, const float *a, const float *b, const int64_t sizes[3], float scale);

#endif
