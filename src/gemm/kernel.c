/* SPDX-License-Identifier: MIT
 * Which micro-kernel to use. */
#include "gemm/kernel.h"

#define ATTN__KERNEL(NAME, name)                                                                                       \
    extern const attn__gemm_kernel attn__gemm_kernel_f32_##name, attn__gemm_kernel_f64_##name,                         \
        attn__gemm_kernel_bf16_##name;
#include "simd/kernels.inc"
#undef ATTN__KERNEL

extern const attn__gemm_kernel attn__gemm_kernel_bf16_amx;

typedef struct kernels_of_isa {
    const attn__gemm_kernel *f32, *f64, *bf16;
} kernels_of_isa;

static const kernels_of_isa kernels[] = {
#define ATTN__KERNEL(NAME, name)                                                                                       \
    {&attn__gemm_kernel_f32_##name, &attn__gemm_kernel_f64_##name, &attn__gemm_kernel_bf16_##name},
#include "simd/kernels.inc"
#undef ATTN__KERNEL
};

extern const attn__gemm_kernel attn__gemm_kernel_int8_scalar, attn__gemm_kernel_int8_avx2;

/* The list is sorted, best first, and ends with plain C, which any machine runs. */
const attn__gemm_kernel *attn__gemm_kernel_for(attn_dtype dtype, attn__isa isa)
{
    int i = 0;
#if ATTN__COMPILES_AMX
    if (dtype == ATTN_BF16 && isa == ATTN_ISA_AMX)
        return &attn__gemm_kernel_bf16_amx;
#endif
    if (dtype == ATTN_I32) {
#if defined(__x86_64__)
        if (isa >= ATTN_ISA_AVX2)
            return &attn__gemm_kernel_int8_avx2;
#endif
        return &attn__gemm_kernel_int8_scalar;
    }
    while (kernels[i].f32->isa > isa) /* NOLINT */
        i++;
    return dtype == ATTN_F64 ? kernels[i].f64 : dtype == ATTN_BF16 ? kernels[i].bf16 : kernels[i].f32;
}
