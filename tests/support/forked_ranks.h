/* SPDX-License-Identifier: MIT
 *
 * forked_ranks.h - two ranks without MPI: this process and a child process on the same machine.
 */
#ifndef ATTN_TESTS_FORKED_RANKS_H
#define ATTN_TESTS_FORKED_RANKS_H

#include "dist/ranks.h"

/* Starts a child process that runs child(user) as rank 1 and exits with the returned value. Returns the process id,
 * or -1 if no process could be started. Contexts that both processes create afterwards join with `forked_ranks`. */
int forked_ranks_begin(int (*child)(void *user), void *user);
/* Waits for the child process. Returns its exit code, or -1 if a signal ended it. */
int forked_ranks_end(int process);

extern const attn__ranks_ops forked_ranks;

#endif
