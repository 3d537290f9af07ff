/* SPDX-License-Identifier: MIT
 *
 * parallel.h - the only place that starts threads (OpenMP behind it; without it everything runs on one).
 *
 * Neither function promises which thread runs what, so results must not depend on it: give each item its own
 * output, and each thread only scratch memory.
 */
#ifndef ATTN_BASE_PARALLEL_H
#define ATTN_BASE_PARALLEL_H

#include <stdint.h>

enum { ATTN__MAX_THREADS = 1024 };

/* Calls work(user, item, thread) once for each item in [0, items), 0 <= thread < threads.  For items that are large and
 * uneven.  Each thread has neighbouring items of its own, which it takes in order, then the next ones of whoever still
 * has some.  So what a region has written in the order of its items is, where the next one reads it in that order, mostly
 * in the caches of the thread that reads. */
void attn__parallel_items(int threads, int64_t items, void (*work)(void *user, int64_t item, int thread), void *user);

/* Calls work(user, begin, end) on disjoint ranges that cover [0, n), none shorter than `grain` but the last.
 * For loops over many small equal pieces.  One range, on the caller's thread, where n <= grain. */
void attn__parallel_range(int threads, int64_t n, int64_t grain, void (*work)(void *user, int64_t begin, int64_t end),
                          void *user);

#endif
