/* SPDX-License-Identifier: MIT
 *
 * kernel_types.h - the micro-kernels of float and double for the instruction set whose vec_*.h was included before.
 */
#include "simd/vec_f64.h"

#if VF_REGISTERS >= 32 && VF_LANES > 4
#define GK_ROWS    12
#define GK_VECTORS 2
#elif VF_REGISTERS >= 32
#define GK_ROWS    8
#define GK_VECTORS 3
#elif VF_LANES > 4
#define GK_ROWS    6
#define GK_VECTORS 2
#else
#define GK_ROWS    4
#define GK_VECTORS 2
#endif

/* Computes sum += x * y in inline assembly.  In an unrolled loop, gcc would copy sums between registers. The tile needs
 * all 16 registers of AVX2, so gcc would spill a sum to memory. The assembly keeps each sum in one register. */
#if defined(__AVX2__) && VF_REGISTERS < 32
#define GK_ADD_PRODUCT(type, sum, x, y) __asm__("vfmadd231" type " %2, %1, %0" : "+x"(sum) : "x"(x), "x"(y))
#else
#define GK_ADD_PRODUCT(type, sum, x, y) sum = gv_fma(x, y, sum)
#endif

#define GK_REAL   float
#define GK(name)  name##_f32
#define GK_KERNEL VF_NAME(attn__gemm_kernel_f32)
#define GK_HAS_BF16
#define gv                        vf
#define GV_LANES                  VF_LANES
#define gv_load                   vf_load
#define gv_store                  vf_store
#define gv_load_part              vf_load_part
#define gv_store_part             vf_store_part
#define gv_set1                   vf_set1
#define gv_zero                   vf_zero
#define gv_add                    vf_add
#define gv_fma                    vf_fma
#define GV_ADD_PRODUCT(sum, x, y) GK_ADD_PRODUCT("ps", sum, x, y)
#define GV_TRANSPOSE              vf_transpose
#include "gemm/kernel_tmpl.h"

#undef GK_REAL
#undef GK
#undef GK_KERNEL
#undef GK_HAS_BF16
#undef gv
#undef GV_LANES
#undef gv_load
#undef gv_store
#undef gv_load_part
#undef gv_store_part
#undef gv_set1
#undef gv_zero
#undef gv_add
#undef gv_fma
#undef GV_ADD_PRODUCT
#undef GV_TRANSPOSE

#define GK_REAL                   double
#define GK(name)                  name##_f64
#define GK_KERNEL                 VF_NAME(attn__gemm_kernel_f64)
#define gv                        vd
#define GV_LANES                  VD_LANES
#define gv_load                   vd_load
#define gv_store                  vd_store
#define gv_load_part              vd_load_part
#define gv_store_part             vd_store_part
#define gv_set1                   vd_set1
#define gv_zero                   vd_zero
#define gv_add                    vd_add
#define gv_fma                    vd_fma
#define GV_ADD_PRODUCT(sum, x, y) GK_ADD_PRODUCT("pd", sum, x, y)
#include "gemm/kernel_tmpl.h"
