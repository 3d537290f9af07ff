/* SPDX-License-Identifier: MIT
 *
 * join.h - joins the processes that mpirun started, on one machine or on many, so that they share one training.
 *
 * A process that was started alone is rank 0 of 1, and needs neither MPI nor this header.  docs/parallel.md describes
 * how work is divided among contexts that have joined.
 *
 * One thread of a process calls these functions. All ranks call them in the same order.
 */
#ifndef ATTN_DIST_JOIN_H
#define ATTN_DIST_JOIN_H

#include "attn/attn.h"

/* Finds the other processes that the same mpirun (or mpiexec, or srun with PMI) started. Trainings in this context are
 * then divided among these processes.  Each process calls it once, from the thread that will use the context.  In a
 * process that was started alone, it does nothing and loads no library.  ATTN_ERROR_UNSUPPORTED: this build has no MPI,
 * or its MPI is not the one of mpirun. ATTN_ERROR_IO: MPI does not start. */
attn_status attn_ranks_join(attn_context *context);
/* Returns this process's rank, or 0 if the context has joined no ranks. */
int attn_ranks_rank(const attn_context *context);
/* Returns the number of ranks, or 1 if the context has joined no ranks. */
int attn_ranks_size(const attn_context *context);

/* Sets the function `stop`. It is called whenever this process waits for other ranks, and between operations of a
 * training step. If it returns true, the wait ends with ATTN_ERROR_INTERRUPTED.  Use `stop` to test a flag that a
 * handler of SIGTERM sets. When one process dies, mpirun sends SIGTERM to the other processes. Without `stop` these
 * would wait for ever. If `stop` is NULL, no function is called. */
void attn_ranks_set_stop(attn_context *context, bool (*stop)(void *user), void *user);

/* Makes all ranks return the same status; every rank must call it. Returns ATTN_OK if all ranks passed ATTN_OK.
 * Otherwise it returns the status of the lowest rank that failed. That rank's message is `text`, or its context's
 * error if `text` is NULL. The other ranks' contexts get the message as their error, preceded by "rank R: ". */
attn_status attn_ranks_agree(attn_context *context, attn_status status, const char *text);
/* Sends rank `from`'s text to all ranks. All ranks must call it. *text becomes a new string of *size bytes and a
 * terminating zero. Free it with attn_ranks_text_free. On rank `from`, *text and *size are the input and still belong
 * to the caller. On failure *text is NULL on the other ranks. Returns ATTN_ERROR_IO if the ranks cannot reach each
 * other. If another rank aborted, returns the status of that rank. May also return ATTN_ERROR_MEMORY and
 * ATTN_ERROR_INTERRUPTED. */
attn_status attn_ranks_text(attn_context *context, int from, char **text, size_t *size);
void attn_ranks_text_free(attn_context *context, char *text); /* Frees `text`, which may be NULL. */

/* Leaves the group of ranks. attn_context_destroy does so too. MPI is finalized normally if all ranks succeeded, or if
 * all ranks returned the same failure. If only this rank failed, it first sends its error to the other ranks. */
void attn_ranks_leave(attn_context *context);

#endif
