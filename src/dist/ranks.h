/* SPDX-License-Identifier: MIT
 *
 * ranks.h - sums and messages among the processes that mpirun started. In a process that was started alone, each
 * function returns at once. A waiting rank never blocks for ever. It polls whether the sum is complete, whether another
 * rank aborted, and whether this process should stop. If another rank aborted, this rank aborts too, with that rank's
 * message. After an abort or a stop the ranks are `broken`: started sums are never finished, and every call returns the
 * same status.
 */
#ifndef ATTN_DIST_RANKS_H
#define ATTN_DIST_RANKS_H

#include "dist/join.h"
#include "base/context.h"
#include "dist/ranks_ops.h"

bool attn__ranks_many(const attn_context *context);
/* Reports whether this is rank 0, the only rank that writes, saves and prints. */
bool attn__ranks_first(const attn_context *context);

/* Starts an all-reduce: once `request` is done, each of the n numbers of `data` is its sum (or maximum) over all ranks.
 * All ranks must begin the same sums in the same order. `data` must stay valid until the request is done. */
attn_status attn__ranks_sum_begin(attn_context *context, void *data, int64_t n, attn__ranks_sum_kind kind,
                                  attn__ranks_request *request);
attn_status attn__ranks_test(attn_context *context, attn__ranks_request *request, bool *done);
attn_status attn__ranks_wait(attn_context *context, attn__ranks_request *request);
attn_status attn__ranks_sum(attn_context *context, void *data, int64_t n, attn__ranks_sum_kind kind);
/* Reports whether there are several ranks and all of them run on one machine. */
bool attn__ranks_together(const attn_context *context);
/* Copies the data of rank `from` to all ranks. */
attn_status attn__ranks_broadcast(attn_context *context, void *data, size_t bytes, int from);
/* Polls done(user) until it returns true. Like a wait for a sum, the wait also ends if a rank aborts or this process
 * should stop. */
attn_status attn__ranks_await(attn_context *context, bool (*done)(const void *user), const void *user);
/* Memory that all ranks of a machine share. */
typedef struct attn__ranks_memory {
    void *data; /* zeroed at first and page-aligned; NULL: none */
    size_t bytes;
    int file;
} attn__ranks_memory;
/* Makes memory that all ranks share. All ranks must call it. memory->data is NULL if the ranks run on several
 * machines, if ATTN_RANKS_APART is set, if the system has no shared memory, or if one rank requests 0 bytes. */
attn_status attn__ranks_memory_make(attn_context *context, size_t bytes, attn__ranks_memory *memory);
/* Makes later writes of this rank private. The rank still reads what other ranks wrote before. */
void attn__ranks_memory_part(const attn__ranks_memory *memory);
void attn__ranks_memory_free(attn__ranks_memory *memory); /* Unmaps the memory in this process only. */
/* Frees memory to which unfinished sums may still write. The memory is freed at once if these sums can be finished.
 * Otherwise it is freed after MPI has ended, because MPI may write to it until then. */
void attn__ranks_free(attn_context *context, void *memory);
/* Returns ATTN_OK, or the reason why this process should stop: another rank aborted, or a stop was requested. */
attn_status attn__ranks_poll(attn_context *context);
/* Checks that `value` is the same on all ranks. Otherwise it returns ATTN_ERROR_ARGUMENT with the message "rank R
 * WHAT", where WHAT is `what`. */
attn_status attn__ranks_same(attn_context *context, uint64_t value, const char *what);

/* Aborts this rank with the context's error. The other ranks get this error the next time that they wait. */
void attn__ranks_give_up(attn_context *context, attn_status status);
/* Marks the last error as one that occurred on all ranks, so that no rank announces it to the others. */
void attn__ranks_all_know(attn_context *context);

/* Divides n items among the ranks. Sets *first to this rank's first item and returns its number of items, which are
 * contiguous. */
int64_t attn__ranks_share(const attn_context *context, int64_t n, int64_t *first);

/* maximum number of bytes that are sent at once */
enum { ATTN__RANKS_PIECE = 1 << 24 };

/* Joins ranks through operations other than MPI's, for tests. Returns ATTN_ERROR_MEMORY on failure. */
attn_status attn__ranks_join_with(attn_context *context, const attn__ranks_ops *ops);

#endif
