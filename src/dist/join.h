/* SPDX-License-Identifier: MIT
 *
 * join.h - several processes that work on one thing: those that mpirun started, on one machine or many.
 *
 * A process that was started alone is rank 0 of 1, and needs neither MPI nor this header.  docs/parallel.md describes
 * how work is divided among contexts that have joined.
 *
 * One thread of a process calls these functions; all ranks call them in the same order.
 */
#ifndef ATTN_DIST_JOIN_H
#define ATTN_DIST_JOIN_H

#include "attn/attn.h"

/* Finds the other processes of a start by mpirun (mpiexec, srun with PMI), and lets trainings in this context be
 * divided among them.  To be called by all of them, once, from the thread that will use the context.  Does nothing
 * in a process that was started alone, and then loads nothing.  ATTN_ERROR_UNSUPPORTED: there is no MPI in this
 * build, or of another kind than mpirun's; ATTN_ERROR_IO: MPI does not start. */
attn_status attn_ranks_join(attn_context *context);
int attn_ranks_rank(const attn_context *context); /* 0 where nothing was joined */
int attn_ranks_size(const attn_context *context); /* 1 where nothing was joined */

/* `stop` is called whenever this process waits for others, and between operations of a training step; true ends the
 * waiting with ATTN_ERROR_INTERRUPTED.  Use it to test a flag set by a signal handler: when one process dies, mpirun
 * sends SIGTERM to the others, which would otherwise wait for ever.  NULL: nothing is called. */
void attn_ranks_set_stop(attn_context *context, bool (*stop)(void *user), void *user);

/* To be called by all: ATTN_OK if all gave ATTN_OK; else the status of the lowest rank that did not, whose message
 * (`text`, or its context's error if NULL) becomes the context's error, "rank R: ..." on the other ranks. */
attn_status attn_ranks_agree(attn_context *context, attn_status status, const char *text);
/* Sends rank `from`'s text to all ranks. All ranks must call it. *text becomes a new string of *size bytes and a
 * zero behind them, freed by attn_ranks_text_free. On rank `from`, *text and *size are the input and stay the
 * caller's. On failure *text is NULL on the others. ATTN_ERROR_IO: the ranks cannot reach each other;
 * ATTN_ERROR_MEMORY; the status with which another rank aborted; ATTN_ERROR_INTERRUPTED. */
attn_status attn_ranks_text(attn_context *context, int from, char **text, size_t *size);
void attn_ranks_text_free(attn_context *context, char *text); /* NULL is allowed */

/* Leaves the group; attn_context_destroy does so too. If all ranks succeeded, or all ranks have received the
 * failure, MPI is finalized normally. If only this rank failed, it notifies the others first. */
void attn_ranks_leave(attn_context *context);

#endif
