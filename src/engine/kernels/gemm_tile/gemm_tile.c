/* SPDX-License-Identifier: MIT
 *
 * gemm_tile.c - chooses the kernel for an instruction set.
 */
#include "kernels/gemm_tile/gemm_tile.h"

#define KERNEL_TYPE    attn__gemm_tile_kernel
#define KERNEL_OF(set) attn__gemm_tile_##set
#include "simd/choice_tmpl.h"

const attn__gemm_tile_kernel *attn__gemm_tile_for(attn__isa isa)
{
    return choose(isa);
}
