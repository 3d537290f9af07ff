/* SPDX-License-Identifier: MIT
 *
 * Lists the probes of all instruction sets.
 */
#include "support/simd_probe.h"

#include <stddef.h>

#define ATTN__KERNEL(NAME, name) extern const simd_probe simd_probe_##name;
#include "simd/kernels.inc"
#undef ATTN__KERNEL

const simd_probe *const simd_probes[] = {
#define ATTN__KERNEL(NAME, name) &simd_probe_##name,
#include "simd/kernels.inc"
#undef ATTN__KERNEL
    NULL,
};
