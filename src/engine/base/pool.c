/* SPDX-License-Identifier: MIT */
#include "base/pool.h"

#include "base/clock.h"
#include "base/context.h"
#include "base/float_mode.h"
#include "base/system.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* How often a waiting thread polls before it sleeps. It first pauses between polls (about 10 microseconds in all), then
 * yields its core between polls (about 50 microseconds more). The next parallel region usually begins within this time,
 * and sleeping and waking would take about as long. */
enum { PAUSES = 500, YIELDS = 100 };

/* A running parallel region. It is stored on its caller's stack. */
typedef struct region {
    void (*work)(void *user, int thread);
    void *user;
    attn__float_mode mode;
    /* Number of workers that joined and have not left, plus SLEEPS while the caller sleeps. The caller adds the workers
     * that joined only at the end of the region. Until then the value is negative if workers have left. */
    atomic_int running;
    bool all_left; /* protected by the mutex `leaving` */
    int threads;   /* including the caller */
    /* workers[t] is the index of the worker that runs thread t; workers[0] is unused, because thread 0 is the caller */
    uint16_t workers[ATTN__MAX_THREADS];
} region;

enum { SLEEPS = 1 << 20 };

/* A thread of the pool. `offer` is NULL while the thread is free, and TAKEN while the thread works or another thread
 * writes an offer. Otherwise `offer` is the region that the thread may join. */
typedef struct worker {
    _Alignas(64) _Atomic(region *) offer;
    int thread; /* index of this thread in the region; written by the thread that makes the offer */
    atomic_bool asleep;
    pthread_mutex_t lock;
    pthread_cond_t wake;
} worker;

static region taken_region;
#define TAKEN (&taken_region)

static worker workers[ATTN__MAX_THREADS];
static atomic_int worker_count;
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
static double refused_at; /* time at which the system last refused to start a thread; 0: never */
static pthread_mutex_t leaving = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t left = PTHREAD_COND_INITIALIZER;
static _Thread_local bool inside;

bool attn__pool_inside(void)
{
    return inside;
}

/* --------------------------------------------------------------------------------------------- waiting */

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

static bool spin(bool (*ready)(void *what), void *what)
{
    for (int i = 0; i < PAUSES + YIELDS; i++) {
        if (ready(what))
            return true;
        if (i < PAUSES)
            relax();
        else
            sched_yield();
    }
    return false;
}

static bool offered(void *what)
{
    worker *w = what;
    region *offer = atomic_load(&w->offer);
    return offer && offer != TAKEN;
}

static void sleep_until_offered(worker *w)
{
    pthread_mutex_lock(&w->lock);
    for (;;) {
        atomic_store(&w->asleep, true);
        /* `asleep` must be written before `offer` is read here. The offering thread writes `offer` before it reads
         * `asleep`, so at least one of the two threads reads what the other has written. */
        if (offered(w))
            break;
        pthread_cond_wait(&w->wake, &w->lock);
    }
    atomic_store(&w->asleep, false);
    pthread_mutex_unlock(&w->lock);
}

