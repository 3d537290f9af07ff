/* SPDX-License-Identifier: MIT
 *
 * execution.h - what one execution of a plan reads and writes.
 */
#ifndef ATTN_ATTEND_EXECUTION_H
#define ATTN_ATTEND_EXECUTION_H

#include "attn/attn.h"
#include "base/rng.h"

typedef struct attn__execution {
    attn_arrays at;
    const attn__drop_rows *rows; /* the dropout rows of a batch shard; NULL: the batch is whole */
} attn__execution;

#endif
