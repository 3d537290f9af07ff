/* SPDX-License-Identifier: MIT
 * labels: no-isa
 *
 * Tests that the thread pool runs every item once, also in nested and concurrent regions, with fewer threads than
 * requested, and with idle threads.
 */
#include "support/cmocka.h"

#include "base/parallel.h"

#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 8, ITEMS = 200 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void rest(double time)
{
    nanosleep(&(struct timespec){(time_t)time, (long)((time - (double)(time_t)time) * 1e9)}, NULL);
}

/* Observations of a loop: how often each item ran, whether a thread number was too large, and whether two threads
 * used one number at the same time. */
typedef struct seen {
    int threads;
    atomic_int runs[ITEMS], busy[MOST], wrong;
} seen;

static void note_item(void *user, int64_t item, int thread)
{
    seen *s = user;
    if (thread < 0 || thread >= s->threads || atomic_fetch_add(&s->busy[thread], 1) != 0) {
        atomic_fetch_add(&s->wrong, 1);
        return;
    }
    atomic_fetch_add(&s->runs[item], 1);
    if (item % 7 == 0)
        sched_yield();
    atomic_fetch_sub(&s->busy[thread], 1);
}

static void note_range(void *user, int64_t begin, int64_t end)
{
    seen *s = user;
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add(&s->runs[i], 1);
}

static bool each_once(const seen *s, int64_t items)
{
    for (int64_t i = 0; i < ITEMS; i++)
        if (atomic_load(&s->runs[i]) != (i < items))
            return false;
    return atomic_load(&s->wrong) == 0;
}

static bool loops_are_right(int threads, int64_t items)
{
    seen by_item = {.threads = threads}, by_range = {.threads = threads};
    attn__parallel_items(threads, items, note_item, &by_item);
    attn__parallel_range(threads, items, 3, note_range, &by_range);
    return each_once(&by_item, items) && each_once(&by_range, items);
}

static void every_item_runs_once(void **state)
{
    static const int64_t items[] = {0, 1, 2, 3, 7, 64, 65, ITEMS};
    for (int threads = 1; threads <= MOST; threads++)
        for (size_t i = 0; i < sizeof items / sizeof *items; i++)
            assert_true(loops_are_right(threads, items[i]));
}

/* ---------------------------------------------------------------------------------------- those that come */

typedef struct meeting {
    int expected;
    atomic_int arrived;
} meeting;

/* Waits for the other items. Only tests may do this. */
static void meet(void *user, int64_t item, int thread)
{
    meeting *m = user;
    double begin = seconds();
    (void)item;
    (void)thread;
    atomic_fetch_add(&m->arrived, 1);
    while (atomic_load(&m->arrived) < m->expected && seconds() - begin < 20)
        sched_yield();
}

static void as_many_threads_come_as_are_asked_for(void **state)
{
    for (int threads = 2; threads <= MOST; threads += 3) {
        meeting m = {.expected = threads};
        double begin = seconds();
        attn__parallel_items(threads, threads, meet, &m);
        assert_int_equal(m.arrived, threads);
        assert_true(seconds() - begin < 20);
    }
}

typedef struct conditions {
    pthread_t caller;
    float large, small;
    atomic_int items, unblocked, rounded_down;
    meeting meeting;
} conditions;

static void look_at_thread(void *user, int64_t item, int thread)
{
    conditions *c = user;
    sigset_t blocked;
    volatile float large = c->large, small = c->small;
    meet(&c->meeting, item, thread);
    atomic_fetch_add(&c->items, 1);
    if (large + small <= large)
        atomic_fetch_add(&c->rounded_down, 1);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (!pthread_equal(pthread_self(), c->caller) && !(sigismember(&blocked, SIGINT) && sigismember(&blocked, SIGUSR1)))
        atomic_fetch_add(&c->unblocked, 1);
}

static void look_at_threads(conditions *c)
{
    *c = (conditions){.caller = pthread_self(), .large = 1, .small = 1e-9f, .meeting.expected = MOST};
    attn__parallel_items(MOST, MOST, look_at_thread, c);
}

static void threads_take_no_signals_and_round_as_the_caller(void **state)
{
    conditions c;
    look_at_threads(&c);
    assert_int_equal(c.items, MOST);
    assert_int_equal(c.rounded_down, MOST);
    fesetround(FE_UPWARD);
    look_at_threads(&c);
    fesetround(FE_TONEAREST);
    assert_int_equal(c.rounded_down, 0);
    assert_int_equal(c.unblocked, 0);
    look_at_threads(&c);
    assert_int_equal(c.rounded_down, MOST);
}

