/* SPDX-License-Identifier: MIT
 *
 * gemm_tile_tmpl.h - the f32 micro-kernel for one instruction set; see gemm_tile.h.
 *
 * The register tile has GEMM_TILE_ROWS x GEMM_TILE_VECTORS accumulators, one row of b and one broadcast of a. These
 * take 24 + 3 + 1 of 32 registers, or 12 + 2 + 1 of 16.  A step of k loads a row of b and a column of a (rows + vectors
 * loads) for rows * vectors multiply-adds.  The tile has more independent sums than the latency of the FMA units needs.
 * 4 x 3 sums would take all 16 registers: gcc would load b anew for each row, and the loads would take longer than the
 * multiply-adds.
 */
#undef GEMM_TILE_REST /* the most rows that whole tiles leave */
#if VF_REGISTERS >= 32
#define GEMM_TILE_REST 7
enum {
    GEMM_TILE_ROWS = 8,
    GEMM_TILE_VECTORS = 3,
    WIDE = 4,
    WIDE_ROWS = 6
}; /* WIDE is 4, so that 64 columns, a common head size, are one strip */
#elif VF_LANES > 4
#define GEMM_TILE_REST 5
enum { GEMM_TILE_ROWS = 6, GEMM_TILE_VECTORS = 2, WIDE = GEMM_TILE_VECTORS, WIDE_ROWS = GEMM_TILE_ROWS };
#else
#define GEMM_TILE_REST 3
enum {
    GEMM_TILE_ROWS = 4,
    GEMM_TILE_VECTORS = 2,
    WIDE = GEMM_TILE_VECTORS,
    WIDE_ROWS = GEMM_TILE_ROWS
}; /* only 4 rows, because a product needs a register until it is added */
#endif

/* The layout of A: k is adjacent, rows are adjacent, or neither is. It is known at compile time, so that addresses are
 * constants. */
enum layout { ALONG_K, ALONG_M, STRIDED };

VF_FN float element(const float *const row[], const attn__gemm_tile_args *t, const float *a, int64_t k, int m,
                    enum layout layout)
{
    if (layout == ALONG_K)
        return row[m][k];
    if (layout == ALONG_M)
        return a[m];
    return row[m][k * t->ak];
}

/* Adds the product of column k of A and row k of B to the sums. b is the address of row k. */
VF_FN void step(const attn__gemm_tile_args *t, vf sum[GEMM_TILE_ROWS][WIDE], const float *const row[], const float *a,
                const float *b, int64_t k, int rows, int vectors, enum layout layout)
{
    vf lanes[WIDE];
    VF_UNROLL
    for (int n = 0; n < vectors; n++)
        lanes[n] = vf_load(b + n * VF_LANES);
    VF_UNROLL
    for (int m = 0; m < rows; m++) {
        vf_in_order();
        vf x = vf_set1(element(row, t, a, k, m, layout));
        VF_UNROLL
        for (int n = 0; n < vectors; n++)
            sum[m][n] = vf_fma(x, lanes[n], sum[m][n]);
    }
}

/* Raises each element of `top` to the maximum of its column of sums. This takes no extra time, because it overlaps with
 * the multiply-adds of the next tile. */
VF_FN void raise_top(float *top, vf sum[GEMM_TILE_ROWS][WIDE], int rows, int vectors)
{
    VF_UNROLL
    for (int n = 0; n < vectors; n++) {
        vf most = vf_load(top + n * VF_LANES);
        VF_UNROLL
        for (int m = 0; m < rows; m++)
            most = vf_max(sum[m][n], most);
        vf_store(top + n * VF_LANES, most);
    }
}

