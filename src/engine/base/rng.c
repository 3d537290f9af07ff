/* SPDX-License-Identifier: MIT */
#include "base/rng.h"

#include <math.h>

/* Computes Philox4x32-10 of the upper bits of rng's counter. The four words of `out` are the random numbers of four
 * consecutive counter values. */
static void philox(const attn__rng *rng, uint32_t out[4])
{
    uint64_t block = rng->counter >> 2;
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32);
    uint32_t c2 = (uint32_t)rng->stream, c3 = (uint32_t)(rng->stream >> 32);
    uint32_t k0 = (uint32_t)rng->seed, k1 = (uint32_t)(rng->seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Computes each block of four once. */
static void draw(attn__rng *rng, uint32_t *out, int n)
{
    uint32_t words[4];
    for (int i = 0; i < n; i++) {
        if (i == 0 || (rng->counter & 3) == 0)
            philox(rng, words);
        out[i] = words[rng->counter++ & 3];
    }
}

uint32_t attn__rng_u32(attn__rng *rng)
{
    uint32_t word;
    draw(rng, &word, 1);
    return word;
}

static uint64_t join(const uint32_t words[2])
{
    return (uint64_t)words[0] << 32 | words[1];
}

static uint64_t next_u64(attn__rng *rng)
{
    uint32_t words[2];
    draw(rng, words, 2);
    return join(words);
}

uint64_t attn__rng_below(attn__rng *rng, uint64_t n)
{
    /* reject = 2^64 mod n; smaller draws are discarded, because they would make some results more likely than others */
    uint64_t reject = (0 - n) % n;
    uint64_t x;
    do {
        x = next_u64(rng);
    } while (x < reject);
    return x % n;
}

static double fraction(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

double attn__rng_uniform(attn__rng *rng)
{
    return fraction(next_u64(rng));
}

double attn__rng_normal(attn__rng *rng)
{
    uint32_t words[4];
    draw(rng, words, 4);
    double radius = sqrt(-2.0 * log(1.0 - fraction(join(words))));
    return radius * cos(6.283185307179586476925 * fraction(join(words + 2)));
}

void attn__rng_shuffle(attn__rng *rng, int64_t *x, int64_t n)
{
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)attn__rng_below(rng, (uint64_t)i + 1);
        int64_t swap = x[i];
        x[i] = x[j];
        x[j] = swap;
    }
}
