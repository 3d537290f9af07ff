/* SPDX-License-Identifier: MIT
 *
 * ranks.h - sums and words among the processes of a start by mpirun; in a process alone each of these is done at once.
 *
 * Nothing here blocks for good: a waiting rank polls whether the sum is complete, whether another rank aborted (and
 * then aborts too, with that rank's message), and whether this process is to stop.  After any of the last two the ranks
 * are `broken`: sums that were begun are never finished, and every call returns that status.
 */
#ifndef ATTN_DIST_RANKS_H
#define ATTN_DIST_RANKS_H

#include "dist/join.h"
#include "base/context.h"
#include "dist/ranks_ops.h"

bool attn__ranks_many(const attn_context *context);
bool attn__ranks_first(const attn_context *context); /* the one that writes, saves and speaks */

/* Starts an all-reduce: data[n] becomes its sum (or maximum) over all ranks once `request` is done. All ranks must
 * begin the same sums in the same order. `data` must stay valid. */
attn_status attn__ranks_sum_begin(attn_context *context, void *data, int64_t n, attn__ranks_sum_kind kind,
                                  attn__ranks_request *request);
attn_status attn__ranks_test(attn_context *context, attn__ranks_request *request, bool *done);
attn_status attn__ranks_wait(attn_context *context, attn__ranks_request *request);
attn_status attn__ranks_sum(attn_context *context, void *data, int64_t n, attn__ranks_sum_kind kind);
bool attn__ranks_together(const attn_context *context); /* whether there are several ranks, all on this machine */
/* Copies the data of rank `from` to all ranks. */
attn_status attn__ranks_broadcast(attn_context *context, void *data, size_t bytes, int from);
/* Waits, as for a sum, until done(user), which is polled. */
attn_status attn__ranks_await(attn_context *context, bool (*done)(const void *user), const void *user);
/* Memory that all ranks of a machine share. */
typedef struct attn__ranks_memory {
    void *data; /* cleared at first, on pages of its own; NULL: there is none */
    size_t bytes;
    int file;
} attn__ranks_memory;
/* memory->data is NULL if the ranks are on several machines (or ATTN_RANKS_APART is set), if the system has no shared
 * memory, or if one rank requests no bytes.  All ranks must call it. */
attn_status attn__ranks_memory_make(attn_context *context, size_t bytes, attn__ranks_memory *memory);
/* Makes later writes of this rank private. The rank still reads what others wrote before. */
void attn__ranks_memory_part(const attn__ranks_memory *memory);
void attn__ranks_memory_free(attn__ranks_memory *memory); /* frees only this process's mapping */
/* Frees memory to which sums may still write. It is freed at once, or, if those sums will never be finished, after
 * MPI has ended, because MPI may write to it until then. */
void attn__ranks_free(attn_context *context, void *memory);
/* ATTN_OK, or the reason why this process should stop: another rank aborted, or a stop was requested. */
attn_status attn__ranks_poll(attn_context *context);
/* ATTN_ERROR_ARGUMENT, "rank R WHAT", unless `value` is the same on all ranks. */
attn_status attn__ranks_same(attn_context *context, uint64_t value, const char *what);

/* Aborts this rank with the context's error. The other ranks get the error at their next wait. */
void attn__ranks_give_up(attn_context *context, attn_status status);
/* The last error occurred on all ranks: do not announce it. */
void attn__ranks_all_know(attn_context *context);

/* This rank's contiguous share of n things: [*first, *first + the result). */
int64_t attn__ranks_share(const attn_context *context, int64_t n, int64_t *first);

/* The longest piece of text that is sent at once. */
enum { ATTN__RANKS_PIECE = 1 << 24 };

/* For tests: ranks over other operations than MPI's.  ATTN_ERROR_MEMORY. */
attn_status attn__ranks_join_with(attn_context *context, const attn__ranks_ops *ops);

#endif
