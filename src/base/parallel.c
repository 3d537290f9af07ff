/* SPDX-License-Identifier: MIT */
#include "base/parallel.h"

#include <stdatomic.h>

#ifdef _OPENMP
#include <omp.h>

enum { LINE = 64, SHARES = 64 /* at most; threads above that begin with another's */ };

/* A thread's part of the items, in order, from which others take when their own is done. */
typedef struct share {
    _Alignas(LINE) atomic_int_least64_t next;
    int64_t end;
} share;

static void work_off(share *s, void (*work)(void *user, int64_t item, int thread), void *user, int thread)
{
    for (int64_t i; (i = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed)) < s->end;)
        work(user, i, thread);
}

/* Where there are fewer threads than asked for, they do all shares. */
static void share_out(int threads, int64_t items, void (*work)(void *user, int64_t item, int thread), void *user)
{
    share shares[SHARES];
    int count = threads < SHARES ? threads : SHARES;
    for (int i = 0; i < count; i++) {
        atomic_init(&shares[i].next, items * i / count);
        shares[i].end = items * (i + 1) / count;
    }
#pragma omp parallel num_threads(threads)
    for (int i = 0; i < count; i++)
        work_off(&shares[(omp_get_thread_num() + i) % count], work, user, omp_get_thread_num());
}
#endif

void attn__parallel_items(int threads, int64_t items, void (*work)(void *user, int64_t item, int thread), void *user)
{
#ifdef _OPENMP
    if (threads > 1 && items > 1) {
        share_out(threads < items ? threads : (int)items, items, work, user);
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
