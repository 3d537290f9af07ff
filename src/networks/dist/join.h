/* SPDX-License-Identifier: MIT
 *
 * join.h - joins the processes that mpirun started, on one machine or on many, so that they share one training. A
 * process that was started alone is rank 0 of 1 rank.
 *
 * docs/parallel.md describes how work is divided among the ranks.
 *
 * Only one thread of a process may call these functions. All ranks must call them in the same order.
 */
#ifndef ATTN_DIST_JOIN_H
#define ATTN_DIST_JOIN_H

#include "attn/attn.h"

/* Finds the other processes that the same mpirun (or mpiexec, or srun with PMI) started. Trainings in this context are
 * then divided among these processes.
 *
 * Each process calls this once, in the thread that will use the context. If the process was started alone, this does
 * nothing and loads no library.
 *
 * ATTN_ERROR_UNSUPPORTED: this build has no MPI, or its MPI differs from that of mpirun. ATTN_ERROR_IO: MPI does not
 * start. */
attn_status attn_ranks_join(attn_context *context);
/* Returns this process's rank, or 0 if the context has joined no other ranks. */
int attn_ranks_rank(const attn_context *context);
/* Returns the number of ranks, or 1 if the context has joined no other ranks. */
int attn_ranks_size(const attn_context *context);

/* Sets the function `stop`, which is called whenever this process waits for other ranks, and between operations of a
 * training step. If it returns true, the wait ends with ATTN_ERROR_INTERRUPTED. If `stop` is NULL, no function is
 * called.
 *
 * `stop` should test a flag that a handler of SIGTERM sets. When one process dies, mpirun sends SIGTERM to the others,
 * which without `stop` would wait for ever. */
void attn_ranks_set_stop(attn_context *context, bool (*stop)(void *user), void *user);

/* Makes all ranks return the same status; every rank must call it. Returns ATTN_OK if all ranks passed ATTN_OK.
 * Otherwise it returns the status of the lowest rank that failed. That rank's message is `text`, or its context's
 * error if `text` is NULL. The other ranks' contexts get the message as their error, preceded by "rank R: ". */
attn_status attn_ranks_agree(attn_context *context, attn_status status, const char *text);
/* Sends the text of rank `from` to all ranks. All ranks must call it. On rank `from`, *text and *size are the input,
 * which still belongs to the caller. On the other ranks, *text becomes a new string of *size bytes and a terminating
 * zero, which must be freed with attn_ranks_text_free, or NULL on failure.
 *
 * ATTN_ERROR_IO: the ranks cannot reach each other. If another rank aborted, returns the status of that rank. May also
 * return ATTN_ERROR_MEMORY and ATTN_ERROR_INTERRUPTED. */
attn_status attn_ranks_text(attn_context *context, int from, char **text, size_t *size);
void attn_ranks_text_free(attn_context *context, char *text);

/* Leaves the group of ranks. attn_context_destroy does this too. If all ranks succeeded, or all ranks returned the same
 * failure, MPI is finalized normally. If only this rank failed, it first sends its error to the other ranks. */
void attn_ranks_leave(attn_context *context);

#endif
