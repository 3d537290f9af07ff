/* SPDX-License-Identifier: MIT
 *
 * ranks_ops.h - the table of the message-passing operations that the ranks use. ranks_mpi.c implements them with MPI,
 * in a separate shared object, because some installations have no libmpi. The shared object is opened only if the
 * environment has the variables of a launcher. Otherwise every start would take tens of milliseconds longer, to load
 * libmpi and about twenty other libraries. Only the thread that joined the ranks calls these operations. Operations
 * that return int return 0 or an error code, which `text` translates. */
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

/* ATTN__RANKS_VERSION is increased with each change of this struct, so that a module of another build is refused.
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
    /* Reports whether all ranks run on one machine. If this pointer is NULL, they do not. */
    bool (*together)(void);
} attn__ranks_ops;

/* Type of the function that a module exports. The function returns the table of operations. */
typedef const attn__ranks_ops *(*attn__ranks_entry)(void);
#define ATTN__RANKS_ENTRY "attn__ranks_module"

#endif
