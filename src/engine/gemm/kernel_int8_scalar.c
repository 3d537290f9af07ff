/* SPDX-License-Identifier: MIT
 *
 * kernel_int8_scalar.c - the micro-kernel of kernel_int8_tmpl.h in plain C.
 */
#include "gemm/kernel.h"
#include "simd/vec_scalar.h"

VF_FN vi dot(vi sum, const int8_t *a, vi y)
{
    int8_t b[4 * VF_LANES];
    vi_store(b, y);
    for (int j = 0; j < VF_LANES; j++)
        sum[j] += a[0] * b[4 * j] + a[1] * b[4 * j + 1] + a[2] * b[4 * j + 2] + a[3] * b[4 * j + 3];
    return sum;
}
#define Q(name)             name##_scalar
#define Q_KERNEL            attn__gemm_kernel_int8_scalar
#define Q_NEEDS             ATTN__CPU_ANY
#define Q_ROWS              4
#define Q_VECTORS           2
#define Q_STEP              4
#define q_load_b            vi_load
#define q_dot(sum, a, i, y) dot(sum, a + 4 * (i), y)
#define q_move_a            vi_load
#define q_move_b            vi_load
#define q_store_b           vi_store
#include "gemm/kernel_int8_tmpl.h"
