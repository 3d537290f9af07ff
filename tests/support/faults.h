/* SPDX-License-Identifier: MIT
 *
 * faults.h - an allocator that fails at a chosen call, and a check that all memory is freed when a context ends.
 */
#ifndef ATTN_TESTS_FAULTS_H
#define ATTN_TESTS_FAULTS_H

#include "attn/attn.h"

typedef struct faults {
    long calls;   /* including the allocation of the context */
    long fail_at; /* number of the allocation that fails; 0: none; with `forever`, all later allocations fail, too */
    bool forever;
    long held; /* number of blocks that are not yet freed */
} faults;

attn_allocator faults_allocator(faults *f);
/* Creates a context with the allocator `f`. Returns NULL if allocating the context failed. */
attn_context *faults_context(faults *f);

/* Calls work(context, user) until it succeeds, while its first, second, third, ... allocation fails. Each failing call
 * must return ATTN_ERROR_MEMORY and free its memory. Returns the number of allocations of the successful call. If a
 * check fails, prints the reason on standard error and returns -1. */
long faults_try_all(attn_status (*work)(attn_context *context, void *user), void *user);

#endif
