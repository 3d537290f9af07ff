/* SPDX-License-Identifier: MIT
 *
 * products.c - single products of src/gemm for bench/peers/products.py, which compiles this file with build/libattn.a
 * as a shared library: f32 C[m,n] = op(A) op(B) with rows packed one behind the other. */
#include "base/integers.h"
#include "gemm/gemm.h"

#include <stdlib.h>

/* 0, or 1 without memory. */
int product(int isa, int threads, int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k, const float *a,
            const float *b, float *c);

int product(int isa, int threads, int transpose_a, int transpose_b, int64_t m, int64_t n, int64_t k, const float *a,
            const float *b, float *c)
{
    enum { ALIGNMENT = 64 };
    static void *workspace;
    static size_t room;
    attn__gemm_plan plan;
    const attn__gemm_problem problem = {.dtype = ATTN_F32,
                                        .m = m,
                                        .n = n,
                                        .k = k,
                                        .a = attn__matrix(a, transpose_a ? 1 : k, transpose_a ? m : 1),
                                        .b = attn__matrix(b, transpose_b ? k : 1, transpose_b ? 1 : n),
                                        .c = c,
                                        .ldc = n};
    attn__gemm_plan_make(&plan, &problem, (attn__isa)isa, threads);
    size_t wanted = attn__gemm_workspace(&plan);
    if (wanted > room) {
        free(workspace);
        room = (size_t)attn__round_up((int64_t)wanted, ALIGNMENT);
        workspace = aligned_alloc(ALIGNMENT, room);
        if (!workspace)
            return room = 0, 1;
    }
    attn__gemm_run(&plan, workspace);
    return 0;
}
