/* SPDX-License-Identifier: MIT
 *
 * ranks.h - sums and messages among the processes that mpirun started. If a process was started alone, each function
 * returns at once. A waiting rank polls for three events: the sum is complete, another rank aborted, or this process
 * should stop. So it never waits for ever. If another rank aborted, this rank aborts with the same message. After an
 * abort or a stop, unfinished sums are never finished, and every call returns the status of the abort. */
#ifndef ATTN_DIST_RANKS_H
#define ATTN_DIST_RANKS_H

#include "dist/join.h"
#include "base/context.h"
#include "dist/ranks_ops.h"

bool attn__ranks_many(const attn_context *context);
/* Reports whether this is rank 0, the only rank that writes, saves and prints. */
bool attn__ranks_first(const attn_context *context);

/* Starts an all-reduce. When `request` is done, each of the n elements of `data` holds the sum (or maximum) of this
 * element over all ranks. All ranks must begin the same sums in the same order. `data` must stay valid until the
 * request is done. */
attn_status attn__ranks_sum_begin(attn_context *context, void *data, int64_t n, attn__ranks_sum_kind kind,
                                  attn__ranks_request *request);
attn_status attn__ranks_test(attn_context *context, attn__ranks_request *request, bool *done);
attn_status attn__ranks_wait(attn_context *context, attn__ranks_request *request);
attn_status attn__ranks_sum(attn_context *context, void *data, int64_t n, attn__ranks_sum_kind kind);
bool attn__ranks_together(const attn_context *context);
attn_status attn__ranks_broadcast(attn_context *context, void *data, size_t bytes, int from);
/* Polls done(user) until it returns true. The wait ends early if a rank aborts or this process should stop. */
attn_status attn__ranks_await(attn_context *context, bool (*done)(const void *user), const void *user);
typedef struct attn__ranks_memory {
    void *data; /* page-aligned, initially zero */
    size_t bytes;
    int file;
} attn__ranks_memory;
/* Makes memory that all ranks share. All ranks must call it. memory->data becomes NULL in five cases: the ranks run on
 * several machines, ATTN_RANKS_APART is set, the system has no shared memory, a rank requests 0 bytes, or ranks request
 * different numbers of bytes. */
attn_status attn__ranks_memory_make(attn_context *context, size_t bytes, attn__ranks_memory *memory);
/* Makes later writes of this rank private. Earlier writes of all ranks stay readable. */
void attn__ranks_memory_part(const attn__ranks_memory *memory);
void attn__ranks_memory_free(attn__ranks_memory *memory);
/* Frees memory that unfinished sums may still write to. If all started sums can still be finished, the memory is freed
 * at once. Otherwise it is freed after MPI has ended, because MPI may write to it until then. */
void attn__ranks_free(attn_context *context, void *memory);
/* Returns ATTN_OK, or the reason why this process should stop: another rank aborted, or a stop was requested. */
attn_status attn__ranks_poll(attn_context *context);
/* Checks that `value` is the same on all ranks. Otherwise it returns ATTN_ERROR_ARGUMENT with the message "rank R
 * WHAT", where WHAT is `what`. */
attn_status attn__ranks_same(attn_context *context, uint64_t value, const char *what);

/* Aborts this rank with the context's error. Each of the other ranks gets this error when it next waits. */
void attn__ranks_give_up(attn_context *context, attn_status status);
/* Records that all ranks already have the last error, so that no rank sends this error to the others. */
void attn__ranks_all_know(attn_context *context);

/* Divides n items among the ranks in contiguous ranges. Sets *first to this rank's first item and returns its number
 * of items. */
int64_t attn__ranks_share(const attn_context *context, int64_t n, int64_t *first);

/* maximum number of bytes in one message of a broadcast */
enum { ATTN__RANKS_PIECE = 1 << 24 };

/* Joins ranks through the operations `ops` instead of MPI's operations. This is for tests. Returns ATTN_ERROR_MEMORY
 * on failure. */
attn_status attn__ranks_join_with(attn_context *context, const attn__ranks_ops *ops);

#endif
