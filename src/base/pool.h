/* SPDX-License-Identifier: MIT
 *
 * pool.h - the threads of the process. No other code starts threads.
 *
 * There is one pool for all contexts. Its threads are created when a region first needs them, and are kept. A region
 * uses the threads that are free. Regions of several application threads, which run at once, share the pool. An idle
 * thread spins for some microseconds, then sleeps. After a fork, the parent keeps the pool, and the child makes its
 * own.
 */
#ifndef ATTN_BASE_POOL_H
#define ATTN_BASE_POOL_H

#include <stdbool.h>

enum { ATTN__MAX_THREADS = 1024 };

/* Calls work(user, 0) in this thread, and work(user, t) for some of 0 < t < threads in threads of the pool, each at
 * most once. Returns when these calls have returned. The pool does not wait for a thread that comes late or never.
 * Therefore the calls that are made must share all of the work, and work(user, 0) alone must be able to do all of it. A
 * call from within a region, in any thread, runs only work(user, 0). The threads use the rounding mode of the region's
 * caller, and flush small numbers to zero if the caller does. Results therefore depend on the caller's mode, and not on
 * the threads. The threads take no signals. `work` must not fork. */
void attn__pool_run(int threads, void (*work)(void *user, int thread), void *user);

/* Returns whether this thread is within a region on which several threads may work. */
bool attn__pool_inside(void);

#endif
