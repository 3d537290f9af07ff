/* SPDX-License-Identifier: MIT
 *
 * caches.h - the sizes of the data caches, from which products and solvers derive the sizes of their blocks.
 */
#ifndef ATTN_BASE_CACHES_H
#define ATTN_BASE_CACHES_H

#include <stdint.h>

/* Cache sizes in bytes per core. The size of a cache that several cores share is divided by the number of these
 * cores. */
typedef struct attn__caches {
    int64_t l1, l2, l3; /* l3 = 0: the machine has no L3 */
} attn__caches;

/* Queries the processor once (CPUID, sysctl), then the system (sysfs). If neither reports a size, the size comes
 * from a table of the smallest caches of processors with this instruction set. Thread-safe. */
const attn__caches *attn__caches_here(void);

#endif
