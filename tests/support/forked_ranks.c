/* SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* needed for MAP_ANONYMOUS */
#endif
#include "support/forked_ranks.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROOM = 1024 };

/* Memory that both ranks share. An operation ends only when both ranks have begun it. So no rank is more than one
 * operation ahead. */
static struct common {
    atomic_int begun[2];
    unsigned char data[2][2][ROOM]; /* [parity of the operation's number][rank] */
    atomic_int told[2];
    unsigned char notices[2][ATTN__RANKS_NOTICE];
} * common;
static int own;

static struct under_way {
    void *data;
    size_t bytes;
    int from; /* root rank of a broadcast; -1 for a sum */
    attn__ranks_sum_kind kind;
} under_way;

int forked_ranks_begin(int (*child)(void *user), void *user)
{
    common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (common == MAP_FAILED)
        return -1;
    fflush(NULL);
    int process = fork();
    own = process == 0;
    if (process == 0)
        _exit(child(user));
    return process;
}

int forked_ranks_end(int process)
{
    int status = 0;
    bool ended = waitpid(process, &status, 0) == process;
    munmap(common, sizeof *common);
    return ended && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int forked_start(int *rank, int *size)
{
    *rank = own;
    *size = 2;
    return 0;
}

static void forked_finish(void)
{
}

static void forked_text(int error, char *out, size_t size)
{
    snprintf(out, size, "%d bytes are too many", error);
}

static int begin(void *data, size_t bytes, int from, attn__ranks_sum_kind kind)
{
    if (bytes > ROOM)
        return (int)bytes;
    under_way = (struct under_way){data, bytes, from, kind};
    memcpy(common->data[atomic_load(&common->begun[own]) % 2][own], data, bytes);
    atomic_fetch_add(&common->begun[own], 1);
    return 0;
}

static int forked_sum(void *data, int64_t n, attn__ranks_sum_kind kind, attn__ranks_request *request)
{
    (void)request;
    return begin(data, (size_t)n * (kind == ATTN__SUM_F32 ? sizeof(float) : sizeof(double)), -1, kind);
}

static int forked_broadcast(void *data, int64_t bytes, int from, attn__ranks_request *request)
{
    (void)request;
    return begin(data, (size_t)bytes, from, ATTN__SUM_F32);
}

static void combine(void *out, const void *a, const void *b, const struct under_way *w)
{
    for (size_t i = 0; i < w->bytes / sizeof(double); i++) {
        if (w->kind == ATTN__SUM_F64)
            ((double *)out)[i] = ((const double *)a)[i] + ((const double *)b)[i];
        uint64_t x = ((const uint64_t *)a)[i], y = ((const uint64_t *)b)[i];
        if (w->kind == ATTN__MAX_U64)
            ((uint64_t *)out)[i] = x > y ? x : y;
    }
    for (size_t i = 0; i < w->bytes / sizeof(float) && w->kind == ATTN__SUM_F32; i++)
        ((float *)out)[i] = ((const float *)a)[i] + ((const float *)b)[i];
}

static int forked_test(attn__ranks_request *request, bool *done)
{
    (void)request;
    int count = atomic_load(&common->begun[own]), turn = (count - 1) % 2;
    *done = atomic_load(&common->begun[!own]) >= count;
    if (*done && under_way.from >= 0)
        memcpy(under_way.data, common->data[turn][under_way.from], under_way.bytes);
    else if (*done)
        combine(under_way.data, common->data[turn][0], common->data[turn][1], &under_way);
    return 0;
}

static int forked_tell(const void *notice)
{
    memcpy(common->notices[!own], notice, ATTN__RANKS_NOTICE);
    atomic_store(&common->told[!own], 1);
    return 0;
}

static int forked_heard(void *notice, int *from, bool *any)
{
    *any = atomic_exchange(&common->told[own], 0) != 0;
    *from = !own;
    if (*any)
        memcpy(notice, common->notices[own], ATTN__RANKS_NOTICE);
    return 0;
}

static bool forked_together(void)
{
    return true;
}

const attn__ranks_ops forked_ranks = {ATTN__RANKS_VERSION, "forked",     forked_start,     forked_finish,
                                      forked_text,         forked_sum,   forked_broadcast, forked_test,
                                      forked_tell,         forked_heard, forked_together};
