/* SPDX-License-Identifier: MIT */
#include "base/parallel.h"

#ifdef _OPENMP
#include <omp.h>
#define THREAD omp_get_thread_num()
#else
#define THREAD 0
#endif

void attn__parallel_items(int threads, int64_t items, void (*work)(void *user, int64_t item, int thread), void *user)
{
    if (threads > items)
        threads = (int)items;
    if (threads <= 1) {
        for (int64_t i = 0; i < items; i++)
            work(user, i, 0);
        return;
    }
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
#endif
    for (int64_t i = 0; i < items; i++)
        work(user, i, THREAD);
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
