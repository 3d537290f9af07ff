/* SPDX-License-Identifier: MIT
 * Implements the operations of ranks_ops.h with MPI. This file is built as a separate shared object, and is the only
 * file that includes mpi.h. */
#ifdef ATTN_MPI_MODULE
#include "dist/ranks_ops.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

/* Communicators: `work` for sums, `words` for notices. They are global, because MPI exists once per process. */
static MPI_Comm work, words;
static int ranks, own, near;

/* Counts the ranks of this machine. All ranks must call this at the start, because MPI_Comm_split_type is
 * collective. */
static int count_near(void)
{
    MPI_Comm here;
    int error = MPI_Comm_split_type(work, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    if (error)
        return error;
    MPI_Comm_size(here, &near);
    return MPI_Comm_free(&here);
}

static int start(int *rank, int *size)
{
    int had, level;
    int error = MPI_Initialized(&had);
    if (!error && !had)
        error = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    /* Sums and notices have separate communicators, so that a notice cannot match a sum. The error handlers are set
     * so that MPI returns errors instead of ending the process. */
    if (!error)
        error = MPI_Comm_dup(MPI_COMM_WORLD, &work);
    if (!error)
        error = MPI_Comm_dup(MPI_COMM_WORLD, &words);
    if (error)
        return error;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(work, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(words, MPI_ERRORS_RETURN);
    MPI_Comm_rank(work, &own);
    MPI_Comm_size(work, &ranks);
    *rank = own;
    *size = ranks;
    return count_near();
}

static bool together(void)
{
    return near == ranks;
}

static void finish(void)
{
    MPI_Comm_free(&work);
    MPI_Comm_free(&words);
    MPI_Finalize();
}

static void text(int error, char *out, size_t size)
{
    char whole[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(error, whole, &length);
    snprintf(out, size, "%s", whole);
}

static int keep(int error, MPI_Request made, attn__ranks_request *request)
{
    _Static_assert(sizeof made <= sizeof *request, "a request fits");
    memcpy(request, &made, sizeof made);
    return error;
}

static int sum(void *data, int64_t n, attn__ranks_sum_kind kind, attn__ranks_request *request)
{
    MPI_Request made = MPI_REQUEST_NULL;
    MPI_Datatype type = kind == ATTN__SUM_F32 ? MPI_FLOAT : kind == ATTN__SUM_F64 ? MPI_DOUBLE : MPI_UINT64_T;
    int error =
        MPI_Iallreduce(MPI_IN_PLACE, data, (int)n, type, kind == ATTN__MAX_U64 ? MPI_MAX : MPI_SUM, work, &made);
    return keep(error, made, request);
}

static int broadcast(void *data, int64_t bytes, int from, attn__ranks_request *request)
{
    MPI_Request made = MPI_REQUEST_NULL;
    int error = MPI_Ibcast(data, (int)bytes, MPI_BYTE, from, work, &made);
    return keep(error, made, request);
}

static int test(attn__ranks_request *request, bool *done)
{
    MPI_Request made;
    int flag = 0;
    memcpy(&made, request, sizeof made);
    int error = MPI_Test(&made, &flag, MPI_STATUS_IGNORE);
    *done = flag != 0;
    return keep(error, made, request);
}

/* Sends a notice to all other ranks. MPI sends a notice at once even if no rank receives it, because notices are small.
 * Notices that were never received do not disturb MPI_Finalize. */
static int tell(const void *notice)
{
    /* There are two buffers, because a process sends at most two notices: one when it aborts and one when it leaves.
     * The first may still be on its way when the second is sent. */
    static unsigned char notices[2][ATTN__RANKS_NOTICE];
    static int next;
    unsigned char *said = notices[next++ % 2];
    int first = 0;
    memcpy(said, notice, ATTN__RANKS_NOTICE);
    for (int to = 0; to < ranks; to++) {
        MPI_Request made;
        int error = to == own ? 0 : MPI_Isend(said, ATTN__RANKS_NOTICE, MPI_BYTE, to, 1, words, &made);
        if (!error && to != own)
            error = MPI_Request_free(&made);
        first = first ? first : error;
    }
    return first;
}

static int heard(void *notice, int *from, bool *any)
{
    MPI_Status status;
    int flag = 0;
    int error = MPI_Iprobe(MPI_ANY_SOURCE, 1, words, &flag, &status);
    *any = !error && flag;
    if (!*any)
        return error;
    *from = status.MPI_SOURCE;
    return MPI_Recv(notice, ATTN__RANKS_NOTICE, MPI_BYTE, *from, 1, words, MPI_STATUS_IGNORE);
}

#if defined(OMPI_MAJOR_VERSION)
#define NAME "Open MPI"
#elif defined(MPICH_VERSION)
#define NAME "MPICH " MPICH_VERSION
#else
#define NAME "MPI"
#endif

const attn__ranks_ops *attn__ranks_module(void);

__attribute__((visibility("default"))) const attn__ranks_ops *attn__ranks_module(void)
{
    static const attn__ranks_ops ops = {.version = ATTN__RANKS_VERSION,
                                        .name = NAME,
                                        .start = start,
                                        .finish = finish,
                                        .text = text,
                                        .sum = sum,
                                        .broadcast = broadcast,
                                        .test = test,
                                        .tell = tell,
                                        .heard = heard,
                                        .together = together};
    return &ops;
}
#else
/* ISO C does not allow an empty file, and without ATTN_MPI_MODULE, as in the library's own build, this file has no
 * other code. */
typedef int attn__ranks_mpi_is_apart;
#endif