/* ------------------------------------------------------------------------------------------------- nested */

typedef struct inner {
    pthread_t outer;
    seen seen;
    atomic_int elsewhere;
} inner;

static void inner_item(void *user, int64_t item, int thread)
{
    inner *i = user;
    note_item(&i->seen, item, thread);
    if (!pthread_equal(pthread_self(), i->outer))
        atomic_fetch_add(&i->elsewhere, 1);
}

typedef struct outer {
    pthread_t caller;
    meeting meeting;
    atomic_int right, by_caller, by_others;
} outer;

static void outer_item(void *user, int64_t item, int thread)
{
    outer *o = user;
    inner *i = calloc(1, sizeof *i);
    i->outer = pthread_self();
    i->seen.threads = MOST;
    meet(&o->meeting, item, thread);
    attn__parallel_items(MOST, ITEMS, inner_item, i);
    if (each_once(&i->seen, ITEMS) && atomic_load(&i->elsewhere) == 0)
        atomic_fetch_add(&o->right, 1);
    atomic_fetch_add(pthread_equal(i->outer, o->caller) ? &o->by_caller : &o->by_others, 1);
    free(i);
}

/* Runs nested loops on three threads, whose items wait until `expected` threads have arrived. */
static bool nest(int expected)
{
    outer o = {.caller = pthread_self(), .meeting.expected = expected};
    attn__parallel_items(3, ITEMS, outer_item, &o);
    return o.right == ITEMS && o.by_caller + o.by_others == ITEMS &&
           (expected == 1 || (o.by_caller > 0 && o.by_others > 1));
}

static void nested_regions_run_on_their_items_thread(void **state)
{
    assert_true(nest(3));
    assert_false(attn__pool_inside());
}

/* ------------------------------------------------------------------------------------------- at the same time */

static void *repeat_loops(void *user)
{
    bool *right = user;
    *right = true;
    for (int i = 0; i < 60; i++)
        *right = *right && loops_are_right(2 + i % (MOST - 1), 1 + i * 37 % ITEMS);
    *right = *right && nest(1); /* This loop may run on its caller only, because all other threads may be busy. */
    return NULL;
}

static void application_threads_share_the_pool(void **state)
{
    pthread_t threads[MOST];
    bool right[MOST] = {false};
    for (int i = 0; i < MOST; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, repeat_loops, &right[i]), 0);
    for (int i = 0; i < MOST; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < MOST; i++)
        assert_true(right[i]);
}

typedef struct holding {
    meeting meeting;
    atomic_bool release;
} holding;

static void hold(void *user, int64_t item, int thread)
{
    holding *h = user;
    double begin = seconds();
    meet(&h->meeting, item, thread);
    while (!atomic_load(&h->release) && seconds() - begin < 20)
        rest(0.001);
}

static void *hold_the_pool(void *user)
{
    attn__parallel_items(MOST, MOST, hold, user);
    return NULL;
}

static void region_without_free_workers_runs_on_its_caller(void **state)
{
    holding h = {.meeting.expected = MOST};
    pthread_t holder;
    assert_int_equal(pthread_create(&holder, NULL, hold_the_pool, &h), 0);
    while (atomic_load(&h.meeting.arrived) < MOST)
        rest(0.001);
    double begin = seconds();
    assert_true(loops_are_right(MOST, ITEMS));
    assert_true(seconds() - begin < 10);
    assert_false(atomic_load(&h.release));
    atomic_store(&h.release, true);
    pthread_join(holder, NULL);
}

/* -------------------------------------------------------------------------------------------------- idle */

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void idle_threads_sleep(void **state)
{
    meeting m = {.expected = MOST};
    attn__parallel_items(MOST, MOST, meet, &m);
    rest(0.1);
    double begin = cpu_seconds();
    rest(0.5);
    assert_true(cpu_seconds() - begin < 0.05); /* A sanitizer's own thread may use some time. */
}

RUN_TESTS(TEST(every_item_runs_once), TEST(as_many_threads_come_as_are_asked_for),
          TEST(threads_take_no_signals_and_round_as_the_caller), TEST(nested_regions_run_on_their_items_thread),
          TEST(application_threads_share_the_pool), TEST(region_without_free_workers_runs_on_its_caller),
          TEST(idle_threads_sleep))
