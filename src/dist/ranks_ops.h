/* SPDX-License-Identifier: MIT
 *
 * ranks_ops.h - the operations of a message-passing library, which are all that attn uses of MPI. Their implementation
 * with MPI (ranks_mpi.c) is a separate shared object. It is opened only if a launcher's environment variables are
 * found. Loading libmpi and its dependencies takes tens of milliseconds and twenty libraries, a cost that a start
 * without mpirun avoids. An installation without MPI does not have libmpi. Only the thread that joined calls these
 * operations. Functions that return int return 0, or an error code that `text` translates.
 */
#ifndef ATTN_DIST_RANKS_OPS_H
#define ATTN_DIST_RANKS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room for an MPI_Request, which is a pointer in Open MPI and an int in MPICH. */
typedef struct attn__ranks_request {
    void *room[2];
} attn__ranks_request;

typedef enum attn__ranks_sum { ATTN__SUM_F32 = 0, ATTN__SUM_F64, ATTN__MAX_U64 } attn__ranks_sum_kind;

/* The version increases with each change of this struct, so that a module of another build is refused. A notice has
 * 600 bytes. */
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
    /* Reports whether all ranks run on one machine. If the pointer is NULL, the answer is no. */
    bool (*together)(void);
} attn__ranks_ops;

/* The type of the function whose symbol a module exports. */
typedef const attn__ranks_ops *(*attn__ranks_entry)(void);
#define ATTN__RANKS_ENTRY "attn__ranks_module"

#endif
