/* SPDX-License-Identifier: MIT
 *
 * faults.h - an allocator that fails at a chosen call, and a check that all memory is freed when a context ends.
 */
#ifndef ATTN_TESTS_FAULTS_H
#define ATTN_TESTS_FAULTS_H

#include "attn/attn.h"

typedef struct faults {
    long calls;   /* number of allocations so far, including the allocation of the context */
    long fail_at; /* number of the allocation that fails, or 0 if none fails; with `forever`, later ones fail too */
    bool forever;
    long held; /* number of blocks that are not freed yet */
} faults;

attn_allocator faults_allocator(faults *f);
/* Creates a context whose allocator is `f`. Returns NULL if the allocation of the context failed. */
attn_context *faults_context(faults *f);

/* Calls work(context, user) repeatedly. In the first call, the first allocation fails, in the second call the second
 * allocation, and so on, until a call succeeds. Checks that each call of `work` returns ATTN_ERROR_MEMORY and frees its
 * memory. Returns the number of allocations of a successful call. If a check fails, prints the reason on standard error
 * and returns -1. */
long faults_try_all(attn_status (*work)(attn_context *context, void *user), void *user);

#endif
