/* SPDX-License-Identifier: MIT
 *
 * kernel_neon_matrix.c - the micro-kernels of int8 and bf16 for NEON with matrix instructions. Each instruction
 * multiplies two rows by two columns, with 8 bytes of each along k, and adds the products to 2 x 2 sums.  In a panel,
 * the 8 bytes of a row or column are contiguous, and the 8 bytes of the next row or column follow.
 */
#include "gemm/kernel.h"
#if ATTN__COMPILES_NEON_MATRIX
#include "simd/vec_neon.h"

enum { ROWS = 8, COLUMNS = 12, STEP_BYTES = 8, PAIR = 2 * STEP_BYTES };

/* Stores `sums`, up to 4 columns of one row, to C. If t->add is set, adds C to them first. */
VF_FN void store_row(const attn__gemm_tile *t, int row, int column, vi sums, vi (*add)(vi, vi))
{
    float *c = (float *)t->c + row * t->ldc + column;
    int n = t->columns - column;
    if (row >= t->rows || n <= 0)
        return;
    if (n >= VF_LANES)
        vi_store(c, t->add ? add(vi_load(c), sums) : sums);
    else
        vf_store_part(c, vf_from_bits(t->add ? add(vf_bits(vf_load_part(c, n)), sums) : sums), n);
}

VF_FN vi lower(vi a, vi b)
{
    return vcombine_s32(vget_low_s32(a), vget_low_s32(b));
}

VF_FN vi upper(vi a, vi b)
{
    return vcombine_s32(vget_high_s32(a), vget_high_s32(b));
}

/* Runs a tile of `pairs` pairs of rows over `steps` steps along k. `pairs` is a constant after inlining. */
VF_FN void tile(const attn__gemm_tile *t, int64_t steps, int pairs, vi (*multiply)(vi, vi, vi), vi (*add)(vi, vi))
{
    const char *a = t->a, *b = t->b;
    vi sum[ROWS / 2][COLUMNS / 2];
    VF_UNROLL
    for (int i = 0; i < pairs; i++) {
        VF_UNROLL
        for (int j = 0; j < COLUMNS / 2; j++)
            sum[i][j] = vi_set1(0);
    }
    for (int64_t k = 0; k < steps; k++, a += ROWS * STEP_BYTES, b += COLUMNS * STEP_BYTES) {
        vi x[ROWS / 2];
        VF_UNROLL
        for (int i = 0; i < pairs; i++)
            x[i] = vi_load(a + i * PAIR);
        VF_UNROLL
        for (int j = 0; j < COLUMNS / 2; j++) {
            vf_in_order(); /* the sums and the vectors of A leave few registers */
            vi y = vi_load(b + j * PAIR);
            VF_UNROLL
            for (int i = 0; i < pairs; i++)
                sum[i][j] = multiply(sum[i][j], x[i], y);
        }
    }
    VF_UNROLL
    for (int i = 0; i < pairs; i++) {
        VF_UNROLL
        for (int j = 0; j < COLUMNS / 2; j += 2) {
            store_row(t, 2 * i, 2 * j, lower(sum[i][j], sum[i][j + 1]), add);
            store_row(t, 2 * i + 1, 2 * j, upper(sum[i][j], sum[i][j + 1]), add);
        }
    }
}

VF_FN void tiles(const attn__gemm_tile *t, int step, vi (*multiply)(vi, vi, vi), vi (*add)(vi, vi))
{
    int64_t steps = (t->k + step - 1) / step;
    switch ((t->rows + 1) / 2) {
    case 4:
        tile(t, steps, 4, multiply, add);
        break;
    case 3:
        tile(t, steps, 3, multiply, add);
        break;
    case 2:
        tile(t, steps, 2, multiply, add);
        break;
    default:
        tile(t, steps, 1, multiply, add);
    }
}

/* `move` copies up to `step` numbers along k from x[at] on, and pads them with zeros. */
static void pack(const attn__gemm_pack *p, int64_t step,
                 void (*move)(const attn__gemm_pack *, int64_t, int64_t, void *))
{
    char *to = p->to;
    for (int64_t first = 0; first < p->n; first += p->width) {
        for (int64_t k = 0; k < p->k; k += step) {
            for (int64_t j = first; j < first + p->width; j++, to += STEP_BYTES) {
                int64_t left = p->k - k < step ? p->k - k : step;
                move(p, j * p->outer + k * p->inner, j < p->n ? left : 0, to);
            }
        }
    }
}

