/* SPDX-License-Identifier: MIT
 *
 * depthwise_tmpl.h - the kernels of depthwise.h for one instruction set.
 */

enum { DEPTHWISE_VECTORS = 4, DEPTHWISE_STEP = DEPTHWISE_VECTORS * VF_LANES, DEPTHWISE_TAPS = 8, DEPTHWISE_RUN = 4096 };
_Static_assert(ATTN__DEPTHWISE_BLOCK % DEPTHWISE_STEP == 0, "blocks are whole steps");

static void depthwise_correlate(const float *x, const int64_t *offset, const float *w, int64_t taps, int64_t n,
                                float *y)
{
    for (int64_t i = 0; i < n; i += DEPTHWISE_STEP) {
        vf sum[DEPTHWISE_VECTORS];
        VF_UNROLL
        for (int v = 0; v < DEPTHWISE_VECTORS; v++)
            sum[v] = vf_zero();
        for (int64_t t = 0; t < taps; t++) {
            const float *from = x + i + offset[t];
            vf weight = vf_set1(w[t]);
            VF_UNROLL
            for (int v = 0; v < DEPTHWISE_VECTORS; v++)
                sum[v] = vf_fma(weight, vf_load(from + v * VF_LANES), sum[v]);
        }
        VF_UNROLL
        for (int v = 0; v < DEPTHWISE_VECTORS; v++)
            vf_store(y + i + v * VF_LANES, sum[v]);
    }
}

/* Adds the sums of `taps` taps. `taps` is a constant after inlining. Each tap has its own chain of multiply-adds, so
 * that taps do not wait for each other. */
VF_FN void depthwise_dot(const float *x, const int64_t *offset, const float *y, int taps, int64_t n, double *sums)
{
    vf sum[DEPTHWISE_TAPS];
    const float *from[DEPTHWISE_TAPS];
    VF_UNROLL
    for (int t = 0; t < taps; t++) {
        sum[t] = vf_zero();
        from[t] = x + offset[t];
    }
    for (int64_t i = 0; i < n; i += VF_LANES) {
        vf gradient = vf_load(y + i);
        VF_UNROLL
        for (int t = 0; t < taps; t++)
            sum[t] = vf_fma(gradient, vf_load(from[t] + i), sum[t]);
    }
    VF_UNROLL
    for (int t = 0; t < taps; t++)
        sums[t] += (double)vf_sum(sum[t]);
}

static void depthwise_dots(const float *x, const int64_t *offset, const float *y, int64_t taps, int64_t n, double *sums)
{
    for (int64_t i = 0; i < n; i += DEPTHWISE_RUN) {
        int64_t part = n - i < DEPTHWISE_RUN ? n - i : DEPTHWISE_RUN, t = 0;
        for (; t + DEPTHWISE_TAPS <= taps; t += DEPTHWISE_TAPS)
            depthwise_dot(x + i, offset + t, y + i, DEPTHWISE_TAPS, part, sums + t);
        for (; t < taps; t++)
            depthwise_dot(x + i, offset + t, y + i, 1, part, sums + t);
    }
}

const attn__depthwise_kernel VF_NAME(attn__depthwise) = {VF_ISA, depthwise_correlate, depthwise_dots};
