/* SPDX-License-Identifier: MIT
 *
 * rng.h - counter-based random numbers. Number n of a stream is a function of only (seed, stream, n). Therefore tiles,
 * threads, backward passes and resumed runs can all compute the same numbers.
 *
 * Initialization and shuffles use Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
 * Dropout uses a cheaper 32-bit hash, because it needs one number per element.
 */
#ifndef ATTN_BASE_RNG_H
#define ATTN_BASE_RNG_H

#include "attn/attn.h"

#include <stdint.h>

typedef struct attn__rng {
    uint64_t seed, stream;
    uint64_t counter;
} attn__rng;

uint32_t attn__rng_u32(attn__rng *rng);
uint64_t attn__rng_below(attn__rng *rng, uint64_t n); /* uniform in [0, n), n >= 1, without bias */
double attn__rng_uniform(attn__rng *rng);             /* uniform in [0, 1), with 53 bits */
/* normal with mean 0 and variance 1 (Box-Muller, one number per call) */
double attn__rng_normal(attn__rng *rng);
void attn__rng_shuffle(attn__rng *rng, int64_t *x, int64_t n);

/* Mixes the bits of x, so that every output bit depends on every input bit (SplitMix64's finalizer, Steele et al.
 * 2014). */
static inline uint64_t attn__mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Returns the key of a row for dropout. attn__dropout_bits computes an element's random bits from its row's key and its
 * column (modulo 2^32). The element is dropped if the bits are below attn__dropout_threshold(p). */
static inline uint64_t attn__dropout_key(uint64_t seed, uint64_t stream, uint64_t row)
{
    return attn__mix64(attn__mix64(attn__mix64(seed) ^ stream) ^ row);
}

/* Maps row r of a shard to row r + first + r / block * skip of the whole batch, for dropout. Each shard then drops the
 * elements that the whole batch would drop. If block is 0, r is not changed. */
typedef struct attn__drop_rows {
    int64_t first, block, skip;
} attn__drop_rows;

static inline uint64_t attn__drop_row(const attn__drop_rows *rows, uint64_t row)
{
    if (!rows || rows->block <= 0)
        return row;
    return row + (uint64_t)rows->first + row / (uint64_t)rows->block * (uint64_t)rows->skip;
}

/* Returns random bits for an element. The hash has two rounds of multiply and shift, with the constants of the integer
 * hash "lowbias32". Half of the key is added before each round. All operations are on 32-bit integers, which every
 * vector unit supports. */
static inline uint32_t attn__dropout_bits(uint64_t key, uint32_t column)
{
    uint32_t x = column ^ (uint32_t)key;
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x ^= (uint32_t)(key >> 32);
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    return x ^ (x >> 16);
}

static inline uint32_t attn__dropout_threshold(double p)
{
    double t = p * 4294967296.0;
    return t >= 4294967295.0 ? 4294967295u : (uint32_t)t;
}

#endif