static void wake(worker *w)
{
    if (!atomic_load(&w->asleep) || !atomic_exchange(&w->asleep, false))
        return;
    pthread_mutex_lock(&w->lock);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

/* Wakes two other threads of the region. Each woken thread also wakes two, so many threads wake quickly. */
static void wake_next(const region *r, int thread)
{
    for (int t = 2 * thread + 1; t <= 2 * thread + 2 && t < r->threads; t++)
        wake(&workers[r->workers[t]]);
}

/* --------------------------------------------------------------------------------------------- workers */

/* Leaves the region. The region must not be read after this, because it is on the caller's stack and may not exist when
 * its last worker has left. If the caller sleeps, the region exists until `all_left` is set. */
static void leave(region *r)
{
    if (atomic_fetch_sub(&r->running, 1) != SLEEPS + 1)
        return;
    pthread_mutex_lock(&leaving);
    r->all_left = true;
    pthread_cond_broadcast(&left);
    pthread_mutex_unlock(&leaving);
}

static void *serve(void *user)
{
    worker *w = user;
    inside = true;
    for (;;) {
        if (!spin(offered, w))
            sleep_until_offered(w);
        region *r = atomic_load(&w->offer);
        if (!r || r == TAKEN || !atomic_compare_exchange_strong(&w->offer, &r, TAKEN))
            continue; /* another thread took the offer back: the region ended before this worker could join */
        int thread = w->thread;
        wake_next(r, thread);
        attn__float_mode_set(r->mode);
        r->work(r->user, thread);
        /* `offer` is reset before leave(), so that the caller can use this worker in its next region */
        atomic_store(&w->offer, NULL);
        leave(r);
    }
    return NULL;
}

/* Makes the pool of a forked child empty, because the child has none of the pool's threads. The locks are also new,
 * because another thread may have held a lock during the fork. */
static void begin_anew(void)
{
    atomic_store(&worker_count, 0);
    refused_at = 0;
    pthread_mutex_init(&making, NULL);
    pthread_mutex_init(&leaving, NULL);
    pthread_cond_init(&left, NULL);
}

static void forget_openmp(void);

/* Prepares the pool of a forked child, which has none of the threads of its parent. */
static void begin_anew_in_child(void)
{
    begin_anew();
    forget_openmp();
}

/* Registers the fork handler. Registering it twice is harmless. Returns false if the system refused. */
static bool heed_forks(void)
{
    static atomic_bool heeds;
    if (!atomic_load(&heeds) && !attn__heed_forks(begin_anew_in_child))
        return false;
    atomic_store(&heeds, true);
    return true;
}

static bool start(worker *w)
{
    atomic_store(&w->offer, NULL);
    atomic_store(&w->asleep, false);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    return attn__start_thread(serve, w);
}

/* Starts workers until the pool has `count` workers, or until the system refuses to start one. After a refusal, no
 * start is tried for a second, because a refused start may take longer than a whole region. */
static void grow(int count)
{
    const double again = 1;
    /* The fork handler is registered before the lock is taken. Otherwise a fork in another thread would leave the
     * lock held in the child. */
    if (!heed_forks())
        return;
    pthread_mutex_lock(&making);
    int have = atomic_load(&worker_count);
    bool may = refused_at <= 0 || attn__seconds_since(refused_at) > again;
    while (may && have < count) {
        may = start(&workers[have]);
        if (may)
            atomic_store(&worker_count, ++have);
        else
            refused_at = attn__now();
    }
    pthread_mutex_unlock(&making);
}

/* ---------------------------------------------------------------------------------------------- OpenMP */

/* The runtimes that were ever set. They stay in this list, because a region may still use a runtime that was replaced. */
enum { RUNTIMES = 8 };
static attn_openmp runtimes[RUNTIMES];
static int runtime_count;
static pthread_mutex_t setting = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(const attn_openmp *) openmp; /* NULL: regions run on the pool's own threads */
static atomic_bool forked;                  /* this process is a child without the threads of the runtimes */

static void forget_openmp(void)
{
    pthread_mutex_init(&setting, NULL);
    /* A runtime whose threads were lost in the fork would wait for them forever. */
    atomic_store(&forked, atomic_load(&forked) || runtime_count > 0);
    atomic_store(&openmp, NULL);
}

/* Finds the runtime in the list, or adds it. Returns NULL if the list is full. The caller holds the lock. */
static const attn_openmp *keep_runtime(const attn_openmp *runtime)
{
    for (int i = 0; i < runtime_count; i++)
        if (runtimes[i].parallel == runtime->parallel && runtimes[i].max_threads == runtime->max_threads &&
            runtimes[i].thread_number == runtime->thread_number)
            return &runtimes[i];
    if (runtime_count == RUNTIMES)
        return NULL;
    runtimes[runtime_count] = *runtime;
    return &runtimes[runtime_count++];
}

attn_status attn_set_openmp(const attn_openmp *runtime)
{
    ATTN__CALL(NULL);
    if (!runtime) {
        atomic_store(&openmp, NULL);
        return ATTN_OK;
    }
    if (!runtime->parallel || !runtime->max_threads || !runtime->thread_number)
        return attn__fail(NULL, ATTN_ERROR_ARGUMENT, "openmp: %s is NULL",
                          !runtime->parallel      ? "parallel"
                          : !runtime->max_threads ? "max_threads"
                                                  : "thread_number");
    if (!heed_forks())
        return attn__fail(NULL, ATTN_ERROR_MEMORY, "out of memory: cannot register a function to call after fork()");
    pthread_mutex_lock(&setting);
    const attn_openmp *kept = atomic_load(&forked) ? NULL : keep_runtime(runtime);
    if (kept)
        atomic_store(&openmp, kept);
    pthread_mutex_unlock(&setting);
    if (!kept)
        return attn__fail(NULL, ATTN_ERROR_UNSUPPORTED, "openmp: %s",
                          atomic_load(&forked)
                              ? "this process was forked from one that used the runtime's threads, and so "
                                "cannot use the runtime"
                              : "8 other runtimes were given before; at most 8 are supported");
    return ATTN_OK;
}

typedef struct team {
    const attn_openmp *runtime;
    void (*work)(void *user, int thread);
    void *user;
    int threads;
    attn__float_mode mode;
} team;

/* Runs in each thread of the OpenMP team, which may have more threads than the region wants. */
static void join_team(void *user)
{
    const team *t = user;
    int thread = t->runtime->thread_number();
    if (thread >= t->threads)
        return;
    attn__float_mode before = attn__float_mode_get();
    attn__float_mode_set(t->mode);
    inside = true;
    t->work(t->user, thread);
    inside = false;
    attn__float_mode_set(before);
}

/* Runs the region on the threads of the OpenMP runtime. Returns false if the runtime has fewer threads. The team always
 * has the runtime's default size, which is the size of the application's own teams. libgomp would end and start threads
 * to change the size. */
static bool run_team(int threads, void (*work)(void *user, int thread), void *user)
{
    const attn_openmp *runtime = atomic_load(&openmp);
    if (!runtime || runtime->max_threads() < threads)
        return false;
    team t = {runtime, work, user, threads, attn__float_mode_get()};
    runtime->parallel(join_team, &t, 0, 0);
    return true;
}

/* --------------------------------------------------------------------------------------------- regions */

/* Workers that ran the last region are preferred. */
static void offer(region *r, int threads)
{
    if (atomic_load(&worker_count) < threads - 1)
        grow(threads - 1);
    int count = atomic_load(&worker_count);
    for (int i = 0; i < count && r->threads < threads; i++) {
        worker *w = &workers[i];
        region *free = NULL;
        if (atomic_load(&w->offer) || !atomic_compare_exchange_strong(&w->offer, &free, TAKEN))
            continue;
        w->thread = r->threads;
        r->workers[r->threads++] = (uint16_t)i;
    }
    /* the list `workers` must be complete before the offers are made, because a worker that joins reads the whole
     * list */
    for (int t = 1; t < r->threads; t++)
        atomic_store(&workers[r->workers[t]].offer, r);
}

/* Withdraws the offer from the workers that have not joined. Returns the number of workers that have joined. */
static int withdraw(region *r)
{
    int joined = 0;
    for (int t = 1; t < r->threads; t++) {
        region *mine = r;
        joined += !atomic_compare_exchange_strong(&workers[r->workers[t]].offer, &mine, NULL);
    }
    return joined;
}

static bool nobody_runs(void *what)
{
    region *r = what;
    return atomic_load(&r->running) == 0;
}

static void wait_for_workers(region *r)
{
    atomic_fetch_add(&r->running, withdraw(r));
    if (spin(nobody_runs, r) || atomic_fetch_add(&r->running, SLEEPS) == 0)
        return;
    pthread_mutex_lock(&leaving);
    while (!r->all_left)
        pthread_cond_wait(&left, &leaving);
    pthread_mutex_unlock(&leaving);
}

void attn__pool_run(int threads, void (*work)(void *user, int thread), void *user)
{
    if (threads <= 1 || inside) {
        work(user, 0);
        return;
    }
    if (run_team(threads, work, user))
        return;
    region r; /* not initialized as a whole, because `workers` is kilobytes large */
    r.work = work;
    r.user = user;
    r.mode = attn__float_mode_get();
    r.all_left = false;
    r.threads = 1;
    atomic_init(&r.running, 0);
    offer(&r, threads < ATTN__MAX_THREADS ? threads : ATTN__MAX_THREADS);
    inside = true;
    wake_next(&r, 0);
    work(user, 0);
    wait_for_workers(&r);
    inside = false;
}
