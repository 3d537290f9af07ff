/* SPDX-License-Identifier: MIT */
#include "support/two_ranks.h"

#include "support/cmocka.h"
#include "support/tensors.h"

#include <stdio.h>
#include <string.h>

enum { PATIENCE = 3 };

struct two_ranks other;

static int fake_start(int *rank, int *size)
{
    *rank = 0;
    *size = 2;
    return 0;
}

static void fake_finish(void)
{
    other.finished++;
}

static void fake_text(int error, char *out, size_t size)
{
    snprintf(out, size, "error %d", error);
}

static int fake_sum(void *data, int64_t n, attn__ranks_sum_kind kind, attn__ranks_request *request)
{
    (void)request;
    other.begun++;
    other.pending = PATIENCE;
    for (int64_t i = 0; i < n; i++) {
        if (kind == ATTN__SUM_F32)
            ((float *)data)[i] *= 2;
        if (kind == ATTN__SUM_F64)
            ((double *)data)[i] += ((double *)data)[i] + other.more;
        if (kind == ATTN__MAX_U64 && n == 2 && i == 1)
            ((uint64_t *)data)[1] = ((uint64_t *)data)[0] + other.differs;
        if (kind == ATTN__MAX_U64 && n == 1 && other.writes > 0)
            ((uint64_t *)data)[0] = other.writes;
    }
    return 0;
}

static int fake_broadcast(void *data, int64_t bytes, int from, attn__ranks_request *request)
{
    (void)request;
    other.pieces++;
    other.largest = bytes > other.largest ? bytes : other.largest;
    if (from == 1 && bytes > 0)
        snprintf(data, (size_t)bytes, "its disk is full");
    return 0;
}

static int fake_test(attn__ranks_request *request, bool *done)
{
    (void)request;
    *done = !other.mute && --other.pending <= 0;
    return 0;
}

static int fake_tell(const void *notice)
{
    if (other.told++ == 0)
        memcpy(&other.told_first, notice, sizeof other.told_first);
    return 0;
}

static int fake_heard(void *notice, int *from, bool *any)
{
    *any = other.fails != ATTN_OK;
    if (*any) {
        int32_t head[2] = {(int32_t)other.fails, 0};
        memset(notice, 0, ATTN__RANKS_NOTICE);
        memcpy(notice, head, sizeof head);
        snprintf((char *)notice + sizeof head, 64, "memory ran out");
        *from = 1;
        other.fails = ATTN_OK;
    }
    return 0;
}

const attn__ranks_ops two_ranks = {ATTN__RANKS_VERSION, "two",     fake_start, fake_finish, fake_text, fake_sum,
                                   fake_broadcast,      fake_test, fake_tell,  fake_heard,  NULL};

attn_context *two_ranks_joined(void)
{
    attn_context *c = test_context();
    other = (struct two_ranks){0};
    assert_int_equal(attn__ranks_join_with(c, &two_ranks), ATTN_OK);
    return c;
}

bool two_ranks_stop(void *user)
{
    return ++*(int *)user > 5;
}
