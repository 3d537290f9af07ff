/* SPDX-License-Identifier: MIT
 *
 * kernel_dot_tmpl.h - the register tile for instructions that multiply groups of adjacent numbers along k and add each
 * group's dot product to a 32-bit sum. It is for int8 (kernel_int8_tmpl.h) and bf16 (kernel_bf16_avx512.c).  Include it
 * after a vec_*.h, once for each instruction.  Parameters:
 *
 *     Q(name)                names for this instruction
 *     Q_ROWS, Q_VECTORS      the register tile
 *     Q_STEP                 numbers in a group, which takes 4 bytes in A's panels
 *     Q_B_BYTES              the bytes of a group in B's panels
 *     q_load_b(b)            a group of each of VF_LANES columns of B
 *     q_dot(sum, a, i, y)    sum + the dot products of y with the group of A's row i at `a`
 *     q_add(x, y)            x + y, two vectors of sums
 *     q_excess(sum, x)       optional, if B's panels hold its numbers plus a constant: sum + the dot products of the
 *                            constant with x, the groups of A's rows, a row in each lane
 */

VF_FN void Q(store)(const attn__gemm_tile *t, int row, int column, vi sum)
{
    float *c = (float *)t->c + row * t->ldc + column;
    int n = t->columns - column;
    if (n >= VF_LANES)
        vi_store(c, t->add ? q_add(vi_load(c), sum) : sum);
    else if (n > 0)
        vf_store_part(c, vf_from_bits(t->add ? q_add(vf_bits(vf_load_part(c, n)), sum) : sum), n);
}

#ifdef q_excess
_Static_assert(Q_ROWS <= VF_LANES, "a vector holds what the sums of all rows begin with");

/* Computes the initial value of each row's sums. B's panels hold its numbers plus a constant, and the initial value
 * subtracts what the constant adds to a sum.  A panel may be read past its end (kernel.h).  Four independent chains
 * hide the instruction's latency. */
VF_FN void Q(begin)(const attn__gemm_tile *t, int32_t *rows)
{
    enum { CHAINS = 4 };
    const int8_t *a = t->a;
    const vi zero = vi_set1(0);
    vi chain[CHAINS] = {zero, zero, zero, zero};
    int64_t k = 0;
    for (; k + CHAINS * Q_STEP <= t->k; k += CHAINS * Q_STEP, a += CHAINS * 4 * Q_ROWS) {
        VF_UNROLL
        for (int i = 0; i < CHAINS; i++)
            chain[i] = q_excess(chain[i], vi_load(a + i * 4 * Q_ROWS));
    }
    for (; k < t->k; k += Q_STEP, a += 4 * Q_ROWS)
        chain[0] = q_excess(chain[0], vi_load(a));
    vi_store(rows, vi_sub(zero, vi_add(vi_add(chain[0], chain[1]), vi_add(chain[2], chain[3]))));
}
#endif

/* Adds the products of one group of k to the sums. */
VF_FN void Q(step)(const int8_t *a, const int8_t *b, int rows, vi sum[Q_ROWS][Q_VECTORS])
{
    vi y[Q_VECTORS];
    VF_UNROLL
    for (int j = 0; j < Q_VECTORS; j++)
        y[j] = q_load_b(b + j * Q_B_BYTES * VF_LANES);
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        VF_UNROLL
        for (int j = 0; j < Q_VECTORS; j++)
            sum[i][j] = q_dot(sum[i][j], a, i, y[j]);
    }
}

/* `rows` is a constant after inlining. */
VF_FN void Q(tile)(const attn__gemm_tile *t, int rows)
{
    const int8_t *a = t->a, *b = t->b;
    uintptr_t ahead = (uintptr_t)t->ahead;
    vi sum[Q_ROWS][Q_VECTORS];
    int32_t begin[Q_ROWS + VF_LANES] = {0};
#ifdef q_excess
    Q(begin)(t, begin);
#endif
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        __builtin_prefetch((int32_t *)t->c + i * t->ldc, 1);
        VF_UNROLL
        for (int j = 0; j < Q_VECTORS; j++)
            sum[i][j] = vi_set1(begin[i]);
    }
    int64_t k = t->k;
    for (; k >= ATTN__GEMM_UNROLL; k -= ATTN__GEMM_UNROLL) {
        attn__gemm_prefetch(ahead, t->ahead_step);
        ahead += (uintptr_t)t->ahead_step;
        VF_UNROLL
        for (int u = 0; u < ATTN__GEMM_UNROLL; u += Q_STEP, a += 4 * Q_ROWS, b += Q_B_BYTES * Q_VECTORS * VF_LANES)
            Q(step)(a, b, rows, sum);
    }
    for (; k > 0; k -= Q_STEP, a += 4 * Q_ROWS, b += Q_B_BYTES * Q_VECTORS * VF_LANES)
        Q(step)(a, b, rows, sum);
    VF_UNROLL
    for (int i = 0; i < rows; i++) {
        VF_UNROLL
        for (int j = 0; j < Q_VECTORS; j++)
            Q(store)(t, i, j * VF_LANES, sum[i][j]);
    }
}

static void Q(run)(const attn__gemm_tile *t)
{
#define Q_RUN(rows) Q(tile)(t, rows)
    switch (t->rows) {
        ATTN__ROWS(Q_ROWS, Q_RUN)
    }
#undef Q_RUN
}
