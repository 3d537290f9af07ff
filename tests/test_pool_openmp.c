/* SPDX-License-Identifier: MIT
 * labels: no-isa
 *
 * Tests that parallel regions run on the threads of an OpenMP runtime (attn_set_openmp). The runtime of this test starts
 * its threads with pthread_create for each region, and has the rules of libgomp: the team has the default size unless a
 * size is given, the caller is thread 0, and a region within a region has a team of one.
 */
#include "support/cmocka.h"

#include "attn/attn.h"
#include "base/parallel.h"

#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEAM = 4, ITEMS = 300, PATIENCE = 60 };

static atomic_int regions, started;
static _Thread_local int number, level;

/* Returns whether this thread rounds sums up. fegetround would read the control word of another unit. */
static bool rounds_up(void)
{
    volatile float large = 1, small = 1e-9f;
    return large + small > large;
}

typedef struct member {
    void (*work)(void *user);
    void *user;
    int number;
    bool unchanged; /* the thread rounds to nearest after its work, as before */
} member;

static void *run_member(void *user)
{
    member *m = user;
    number = m->number;
    level = 1;
    fesetround(FE_TONEAREST); /* as a thread that began before its caller's rounding mode was changed */
    atomic_fetch_add(&started, 1);
    m->work(m->user);
    m->unchanged = !rounds_up();
    return NULL;
}

static atomic_int changed;

static void fake_parallel(void (*work)(void *user), void *user, unsigned threads, unsigned flags)
{
    int before = number, size = level > 0 ? 1 : threads > 0 ? (int)threads : TEAM;
    pthread_t thread[TEAM];
    member members[TEAM];
    assert_int_equal(flags, 0);
    atomic_fetch_add(&regions, 1);
    for (int i = 1; i < size; i++) {
        members[i] = (member){.work = work, .user = user, .number = i};
        assert_int_equal(pthread_create(&thread[i], NULL, run_member, &members[i]), 0);
    }
    number = 0;
    level++;
    work(user);
    level--;
    number = before;
    for (int i = 1; i < size; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        atomic_fetch_add(&changed, !members[i].unchanged);
    }
}

static int fake_max_threads(void)
{
    return TEAM;
}

static int fake_thread_number(void)
{
    return number;
}

static const attn_openmp fake = {fake_parallel, fake_max_threads, fake_thread_number};

static int set_fake(void **state)
{
    (void)state;
    atomic_store(&regions, 0);
    atomic_store(&started, 0);
    return attn_set_openmp(&fake) != ATTN_OK;
}

static int set_none(void **state)
{
    (void)state;
    return attn_set_openmp(NULL) != ATTN_OK;
}

/* -------------------------------------------------------------------------------------------------- loops */

typedef struct seen {
    int threads;
    atomic_int runs[ITEMS], busy[TEAM + 2], wrong, inside, elsewhere;
    pthread_t caller;
} seen;

static void note(void *user, int64_t item, int thread)
{
    seen *s = user;
    if (thread < 0 || thread >= s->threads || atomic_fetch_add(&s->busy[thread], 1) != 0) {
        atomic_fetch_add(&s->wrong, 1);
        return;
    }
    atomic_fetch_add(&s->runs[item], 1);
    atomic_fetch_add(&s->inside, attn__pool_inside());
    if (!pthread_equal(pthread_self(), s->caller))
        atomic_fetch_add(&s->elsewhere, 1);
    if (item % 5 == 0)
        sched_yield();
    atomic_fetch_sub(&s->busy[thread], 1);
}

static bool each_once(seen *s, int threads)
{
    memset(s, 0, sizeof *s);
    s->threads = threads;
    s->caller = pthread_self();
    attn__parallel_items(threads, ITEMS, note, s);
    bool right = s->wrong == 0 && (threads == 1 || s->inside == ITEMS) && !attn__pool_inside();
    for (int i = 0; i < ITEMS; i++)
        right = right && s->runs[i] == 1;
    return right;
}

static void regions_run_on_the_runtimes_threads(void **state)
{
    seen s;
    assert_true(each_once(&s, TEAM));
    assert_int_equal(regions, 1);
    assert_int_equal(started, TEAM - 1);
    assert_true(each_once(&s, 1));
    assert_int_equal(regions, 1);
    assert_int_equal(attn_set_openmp(NULL), ATTN_OK);
    assert_true(each_once(&s, TEAM));
    assert_int_equal(regions, 1);
}

static void threads_that_a_region_does_not_want_do_nothing(void **state)
{
    seen s;
    for (int threads = 2; threads < TEAM; threads++)
        assert_true(each_once(&s, threads));
    assert_int_equal(started, (TEAM - 2) * (TEAM - 1));
}