/* ------------------------------------------------------------------------------------------------- int8 */

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("i8mm"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+i8mm")
#endif
#define VF_REGION
VF_FN vi multiply_int8(vi sum, vi a, vi b)
{
    return vmmlaq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
}

static void run_int8(const attn__gemm_tile *t)
{
    tiles(t, STEP_BYTES, multiply_int8, vi_add);
}
#include "simd/isa_end.h"

static void move_int8(const attn__gemm_pack *p, int64_t at, int64_t n, void *to)
{
    const int8_t *x = (const int8_t *)p->x + at;
    int8_t numbers[STEP_BYTES] = {0};
    if (n == STEP_BYTES && p->inner == 1) {
        memcpy(to, x, STEP_BYTES);
        return;
    }
    for (int64_t s = 0; s < n; s++)
        numbers[s] = x[s * p->inner];
    memcpy(to, numbers, sizeof numbers);
}

static void pack_int8(const attn__gemm_pack *p)
{
    pack(p, STEP_BYTES, move_int8);
}

const attn__gemm_kernel attn__gemm_kernel_int8_neon_matrix = {.isa = ATTN_ISA_NEON,
                                                              .needs = ATTN__CPU_INT8_MATRIX,
                                                              .rows = ROWS,
                                                              .columns = COLUMNS,
                                                              .lanes = VF_LANES,
                                                              .k_step = STEP_BYTES,
                                                              .k_block = ATTN__GEMM_K,
                                                              .a_size = sizeof(int8_t),
                                                              .b_size = sizeof(int8_t),
                                                              .run = run_int8,
                                                              .pack = pack_int8};

/* ------------------------------------------------------------------------------------------------- bf16 */

enum { STEP_BF16 = STEP_BYTES / 2 };

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+bf16")
#endif
#define VF_REGION
VF_FN vi multiply_bf16(vi sum, vi a, vi b)
{
    bfloat16x8_t x = vreinterpretq_bf16_s32(a), y = vreinterpretq_bf16_s32(b);
    return vf_bits(vbfmmlaq_f32(vf_from_bits(sum), x, y));
}

VF_FN vi add_floats(vi a, vi b)
{
    return vf_bits(vf_add(vf_from_bits(a), vf_from_bits(b)));
}

static void run_bf16(const attn__gemm_tile *t)
{
    tiles(t, STEP_BF16, multiply_bf16, add_floats);
}
#include "simd/isa_end.h"

static void move_bf16(const attn__gemm_pack *p, int64_t at, int64_t n, void *to)
{
    const uint16_t *narrow = (const uint16_t *)p->x + at;
    const float *wide = (const float *)p->x + at;
    uint16_t numbers[STEP_BF16] = {0};
    if (n == STEP_BF16 && p->inner == 1 && !p->bf16) {
        vf_store_bf16(to, vf_load(wide));
        return;
    }
    for (int64_t s = 0; s < n; s++)
        if (p->bf16)
            numbers[s] = narrow[s * p->inner];
        else
            vf_store_bf16_part(numbers + s, vf_set1(wide[s * p->inner]), 1);
    memcpy(to, numbers, sizeof numbers);
}

static void pack_bf16(const attn__gemm_pack *p)
{
    pack(p, STEP_BF16, move_bf16);
}

const attn__gemm_kernel attn__gemm_kernel_bf16_neon_matrix = {.isa = ATTN_ISA_NEON,
                                                              .needs = ATTN__CPU_BF16_MATRIX,
                                                              .rows = ROWS,
                                                              .columns = COLUMNS,
                                                              .lanes = VF_LANES,
                                                              .k_step = STEP_BF16,
                                                              .k_block = ATTN__GEMM_K,
                                                              .a_size = sizeof(uint16_t),
                                                              .b_size = sizeof(uint16_t),
                                                              .run = run_bf16,
                                                              .pack = pack_bf16};
#endif
