/* SPDX-License-Identifier: MIT
 *
 * faults.h - an allocator that fails at a chosen call, and a check that nothing is left when a context ends.
 */
#ifndef ATTN_TESTS_FAULTS_H
#define ATTN_TESTS_FAULTS_H

#include "attn/attn.h"

typedef struct faults {
    long calls;   /* allocations so far, including the context's own */
    long fail_at; /* the call that fails, with `forever` also later calls; 0: none */
    bool forever;
    long held; /* blocks not yet released */
} faults;

attn_allocator faults_allocator(faults *f);
/* A context whose allocator is `f`; NULL if the context's own allocation failed. */
attn_context *faults_context(faults *f);

/* Calls work(context, user) with the first allocation failing, then the second, and so on until it succeeds
 * (work returns its status); checks that each failure is ATTN_ERROR_MEMORY and that nothing stays held.  Returns the
 * number of allocations of a good run, or -1 after telling what was wrong on standard error. */
long faults_try_all(attn_status (*work)(attn_context *context, void *user), void *user);

#endif
