/* SPDX-License-Identifier: MIT
 *
 * hash.h - the hash FNV-1a of bytes (Fowler, Noll and Vo). It is fast, and the same on every machine, so stored hashes
 * and random draws stay valid everywhere. The high bits of the hash are poorly mixed. If they matter, apply attn__mix64
 * (rng.h).
 */
#ifndef ATTN_BASE_HASH_H
#define ATTN_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ATTN__HASH_BEGIN UINT64_C(0xcbf29ce484222325)
#define ATTN__HASH_PRIME UINT64_C(0x100000001b3)

static inline uint64_t attn__hash_bytes(uint64_t hash, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ at[i]) * ATTN__HASH_PRIME;
    return hash;
}

static inline uint64_t attn__hash_text(uint64_t hash, const char *text)
{
    return attn__hash_bytes(hash, text, strlen(text));
}

#endif
