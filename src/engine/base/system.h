/* SPDX-License-Identifier: MIT
 *
 * system.h - the library's interface to the operating system: memory, cores, and threads without signals. It supports
 * POSIX, and Windows with POSIX threads (winpthreads).
 *
 * Every other file needs only ISO C and POSIX threads.
 */
#ifndef ATTN_BASE_SYSTEM_H
#define ATTN_BASE_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>

/* Allocates memory whose address is a multiple of `align`, a power of two. Returns NULL if there is no memory. */
void *attn__system_alloc(size_t size, size_t align);
void attn__system_release(void *memory);
/* Tells the system to free all memory pages that are completely within these bytes. Pages of a mapped file are read
 * again when they are needed. The contents of all other pages are lost, and the caller may then only free the
 * memory. */
void attn__system_drop_pages(const void *data, size_t size);
/* Gives memory that the allocator has kept after it was freed back to the system, with malloc_trim. Does nothing if the
 * allocator has no such function. */
void attn__system_trim(void);

int attn__online_cores(void);
int attn__usable_cores(void);

/* Starts a detached thread that receives no signals. Returns false if the system refused. */
bool attn__start_thread(void *(*run)(void *user), void *user);
/* Registers the function `in_child`. After each fork, the system calls it in the child. Returns false if the system
 * refused. On Windows, which has no fork, nothing is registered. */
bool attn__heed_forks(void (*in_child)(void));

#endif
