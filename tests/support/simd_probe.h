/* SPDX-License-Identifier: MIT
 *
 * simd_probe.h - the vector operations of one instruction set as functions that a test can call.
 */
#ifndef ATTN_TESTS_SIMD_PROBE_H
#define ATTN_TESTS_SIMD_PROBE_H

#include "base/cpu.h"

#include <stdint.h>

typedef struct simd_probe {
    attn__isa isa;
    int lanes;
    void (*exp2)(const float *x, float *y, int n);                       /* n is a multiple of 16 in all functions */
    void (*power)(const float *x, float m, float *y, float *any, int n); /* computes vf_power and vf_power_any */
    void (*mul_normal)(const float *a, const float *b, float *y, int n);
    void (*to_bf16)(const float *x, uint16_t *y, int n);
    void (*from_bf16)(const uint16_t *x, float *y, int n);
    void (*transpose)(const float *x, float *y); /* `x` has `lanes` rows and `lanes` columns */
    void (*sums)(const float *x, float *y);      /* y[i] is the sum of row i of such an `x` */
    void (*copy_part)(const float *x, float *y, int n);
    void (*fold)(const float *x, float *sum, float *most);
    void (*choose)(const float *x, float *y);
    void (*hash)(const uint32_t *x, uint32_t *y);
} simd_probe;

/* A NULL-terminated list of all probes that are compiled for this architecture. The machine may not support some of
 * them. */
extern const simd_probe *const simd_probes[];

#endif
