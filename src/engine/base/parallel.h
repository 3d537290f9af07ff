/* SPDX-License-Identifier: MIT
 *
 * parallel.h - loops whose items are run by several threads. pool.h has the threads.
 *
 * It is not specified which thread runs an item, or how many threads run. Results must not depend on either, so each
 * item needs its own output, and each thread only scratch memory. An item must not wait for another item, because one
 * thread may run all items. A parallel loop inside of an item runs on the item's thread only.
 */
#ifndef ATTN_BASE_PARALLEL_H
#define ATTN_BASE_PARALLEL_H

#include "base/pool.h"

#include <stdatomic.h>
#include <stdint.h>

/* The items of a loop, divided into shares for the threads. A share is a range of adjacent items. A thread takes the
 * items of its own share in order, and then the items that are left in other threads' shares. If there are more threads
 * than shares, some threads begin in another thread's share. */
enum { ATTN__SHARES = 64, ATTN__SHARE_LINE = 64 };
typedef struct attn__share {
    _Alignas(ATTN__SHARE_LINE) atomic_int_least64_t next;
    int64_t end;
} attn__share;
typedef struct attn__shares {
    int count;
    attn__share of[ATTN__SHARES];
} attn__shares;
void attn__share_out(attn__shares *shares, int threads, int64_t items);
/* returns the next item of the thread, or -1 if no item is left */
int64_t attn__share_take(attn__shares *shares, int thread);

/* Calls work(user, item, thread) once for each item in [0, items), with 0 <= thread < threads. attn__shares tells which
 * thread runs which items. Use this for large or uneven items. A second loop with the same number of items mostly runs
 * each item on the same thread, and so finds the data of the first loop in that thread's caches. */
void attn__parallel_items(int threads, int64_t items, void (*work)(void *user, int64_t item, int thread), void *user);

/* Calls work(user, begin, end) on disjoint ranges that cover [0, n). Only the last range may be shorter than `grain`.
 * Use this for loops over many small pieces of equal cost. If n <= grain, the caller's thread runs all of [0, n). */
void attn__parallel_range(int threads, int64_t n, int64_t grain, void (*work)(void *user, int64_t begin, int64_t end),
                          void *user);

#endif
