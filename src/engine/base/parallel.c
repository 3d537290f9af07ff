/* SPDX-License-Identifier: MIT */
#include "base/parallel.h"

#include "base/integers.h"

void attn__share_out(attn__shares *s, int threads, int64_t items)
{
    s->count = (int)attn__max(attn__min(threads, ATTN__SHARES), 1);
    for (int i = 0; i < s->count; i++) {
        atomic_init(&s->of[i].next, items * i / s->count);
        s->of[i].end = items * (i + 1) / s->count;
    }
}

int64_t attn__share_take(attn__shares *s, int thread)
{
    for (int i = 0; i < s->count; i++) {
        attn__share *share = &s->of[(thread + i) % s->count];
        if (atomic_load_explicit(&share->next, memory_order_relaxed) >= share->end)
            continue;
        int64_t item = atomic_fetch_add_explicit(&share->next, 1, memory_order_relaxed);
        if (item < share->end)
            return item;
    }
    return -1;
}

typedef struct items_loop {
    attn__shares shares;
    void (*work)(void *user, int64_t item, int thread);
    void *user;
} items_loop;

static void take_items(void *user, int thread)
{
    items_loop *loop = user;
    for (int64_t i; (i = attn__share_take(&loop->shares, thread)) >= 0;)
        loop->work(loop->user, i, thread);
}

void attn__parallel_items(int threads, int64_t items, void (*work)(void *user, int64_t item, int thread), void *user)
{
    threads = (int)attn__min(threads, items);
    if (threads <= 1 || attn__pool_inside()) {
        for (int64_t i = 0; i < items; i++)
            work(user, i, 0);
        return;
    }
    items_loop loop;
    loop.work = work;
    loop.user = user;
    attn__share_out(&loop.shares, threads, items);
    attn__pool_run(threads, take_items, &loop);
}

typedef struct range_loop {
    int64_t n, length;
    void (*work)(void *user, int64_t begin, int64_t end);
    void *user;
} range_loop;

static void run_range(void *user, int64_t index, int thread)
{
    const range_loop *loop = user;
    int64_t begin = index * loop->length, end = attn__min(begin + loop->length, loop->n);
    (void)thread;
    if (begin < end)
        loop->work(loop->user, begin, end);
}

void attn__parallel_range(int threads, int64_t n, int64_t grain, void (*work)(void *user, int64_t begin, int64_t end),
                          void *user)
{
    if (n <= 0)
        return;
    int64_t ranges = attn__min(attn__ceil_div(n, attn__max(grain, 1)), threads);
    if (ranges <= 1) {
        work(user, 0, n);
        return;
    }
    range_loop loop = {n, attn__ceil_div(n, ranges), work, user};
    attn__parallel_items((int)ranges, ranges, run_range, &loop);
}