static void region_of_more_threads_than_the_runtime_has_runs_on_the_pool(void **state)
{
    seen s;
    assert_true(each_once(&s, TEAM + 1));
    assert_int_equal(regions, 0);
}

/* ------------------------------------------------------------------------------------------------- nested */

static void loop_in_a_team(void *user)
{
    atomic_int *right = user;
    seen s;
    bool fine = each_once(&s, TEAM) && s.elsewhere == 0;
    atomic_fetch_add(right, fine);
}

static void region_within_a_region_of_openmp_runs_on_its_caller(void **state)
{
    atomic_int right = 0;
    fake_parallel(loop_in_a_team, &right, 0, 0);
    assert_int_equal(right, TEAM);
}

static void nest_item(void *user, int64_t item, int thread)
{
    (void)item;
    (void)thread;
    seen s = {.threads = TEAM, .caller = pthread_self()};
    attn__parallel_items(TEAM, ITEMS, note, &s);
    atomic_fetch_add((atomic_int *)user, s.wrong == 0 && s.elsewhere == 0 && s.inside == ITEMS);
}

static void region_within_a_region_of_attn_runs_on_its_items_thread(void **state)
{
    atomic_int right = 0;
    attn__parallel_items(TEAM, TEAM, nest_item, &right);
    assert_int_equal(right, TEAM);
    assert_int_equal(regions, 1);
}

/* --------------------------------------------------------------------------------------------- conditions */

static void look_at_rounding(void *user, int64_t item, int thread)
{
    (void)item;
    (void)thread;
    atomic_fetch_add((atomic_int *)user, rounds_up());
}

static void threads_round_as_the_caller_and_then_as_before(void **state)
{
    atomic_int upward = 0;
    atomic_store(&changed, 0);
    fesetround(FE_UPWARD);
    attn__parallel_items(TEAM, ITEMS, look_at_rounding, &upward);
    fesetround(FE_TONEAREST);
    assert_int_equal(upward, ITEMS);
    assert_int_equal(changed, 0);
}

static void *repeat(void *user)
{
    bool *right = user;
    seen s;
    *right = true;
    for (int i = 0; i < 20; i++)
        *right = *right && each_once(&s, 2 + i % TEAM);
    return NULL;
}

static void application_threads_have_their_own_teams(void **state)
{
    pthread_t threads[TEAM];
    bool right[TEAM];
    for (int i = 0; i < TEAM; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, repeat, &right[i]), 0);
    for (int i = 0; i < TEAM; i++) {
        pthread_join(threads[i], NULL);
        assert_true(right[i]);
    }
    assert_true(regions > 0);
}

/* -------------------------------------------------------------------------------------------------- errors */

static void runtime_without_a_function_is_refused_by_its_name(void **state)
{
    attn_openmp bad[] = {fake, fake, fake};
    const char *names[] = {"parallel", "max_threads", "thread_number"};
    bad[0].parallel = NULL;
    bad[1].max_threads = NULL;
    bad[2].thread_number = NULL;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(attn_set_openmp(&bad[i]), ATTN_ERROR_ARGUMENT);
        assert_non_null(strstr(attn_context_error(NULL), names[i]));
    }
}

static bool child_uses_its_own_threads(void)
{
    seen s;
    int before = regions;
    return each_once(&s, TEAM) && regions == before && attn_set_openmp(&fake) == ATTN_ERROR_UNSUPPORTED &&
           strstr(attn_context_error(NULL), "forked") && each_once(&s, TEAM) && regions == before &&
           attn_set_openmp(NULL) == ATTN_OK;
}

static void forked_child_uses_its_own_threads(void **state)
{
    seen s;
    assert_true(each_once(&s, TEAM));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(PATIENCE);
        _exit(child_uses_its_own_threads() ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(each_once(&s, TEAM));
    assert_int_equal(regions, 2);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_fake, set_none)
RUN_TESTS(CASE(regions_run_on_the_runtimes_threads), CASE(threads_that_a_region_does_not_want_do_nothing),
          CASE(region_of_more_threads_than_the_runtime_has_runs_on_the_pool),
          CASE(region_within_a_region_of_openmp_runs_on_its_caller),
          CASE(region_within_a_region_of_attn_runs_on_its_items_thread),
          CASE(threads_round_as_the_caller_and_then_as_before), CASE(application_threads_have_their_own_teams),
          CASE(runtime_without_a_function_is_refused_by_its_name), CASE(forked_child_uses_its_own_threads))
