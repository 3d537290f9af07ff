/* SPDX-License-Identifier: MIT
 *
 * guard.h - memory that ends at an inaccessible page, so that reading one byte past the end crashes the test.
 */
#ifndef ATTN_TESTS_GUARD_H
#define ATTN_TESTS_GUARD_H

#include <stddef.h>

/* Allocates `size` zeroed bytes that end just before a guard page. Their address is a multiple of 4 only if `size`
 * is. Exits the test program if there is no memory. */
void *guard_alloc(size_t size);
void guard_free(void *memory, size_t size);

#endif
