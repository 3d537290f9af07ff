/* SPDX-License-Identifier: MIT
 *
 * kernel_int8_tmpl.h - kernel.h for int8 with sums in int32, for one instruction. Include it after a vec_*.h, once for
 * each instruction.  The sums are exact, so all instructions give the same bits.  Parameters, which are undefined at
 * the end: those of kernel_dot_tmpl.h except Q_B_BYTES and q_add, and
 *
 *     Q_KERNEL                 name of the kernel
 *     Q_NEEDS                  features that the processor needs in addition to the instruction set
 *     q_move_a(x), q_move_b(x) VF_LANES steps of a row or column of the matrix, as panels of A and of B hold them
 *     q_store_b(b, y)          stores a group of each of VF_LANES columns to B's panel
 */
#define Q_B_BYTES Q_STEP
#define q_add     vi_add
#include "gemm/kernel_dot_tmpl.h"

/* Packs a square of up to VF_LANES rows or columns by VF_LANES steps along k. The rows or columns are `apart` bytes
 * apart. The square is transposed, and its first `steps` steps are stored to the panel. */
VF_FN void Q(pack_square)(const attn__gemm_pack *p, const int8_t *x, int64_t apart, int64_t n, int64_t steps,
                          int8_t *to)
{
    vf r[VF_LANES];
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++)
        r[i] = vf_from_bits(i >= n ? vi_set1(0) : p->is_b ? q_move_b(x + i * apart) : q_move_a(x + i * apart));
    vf_transpose(r);
    VF_UNROLL
    for (int i = 0; i < VF_LANES; i++)
        if (i < steps && p->is_b)
            q_store_b(to + i * p->width * Q_STEP, vf_bits(r[i]));
        else if (i < steps)
            vi_store(to + i * p->width * 4, vf_bits(r[i]));
}

/* Copies a square that is not contiguous or not whole. Missing numbers become zeros. */
static void Q(gather_square)(const attn__gemm_pack *p, const int8_t *x, int64_t n, int64_t k, int8_t *to)
{
    enum { RUN = Q_STEP * VF_LANES };
    for (int64_t i = 0; i < VF_LANES; i++, x += p->outer)
        for (int64_t s = 0; s < RUN; s++)
            *to++ = (int8_t)(i < n && s < k ? x[s * p->inner] : 0);
}

/* It may write past the end of A's panels (kernel.h). */
static void Q(pack)(const attn__gemm_pack *p)
{
    enum { RUN = Q_STEP * VF_LANES };
    const int64_t steps = (p->k + Q_STEP - 1) / Q_STEP, bytes = p->is_b ? Q_STEP : 4;
    int8_t *to = p->to;
    for (int64_t first = 0; first < p->n; first += p->width) {
        for (int64_t k = 0; k < p->k; k += RUN, to += RUN / Q_STEP * p->width * bytes) {
            bool whole = p->inner == 1 && p->k - k >= RUN;
            int64_t left = whole ? VF_LANES : steps - k / Q_STEP;
            for (int64_t j = 0; j < p->width; j += VF_LANES) {
                const int8_t *x = (const int8_t *)p->x + (first + j) * p->outer + k * p->inner;
                int64_t n = p->n - first - j;
                int8_t square[VF_LANES * RUN];
                if (!whole)
                    Q(gather_square)(p, x, n, p->k - k, square);
                Q(pack_square)(p, whole ? x : square, whole ? p->outer : RUN, n, left, to + j * bytes);
            }
        }
        to = (int8_t *)p->to + (first / p->width + 1) * steps * p->width * bytes;
    }
}

#ifdef q_excess
#define Q_ADDS_128 true
#else
#define Q_ADDS_128 false
#endif
const attn__gemm_kernel Q_KERNEL = {.isa = VF_ISA,
                                    .needs = Q_NEEDS,
                                    .rows = Q_ROWS,
                                    .columns = Q_VECTORS * VF_LANES,
                                    .lanes = VF_LANES,
                                    .k_step = Q_STEP,
                                    .adds_128 = Q_ADDS_128,
                                    .k_block = 1024,
                                    .a_size = 4 / Q_STEP,
                                    .b_size = sizeof(int8_t),
                                    .run = Q(run),
                                    .pack = Q(pack)};

#undef Q
#undef Q_KERNEL
#undef Q_ADDS_128
#undef Q_NEEDS
#undef Q_ROWS
#undef Q_VECTORS
#undef Q_STEP
#undef Q_B_BYTES
#undef q_load_b
#undef q_dot
#undef q_add
#undef q_move_a
#undef q_move_b
#undef q_store_b
#undef q_excess
