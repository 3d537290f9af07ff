/* SPDX-License-Identifier: MIT
 *
 * pool.h - the threads of the process. No other code starts threads.
 *
 * All contexts share one pool. Its threads are created when a parallel region first needs them, and are never ended. A
 * region uses the threads that are free at the moment. If several application threads run regions at the same time,
 * these regions divide the free threads among them. An idle thread spins for some microseconds, then sleeps. After a
 * fork, the child makes its own pool. attn_set_openmp (attn.h) replaces the pool's threads by those of an OpenMP
 * runtime.
 */
#ifndef ATTN_BASE_POOL_H
#define ATTN_BASE_POOL_H

#include <stdbool.h>

enum { ATTN__MAX_THREADS = 1024 };

/* Calls work(user, 0) in this thread, and work(user, t) for some of 0 < t < threads in threads of the pool, each at
 * most once. Returns when all of these calls have returned. The pool does not wait for a thread that is not ready.
 * Therefore any subset of the calls that includes work(user, 0) must do all of the work. If attn__pool_run is called
 * within a region, it runs only work(user, 0). All threads use the caller's rounding mode and the caller's flushing of
 * small numbers to zero, so that results do not depend on the threads. The pool's own threads receive no signals.
 * `work` must not fork. */
void attn__pool_run(int threads, void (*work)(void *user, int thread), void *user);

/* Returns whether this thread is running a part of a region that may use several threads. */
bool attn__pool_inside(void);

#endif
