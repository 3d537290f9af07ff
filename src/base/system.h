/* SPDX-License-Identifier: MIT
 *
 * system.h - the engine's interface to the operating system, for POSIX and for Windows with POSIX threads
 * (winpthreads): memory, cores, threads without signals.  Every other file of the engine is ISO C and POSIX threads.
 */
#ifndef ATTN_BASE_SYSTEM_H
#define ATTN_BASE_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>

/* Allocates memory. `align` is a power of two. Returns NULL if there is no memory. */
void *attn__system_alloc(size_t size, size_t align);
void attn__system_release(void *memory);
/* Tells the system to free all memory pages that are completely within these bytes. Pages of a mapped file are read
 * again when needed. The contents of other pages are lost, so the caller may afterwards only free that memory. */
void attn__system_drop_pages(const void *data, size_t size);
/* Returns freed memory, which the allocator has kept, to the system. Does nothing if the allocator cannot do this
 * (malloc_trim can). */
void attn__system_trim(void);

/* Returns the number of cores that are online. attn__usable_cores returns the number that this process may
 * use. */
int attn__online_cores(void);
int attn__usable_cores(void);

/* Starts a detached thread that takes no signals. Returns false if the system refused. */
bool attn__start_thread(void *(*run)(void *user), void *user);
/* Registers the function `in_child`, which the system then calls in the child after each fork. Returns false if the
 * system refused. On Windows, which has no fork, nothing is registered. */
bool attn__heed_forks(void (*in_child)(void));

#endif
