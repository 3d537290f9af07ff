/* SPDX-License-Identifier: MIT */
#include "base/parallel.h"

#include "base/integers.h"

#ifdef _OPENMP
#include <omp.h>
#endif

void attn__share_out(attn__shares *s, int threads, int64_t items)
{
    s->count = (int)attn__most(attn__least(threads, ATTN__SHARES), 1);
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

void attn__parallel_items(int threads, int64_t items, void (*work)(void *user, int64_t item, int thread), void *user)
{
#ifdef _OPENMP
    threads = (int)attn__least(threads, items);
    if (threads > 1) {
        attn__shares shares;
        attn__share_out(&shares, threads, items);
#pragma omp parallel num_threads(threads)
        for (int64_t i; (i = attn__share_take(&shares, omp_get_thread_num())) >= 0;)
            work(user, i, omp_get_thread_num());
        return;
    }
#endif
    (void)threads;
    for (int64_t i = 0; i < items; i++)
        work(user, i, 0);
}

void attn__parallel_range(int threads, int64_t n, int64_t grain, void (*work)(void *user, int64_t begin, int64_t end),
                          void *user)
{
    if (n <= 0)
        return;
    if (grain < 1)
        grain = 1;
    int64_t ranges = (n + grain - 1) / grain;
    if (ranges > threads)
        ranges = threads;
    if (ranges <= 1) {
        work(user, 0, n);
        return;
    }
    int64_t length = (n + ranges - 1) / ranges;
#ifdef _OPENMP
#pragma omp parallel for schedule(static, 1) num_threads((int)ranges)
#endif
    for (int64_t i = 0; i < ranges; i++) {
        int64_t begin = i * length, end = begin + length < n ? begin + length : n;
        if (begin < end)
            work(user, begin, end);
    }
}