/* Computes one register tile of `rows` x `vectors`, both constants after inlining. */
VF_FN void block(const attn__gemm_tile_args *t, const float *a, const float *b, float *c, float *top, int rows,
                 int vectors, enum layout layout)
{
    vf sum[GEMM_TILE_ROWS][WIDE];
    const float *row[GEMM_TILE_ROWS];
    int64_t forward = layout == ALONG_M ? t->ak : 0; /* 0 for other layouts, for which `element` adds k */
    VF_UNROLL
    for (int m = 0; m < rows; m++) {
        row[m] = a + m * t->am;
        VF_UNROLL
        for (int n = 0; n < vectors; n++)
            sum[m][n] = vf_zero();
    }
    int64_t k = 0;
    for (; k + 2 <= t->k; k += 2) { /* two steps per iteration, to halve the branches and improve their prediction */
        step(t, sum, row, a, b, k, rows, vectors, layout);
        step(t, sum, row, a + forward, b + t->ldb, k + 1, rows, vectors, layout);
        a += 2 * forward;
        b += 2 * t->ldb;
    }
    if (k < t->k)
        step(t, sum, row, a, b, k, rows, vectors, layout);
    if (t->accumulate) { /* reads C last, because C may not be in the L1 cache */
        VF_UNROLL
        for (int m = 0; m < rows; m++) {
            VF_UNROLL
            for (int n = 0; n < vectors; n++)
                sum[m][n] = vf_add(sum[m][n], vf_load(c + m * t->ldc + n * VF_LANES));
        }
    }
    if (top)
        raise_top(top, sum, rows, vectors);
    VF_UNROLL
    for (int m = 0; m < rows; m++) {
        VF_UNROLL
        for (int n = 0; n < vectors; n++)
            vf_store(c + m * t->ldc + n * VF_LANES, sum[m][n]);
    }
}

VF_FN void block_layout(const attn__gemm_tile_args *t, const float *a, const float *b, float *c, float *top, int rows,
                        int vectors)
{
    if (t->am == 1)
        block(t, a, b, c, top, rows, vectors, ALONG_M);
    else if (t->ak == 1)
        block(t, a, b, c, top, rows, vectors, ALONG_K);
    else
        block(t, a, b, c, top, rows, vectors, STRIDED);
}

/* Computes all rows of one strip of `vectors` vectors: first whole tiles, then the remaining rows. */
VF_FN void strip(const attn__gemm_tile_args *t, int64_t n, int height, int vectors)
{
    int64_t m = 0;
    const float *a = t->a, *b = t->b + n;
    float *c = t->c + n, *top = t->top ? t->top + n : NULL;
    for (; m + height <= t->m; m += height) {
        block_layout(t, a + m * t->am, b, c + m * t->ldc, top, height, vectors);
        attn__tile_hook_run(t->hook);
    }
    a += m * t->am;
    c += m * t->ldc;
    if (m == t->m)
        return;
#define RUN(rows) block_layout(t, a, b, c, top, rows, vectors)
    switch (t->m - m) {
        ATTN__ROWS(GEMM_TILE_REST, RUN)
    }
#undef RUN
    attn__tile_hook_run(t->hook);
}

/* Returns the number of vectors of the next strip, when `left` vectors are left. No strip has a single vector if that
 * can be avoided. */
VF_FN int64_t next_strip(int64_t left)
{
    if (left % GEMM_TILE_VECTORS == 0 || left == 5)
        return GEMM_TILE_VECTORS;
    return left > WIDE ? WIDE : left;
}

static void gemm_tile_run(const attn__gemm_tile_args *t)
{
    for (int64_t left = t->n / VF_LANES, n = 0; left > 0;) {
        int64_t vectors = next_strip(left);
        if (vectors == GEMM_TILE_VECTORS)
            strip(t, n, GEMM_TILE_ROWS, GEMM_TILE_VECTORS);
        else if (vectors == WIDE)
            strip(t, n, WIDE_ROWS, WIDE);
        else if (vectors == 2)
            strip(t, n, GEMM_TILE_ROWS, 2);
        else
            strip(t, n, GEMM_TILE_ROWS, 1);
        n += vectors * VF_LANES;
        left -= vectors;
    }
}

#include "kernels/gemm_tile/gemm_tile_packed_tmpl.h"

const attn__gemm_tile_kernel VF_NAME(attn__gemm_tile) = {VF_ISA,         VF_LANES, GEMM_TILE_VECTORS, WIDE,
                                                         GEMM_TILE_ROWS, GROUP,    gemm_tile_run,     run_packed};
