/* SPDX-License-Identifier: MIT
 *
 * gemm_tile_packed_tmpl.h - the tile product on packed operands, for gemm_tile_tmpl.h.
 *
 * To accumulate, it adds C to the finished sums. Reading C first would delay the first multiply-adds if C is not in the
 * L1 cache.
 *
 * Every address is one of three pointers plus a constant, so that their setup takes 8 cycles. The general kernel has a
 * pointer for each row. On AVX-512, setting up these pointers takes 20 to 40 of the 800 cycles of a tile.
 */
enum {
    LARGER = VF_LANES > GEMM_TILE_ROWS ? VF_LANES : GEMM_TILE_ROWS,
    GROUP = LARGER % VF_LANES == 0 && LARGER % GEMM_TILE_ROWS == 0 ? LARGER : 3 * VF_LANES
};
_Static_assert(GROUP % VF_LANES == 0 && GROUP % GEMM_TILE_ROWS == 0, "a group is whole tiles and whole vectors");

VF_FN void packed_step(vf sum[GEMM_TILE_ROWS][WIDE], const float *a, const float *b, int rows, int vectors)
{
    vf lanes[WIDE];
    VF_UNROLL
    for (int n = 0; n < vectors; n++)
        lanes[n] = vf_load(b + n * VF_LANES);
    VF_UNROLL
    for (int m = 0; m < rows; m++) {
        vf x = vf_set1(a[m]);
        VF_UNROLL
        for (int n = 0; n < vectors; n++)
            sum[m][n] = vf_fma(x, lanes[n], sum[m][n]);
    }
}

VF_FN void packed_block(const attn__gemm_tile_packed_args *t, const float *a, float *c, int rows, int vectors)
{
    vf sum[GEMM_TILE_ROWS][WIDE];
    const float *b = t->b;
    int64_t ak = t->ak;
    VF_UNROLL
    for (int m = 0; m < rows; m++) {
        VF_UNROLL
        for (int n = 0; n < vectors; n++)
            sum[m][n] = vf_zero();
    }
    for (int64_t k = t->k; k > 0; k--) {
        packed_step(sum, a, b, rows, vectors);
        a += ak;
        b += vectors * VF_LANES;
    }
    if (t->accumulate) {
        VF_UNROLL
        for (int m = 0; m < rows; m++) {
            VF_UNROLL
            for (int n = 0; n < vectors; n++)
                sum[m][n] = vf_add(sum[m][n], vf_load(c + (m * vectors + n) * VF_LANES));
        }
    }
    VF_UNROLL
    for (int m = 0; m < rows; m++) {
        VF_UNROLL
        for (int n = 0; n < vectors; n++)
            vf_store(c + (m * vectors + n) * VF_LANES, sum[m][n]);
    }
}

VF_FN void packed_strip(const attn__gemm_tile_packed_args *t, int height, int vectors)
{
    int64_t m = 0;
    for (; m + height <= t->m; m += height) {
        packed_block(t, t->a + m / GROUP * t->group + m % GROUP, t->c + m * vectors * VF_LANES, height, vectors);
        attn__tile_hook_run(t->hook);
    }
    const float *a = t->a + m / GROUP * t->group + m % GROUP;
    float *c = t->c + m * vectors * VF_LANES;
    if (m == t->m)
        return;
#define RUN(rows) packed_block(t, a, c, rows, vectors)
    switch (t->m - m) {
        ATTN__ROWS(GEMM_TILE_REST, RUN)
    }
#undef RUN
    attn__tile_hook_run(t->hook);
}

static void run_packed(const attn__gemm_tile_packed_args *t)
{
    switch (t->vectors) {
#if VF_REGISTERS >= 32
    case 4:
        packed_strip(t, WIDE_ROWS, 4);
        break;
#endif
#if VF_REGISTERS >= 32
    case 3:
        packed_strip(t, GEMM_TILE_ROWS, 3);
        break;
#endif
    case 2:
        packed_strip(t, GEMM_TILE_ROWS, 2);
        break;
    case 1:
        packed_strip(t, GEMM_TILE_ROWS, 1);
        break;
    default:
        break;
    }
}
