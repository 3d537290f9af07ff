/* SPDX-License-Identifier: MIT
 *
 * guard.h - memory that ends at an inaccessible page, so that reading one byte past the end crashes the test.
 */
#ifndef ATTN_TESTS_GUARD_H
#define ATTN_TESTS_GUARD_H

#include <stddef.h>

/* Allocates `size` zeroed bytes that end just before a guard page. The start is aligned to 4 bytes only if size is a
 * multiple of 4. If the system cannot allocate the memory, exits the test program. */
void *guard_alloc(size_t size);
void guard_free(void *memory, size_t size);

#endif
