/* SPDX-License-Identifier: MIT
 *
 * ranks_ops.h - the table of the message-passing operations that attn uses. ranks_mpi.c implements these operations
 * with MPI, in a separate shared object. The shared object is opened only if a launcher has set its environment
 * variables. A start without mpirun thus saves the tens of milliseconds for loading libmpi and about twenty other
 * libraries. An installation without MPI does not have libmpi. Only the thread that joined calls these operations.
 * Functions that return int return 0, or an error code that `text` translates.
 */
#ifndef ATTN_DIST_RANKS_OPS_H
#define ATTN_DIST_RANKS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Memory for an MPI_Request, which is a pointer in Open MPI and an int in MPICH. */
typedef struct attn__ranks_request {
    void *room[2];
} attn__ranks_request;

typedef enum attn__ranks_sum { ATTN__SUM_F32 = 0, ATTN__SUM_F64, ATTN__MAX_U64 } attn__ranks_sum_kind;

/* The version increases with each change of this struct, so that a module of another build is refused.
 * ATTN__RANKS_NOTICE is the size of a notice in bytes. */
enum { ATTN__RANKS_VERSION = 2, ATTN__RANKS_NOTICE = 600 };

typedef struct attn__ranks_ops {
    int version;
    const char *name; /* "Open MPI 4.1" */
    int (*start)(int *rank, int *size);
    /* Ends MPI. It is not called while requests are unfinished, because MPI cannot cancel them. */
    void (*finish)(void);
    void (*text)(int error, char *out, size_t size);
    /* Starts a reduction over all ranks, in place. Every rank must begin the same reductions in the same order. n
     * must be less than 2^31. */
    int (*sum)(void *data, int64_t n, attn__ranks_sum_kind kind, attn__ranks_request *request);
    int (*broadcast)(void *data, int64_t bytes, int from, attn__ranks_request *request);
    int (*test)(attn__ranks_request *request, bool *done);
    /* Sends a notice of ATTN__RANKS_NOTICE bytes to all other ranks. Notices are independent of the order of sums
     * and broadcasts. */
    int (*tell)(const void *notice);
    int (*heard)(void *notice, int *from, bool *any);
    /* Reports whether all ranks run on one machine. A NULL pointer means that they do not. */
    bool (*together)(void);
} attn__ranks_ops;

/* Type of the function that a module exports. The function returns the table of operations. */
typedef const attn__ranks_ops *(*attn__ranks_entry)(void);
#define ATTN__RANKS_ENTRY "attn__ranks_module"

#endif
