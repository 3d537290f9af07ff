/* SPDX-License-Identifier: MIT
 *
 * wide_head_product.c - a product larger than the first cache, in portions with prefetching between them.
 */
#include "attend/solve/wide_head.h"

#include "base/integers.h"

enum {
    STRIP = 4,   /* vectors, and ... */
    DEPTH = 128, /* ... the summands of which the first cache holds b while ... */
    TILE = 6     /* ... rows of such a strip's register tile, at least */
};

int64_t attn__wide_head_portions(const attn__gemm_tile_kernel *tile, int64_t m, int64_t n, int64_t k)
{
    int64_t count = attn__pieces(m, TILE) * attn__pieces(n, STRIP * tile->lanes) * attn__pieces(k, DEPTH);
    return count > 0 ? count : 1;
}

void attn__wide_head_multiply(const attn__gemm_tile_kernel *tile, const attn__gemm_tile_args *whole,
                              attn__prefetch *prefetch)
{
    int64_t strip = STRIP * tile->lanes;
    attn__gemm_tile_args part = *whole;
    part.hook = (attn__tile_hook){attn__prefetch_portion, prefetch};
    for (int64_t n = 0; n < whole->n; n += strip) {
        part.n = attn__least(whole->n - n, strip);
        for (int64_t k = 0; k < whole->k; k += DEPTH) {
            part.k = attn__least(whole->k - k, DEPTH);
            part.b = whole->b + k * whole->ldb + n;
            part.accumulate = whole->accumulate || k > 0;
            part.a = whole->a + k * whole->ak;
            part.c = whole->c + n;
            tile->run(&part);
        }
    }
}
