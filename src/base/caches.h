/* SPDX-License-Identifier: MIT
 *
 * caches.h - the sizes of the data caches, from which products and solvers derive their blocks.
 */
#ifndef ATTN_BASE_CACHES_H
#define ATTN_BASE_CACHES_H

#include <stdint.h>

/* Bytes that one core may count on: a cache that several cores share is divided by their number. */
typedef struct attn__caches {
    int64_t l1, l2, l3; /* l3 0: there is none */
} attn__caches;

/* Queries the processor once (CPUID, sysctl), else the system (sysfs).  A size that neither tells comes from a table of
 * the smallest caches that processors of the instruction set have.  Thread-safe. */
const attn__caches *attn__caches_here(void);

#endif
