/* SPDX-License-Identifier: MIT
 * Chooses the micro-kernel of the matrix product. */
#include "gemm/kernel.h"

#include "gemm/gemm.h"
#include "simd/sets.h"

#define DECLARE(NAME, set, ...)                                                                                        \
    extern const attn__gemm_kernel attn__gemm_kernel_f32_##set, attn__gemm_kernel_f64_##set,                           \
        attn__gemm_kernel_bf16_##set;                                                                                  \
    attn__gemm_round_row attn__gemm_round_row_##set;
#define KERNEL(NAME, set, type) &attn__gemm_kernel_##type##_##set,
#define ROUND(NAME, set, ...)   {ATTN_ISA_##NAME, attn__gemm_round_row_##set},
ATTN__SETS(DECLARE, )

extern const attn__gemm_kernel attn__gemm_kernel_bf16_amx, attn__gemm_kernel_int8_amx;
extern const attn__gemm_kernel attn__gemm_kernel_bf16_avx512_bf16;
extern const attn__gemm_kernel attn__gemm_kernel_int8_avx512_vnni, attn__gemm_kernel_int8_avx512;
extern const attn__gemm_kernel attn__gemm_kernel_int8_avx_vnni, attn__gemm_kernel_int8_avx2;
extern const attn__gemm_kernel attn__gemm_kernel_bf16_neon_matrix, attn__gemm_kernel_int8_neon_matrix;
extern const attn__gemm_kernel attn__gemm_kernel_int8_neon_dot, attn__gemm_kernel_int8_neon;
extern const attn__gemm_kernel attn__gemm_kernel_int8_scalar;

/* Kernels for each type, the fastest first. The last kernel of each list is plain C, which every machine runs. */
static const attn__gemm_kernel *const f32[] = {ATTN__SETS(KERNEL, f32) NULL};

static const attn__gemm_kernel *const f64[] = {ATTN__SETS(KERNEL, f64) NULL};

static const attn__gemm_kernel *const bf16[] = {
#if ATTN__COMPILES_AMX
    &attn__gemm_kernel_bf16_amx,
#endif
#if defined(__x86_64__)
    &attn__gemm_kernel_bf16_avx512_bf16,
#endif
#if ATTN__COMPILES_NEON_MATRIX
    &attn__gemm_kernel_bf16_neon_matrix,
#endif
    ATTN__SETS(KERNEL, bf16) NULL};

static const attn__gemm_kernel *const int8[] = {
#if ATTN__COMPILES_AMX
    &attn__gemm_kernel_int8_amx,
#endif
#if defined(__x86_64__)
    &attn__gemm_kernel_int8_avx512_vnni,
#if ATTN__COMPILES_AVX_VNNI
    &attn__gemm_kernel_int8_avx_vnni,
#endif
    &attn__gemm_kernel_int8_avx512,      &attn__gemm_kernel_int8_avx2,
#elif defined(__aarch64__)
#if ATTN__COMPILES_NEON_MATRIX
    &attn__gemm_kernel_int8_neon_matrix, &attn__gemm_kernel_int8_neon_dot,
#endif
    &attn__gemm_kernel_int8_neon,
#endif
    &attn__gemm_kernel_int8_scalar,      NULL};

const attn__gemm_kernel *attn__gemm_kernel_at(attn_dtype dtype, attn__isa isa, int i)
{
    const attn__gemm_kernel *const *list = dtype == ATTN_I32    ? int8
                                           : dtype == ATTN_F64  ? f64
                                           : dtype == ATTN_BF16 ? bf16
                                                                : f32;
    for (; *list; list++)
        if ((*list)->isa <= isa && attn__cpu_has((*list)->needs) && i-- == 0)
            return *list;
    return NULL;
}

attn__gemm_round_row *attn__gemm_round_row_for(attn__isa isa)
{
    static const struct {
        attn__isa isa;
        attn__gemm_round_row *run;
    } rounds[] = {ATTN__SETS(ROUND, )};
    int i = 0;
    while (rounds[i].isa > isa) /* the loop ends, because the last entry is plain C */
        i++;
    return rounds[i].run;
}

const attn__gemm_kernel *attn__gemm_kernel_for(attn_dtype dtype, attn__isa isa)
{
    const attn__gemm_kernel *kernel = NULL;
    for (int i = 0; !kernel || !attn__cpu_has(kernel->gains_by); i++)
        kernel = attn__gemm_kernel_at(dtype, isa, i); /* the last kernel is plain C and needs no feature */
    return kernel;
}
