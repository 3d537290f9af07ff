/* SPDX-License-Identifier: MIT
 *
 * ranks_ops.h - the operations of a message-passing library: all that attn uses of MPI.
 *
 * The implementation for MPI (ranks_mpi.c, the one file that includes mpi.h) is a shared object of its own, opened
 * when a launcher's environment is found: libmpi and what it brings along cost tens of milliseconds and twenty
 * libraries, which a start without mpirun must not pay, and which an installation without MPI does not have.
 * Only the thread that joined calls these.  Functions that return int give 0, or an error for `text`.
 */
#ifndef ATTN_DIST_RANKS_OPS_H
#define ATTN_DIST_RANKS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Room for an MPI_Request, a pointer in Open MPI and an int in MPICH. */
typedef struct attn__ranks_request {
    void *room[2];
} attn__ranks_request;

typedef enum attn__ranks_sum { ATTN__SUM_F32 = 0, ATTN__SUM_F64, ATTN__MAX_U64 } attn__ranks_sum_kind;

/* Increased with each change of this struct, so that a module of another build is refused. */
enum { ATTN__RANKS_VERSION = 2, ATTN__RANKS_NOTICE = 600 };

typedef struct attn__ranks_ops {
    int version;
    const char *name; /* "Open MPI 4.1" */
    int (*start)(int *rank, int *size);
    /* Not called if requests are unfinished: MPI has no way to cancel them. */
    void (*finish)(void);
    void (*text)(int error, char *out, size_t size);
    /* Reduces over all ranks, in place. Every rank must begin the same reductions in the same order. n < 2^31. */
    int (*sum)(void *data, int64_t n, attn__ranks_sum_kind kind, attn__ranks_request *request);
    int (*broadcast)(void *data, int64_t bytes, int from, attn__ranks_request *request);
    int (*test)(attn__ranks_request *request, bool *done);
    /* Notices of ATTN__RANKS_NOTICE bytes, to all others at once and out of order with everything else. */
    int (*tell)(const void *notice);
    int (*heard)(void *notice, int *from, bool *any);
    /* Whether all ranks run on one machine.  NULL: they do not. */
    bool (*together)(void);
} attn__ranks_ops;

/* The symbol that a module has. */
typedef const attn__ranks_ops *(*attn__ranks_entry)(void);
#define ATTN__RANKS_ENTRY "attn__ranks_module"

#endif
