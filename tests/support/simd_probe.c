/* SPDX-License-Identifier: MIT
 *
 * Lists the probes of all instruction sets.
 */
#include "support/simd_probe.h"

#include "simd/sets.h"

#include <stddef.h>

#define DECLARE(NAME, set, ...) extern const simd_probe simd_probe_##set;
#define ENTRY(NAME, set, ...)   &simd_probe_##set,
ATTN__SETS(DECLARE, )

const simd_probe *const simd_probes[] = {ATTN__SETS(ENTRY, ) NULL};
