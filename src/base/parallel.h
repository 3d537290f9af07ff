/* SPDX-License-Identifier: MIT
 *
 * parallel.h - loops that several threads share; pool.h has the threads.
 *
 * Neither function promises which thread runs what, nor how many there are, so results must not depend on it: give each
 * item its own output, and each thread only scratch memory.  An item never waits for another: one thread may run them
 * all.  Within an item both run on its thread alone.
 */
#ifndef ATTN_BASE_PARALLEL_H
#define ATTN_BASE_PARALLEL_H

#include "base/pool.h"

#include <stdatomic.h>
#include <stdint.h>

/* Items that threads take one by one: each has neighbouring ones of its own, in order, then the next ones of any thread
 * that still has some.  Where there are more threads than shares, some begin with another's. */
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
int64_t attn__share_take(attn__shares *shares, int thread); /* -1: none is left */

/* Calls work(user, item, thread) once for each item in [0, items), 0 <= thread < threads, as attn__shares has them.
 * For items that are large and uneven.  Data that a region has written in the order of its items is, if the next one
 * reads it in that order, mostly in the caches of the thread that reads. */
void attn__parallel_items(int threads, int64_t items, void (*work)(void *user, int64_t item, int thread), void *user);

/* Calls work(user, begin, end) on disjoint ranges that cover [0, n), none shorter than `grain` but the last.
 * For loops over many small equal pieces.  One range, on the caller's thread, where n <= grain. */
void attn__parallel_range(int threads, int64_t n, int64_t grain, void (*work)(void *user, int64_t begin, int64_t end),
                          void *user);

#endif
