/* SPDX-License-Identifier: MIT
 *
 * bf16.h - converts between f32 and bf16, which is the upper half of an f32.
 */
#ifndef ATTN_BASE_BF16_H
#define ATTN_BASE_BF16_H

#include <stdint.h>
#include <string.h>

static inline float attn__from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

static inline void attn__widen_bf16(float *to, const uint16_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = attn__from_bf16(x[i]);
}

/* Rounds x to the nearest bf16 number, ties to even. A NaN remains a NaN. */
static inline uint16_t attn__to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
