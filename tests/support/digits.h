/* SPDX-License-Identifier: MIT
 *
 * digits.h - what the tests of kernels/digits share.
 */
#ifndef ATTN_TESTS_SUPPORT_DIGITS_H
#define ATTN_TESTS_SUPPORT_DIGITS_H

#include "support/cmocka.h"

#include "kernels/digits/digits.h"
#include "support/guard.h"

enum { SIDE = ATTN__DIGITS_SIDE, DEPTH = ATTN__DIGITS_DEPTH, TILE = ATTN__DIGITS_TILE, STEP = ATTN__DIGITS_STEP };

static inline const attn__digits_kernel *kernel_or_skip(void)
{
    const attn__digits_kernel *kernel = attn__digits_for(ATTN_ISA_AMX);
    if (!kernel || !attn__isa_runs_here(ATTN_ISA_AMX)) {
        print_message("this machine has no matrix unit\n");
        skip();
    }
    return kernel;
}

/* Ends at a guard page. */
static inline float *floats(int64_t n)
{
    return guard_alloc((size_t)n * sizeof(float));
}

static inline void free_floats(float *x, int64_t n)
{
    guard_free(x, (size_t)n * sizeof(float));
}

#endif
