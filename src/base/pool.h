/* SPDX-License-Identifier: MIT
 *
 * pool.h - the process's threads: the only place that starts any.
 *
 * There is one pool for all contexts.  Its threads are created when a region first needs them, and stay.  A region uses
 * those that are free: several regions at once, of several application threads, share them.  An idle thread spins for
 * some microseconds, then sleeps.  A process that forks leaves the pool to the parent; the child makes its own.
 */
#ifndef ATTN_BASE_POOL_H
#define ATTN_BASE_POOL_H

#include <stdbool.h>

enum { ATTN__MAX_THREADS = 1024 };

/* Calls work(user, 0) here and work(user, t), for some of 0 < t < threads, each at most once, in threads of the
 * pool. Returns when these calls have returned. The pool does not wait for a thread that comes late or never. So the
 * calls that are made must share all of the work, and work(user, 0) alone must be able to do it. A call from within
 * a region, in any thread, runs only work(user, 0). The threads round and flush small numbers to zero as the
 * region's caller does, whichever caller created them; so results depend on the caller's mode, and not on the
 * threads. They take no signals. `work` must not fork. */
void attn__pool_run(int threads, void (*work)(void *user, int thread), void *user);

/* Whether this thread is within a region that more than one thread may work on. */
bool attn__pool_inside(void);

#endif
