/* SPDX-License-Identifier: MIT
 *
 * forked_ranks.h - ranks without MPI that are processes all the same: this one and a child of it, on one machine.
 */
#ifndef ATTN_TESTS_FORKED_RANKS_H
#define ATTN_TESTS_FORKED_RANKS_H

#include "dist/ranks.h"

/* Runs child(user) as rank 1, in a process that ends with what it returns, and gives its number; -1: there was none to
 * be had.  Contexts of both, made after it, then join with `forked_ranks`. */
int forked_ranks_begin(int (*child)(void *user), void *user);
/* Waits for it: what it returned; -1 if a signal ended it. */
int forked_ranks_end(int process);

extern const attn__ranks_ops forked_ranks;

#endif
