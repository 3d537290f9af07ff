/* SPDX-License-Identifier: MIT
 *
 * parallel.h - loops that several threads share. pool.h has the threads.
 *
 * Which thread runs an item, and how many threads run, is not specified. Results must not depend on either. So give
 * each item its own output, and give each thread only scratch memory. An item never waits for another item, because one
 * thread may run all items. A loop inside of an item runs only on the thread of the item.
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
int64_t attn__share_take(attn__shares *shares, int thread); /* returns -1 if no item is left */

/* Calls work(user, item, thread) once for each item in [0, items), with 0 <= thread < threads, as attn__shares assigns
 * the items. Use this for large or uneven items. Suppose that two loops have the same items, and the second one reads
 * what the first one has written. Then a thread finds most of its data in its own caches. */
void attn__parallel_items(int threads, int64_t items, void (*work)(void *user, int64_t item, int thread), void *user);

/* Calls work(user, begin, end) on disjoint ranges that cover [0, n). Only the last range may be shorter than `grain`.
 * Use this for loops over many small pieces of equal cost. If n <= grain, the caller's thread runs all of [0, n). */
void attn__parallel_range(int threads, int64_t n, int64_t grain, void (*work)(void *user, int64_t begin, int64_t end),
                          void *user);

#endif
