/* SPDX-License-Identifier: MIT
 *
 * failing.h - an allocator whose N-th call fails, and which counts the blocks that are still held.
 */
#ifndef ATTN_TESTS_FAILING_H
#define ATTN_TESTS_FAILING_H

#include "attn/attn.h"

typedef struct failing {
    long calls;   /* so far */
    long fail_at; /* this call gives NULL, counted from 1; 0: none */
    long held;    /* blocks not released */
} failing;

attn_allocator failing_allocator(failing *state);

#endif
