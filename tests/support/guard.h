/* SPDX-License-Identifier: MIT
 *
 * guard.h - memory that ends at a page nobody may touch, so that reading one byte too far is a crash.
 */
#ifndef ATTN_TESTS_GUARD_H
#define ATTN_TESTS_GUARD_H

#include <stddef.h>

/* `size` bytes, zeroed, the last of them just before a guard page (the start is aligned to 4 bytes only when
 * size is a multiple of 4).  Exits the test program if the system has none. */
void *guard_alloc(size_t size);
void guard_free(void *memory, size_t size);

#endif
