/* SPDX-License-Identifier: MIT */
#include "number.h"

#include <math.h>
#include <string.h>

/* Converts a number from IEEE 754's binary16, which has 5 bits of exponent and 10 bits of fraction. */
static double half_number(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double x = exponent == 31 ? (fraction ? NAN : INFINITY)
               : exponent > 0 ? ldexp(1024 + fraction, exponent - 25)
                              : ldexp(fraction, -24);
    return bits >> 15 ? -x : x;
}

static double bf16_number(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &word, sizeof x);
    return (double)x;
}

double cli_number_at(const attn_tensor *t, int64_t i)
{
    const void *data = attn_tensor_data(t);
    switch (attn_tensor_dtype(t)) {
    case ATTN_F32:
        return (double)((const float *)data)[i];
    case ATTN_F64:
        return ((const double *)data)[i];
    case ATTN_F16:
        return half_number(((const uint16_t *)data)[i]);
    case ATTN_BF16:
        return bf16_number(((const uint16_t *)data)[i]);
    case ATTN_I32:
        return ((const int32_t *)data)[i];
    case ATTN_I64:
        return (double)((const int64_t *)data)[i];
    default:
        return ((const uint8_t *)data)[i];
    }
}
