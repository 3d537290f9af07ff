/* SPDX-License-Identifier: MIT
 * labels: no-isa
 *
 * Tests the thread pool in processes that fork, with a limit on threads, and with few usable cores. Also tests the
 * default number of threads.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* needed for sched_setaffinity */
#endif
#include "support/cmocka.h"

#include "attn/attn.h"
#include "base/cgroup.h"
#include "base/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, N = 4096, PATIENCE = 60 };

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED true
#endif
#elif defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SANITIZED true
#endif
#ifndef SANITIZED
#define SANITIZED false
#endif

typedef struct squares {
    int threads;
    atomic_int wrong;
    int64_t of[N];
} squares;

static void square(void *user, int64_t item, int thread)
{
    squares *s = user;
    s->of[item] += item * item;
    if (thread < 0 || thread >= s->threads)
        atomic_fetch_add(&s->wrong, 1);
}

static bool computes(int threads)
{
    squares *s = calloc(1, sizeof *s);
    if (!s)
        return false;
    s->threads = threads;
    attn__parallel_items(threads, N, square, s);
    bool right = s->wrong == 0;
    for (int64_t i = 0; i < N; i++)
        right = right && s->of[i] == i * i;
    free(s);
    return right;
}

/* Runs `body` in a child process, which is killed if it hangs. Returns 0 if `body` returns true. */
static int in_child(bool (*body)(void))
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(PATIENCE);
        _exit(body() ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

/* -------------------------------------------------------------------------------------------------- forks */

static void all_come(void *user, int64_t item, int thread)
{
    atomic_int *arrived = user;
    (void)item;
    (void)thread;
    atomic_fetch_add(arrived, 1);
    while (atomic_load(arrived) < THREADS) /* An alarm ends the test if threads are missing. */
        sched_yield();
}

static bool child_has_threads(void)
{
    atomic_int arrived = 0;
    attn__parallel_items(THREADS, THREADS, all_come, &arrived);
    return computes(THREADS);
}

static bool child_forks_again(void)
{
    return child_has_threads() && in_child(child_has_threads) == 0 && child_has_threads();
}

static void a_child_makes_its_own_threads(void **state)
{
    assert_true(child_has_threads());
    assert_int_equal(in_child(child_has_threads), 0);
    assert_int_equal(in_child(child_forks_again), 0);
    assert_true(child_has_threads());
}

static atomic_bool stop;

static void *keep_busy(void *user)
{
    bool *right = user;
    while (!atomic_load(&stop))
        *right = *right && computes(THREADS);
    return NULL;
}

static void a_fork_while_others_are_in_regions(void **state)
{
    /* Sanitizers cannot run this test: a child inherits locks of their allocator that other threads hold at the
     * fork. */
    if (SANITIZED)
        skip();
    pthread_t threads[2];
    bool right[2] = {true, true};
    atomic_store(&stop, false);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, keep_busy, &right[i]), 0);
    for (int i = 0; i < 40; i++)
        assert_int_equal(in_child(child_has_threads), 0);
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_true(right[0] && right[1]);
}

/* --------------------------------------------------------------------------------- attention in the child */

enum { BATCH = 8, LENGTH = 33, WIDTH = 16, NUMBERS = BATCH * LENGTH * WIDTH };

typedef struct attention {
    float q[NUMBERS], k[NUMBERS], v[NUMBERS], o[NUMBERS];
} attention;

static bool attend(attention *a)
{
    attn_context *context;
    attn_plan *plan = NULL;
    attn_problem problem;
    attn_heads heads = {
        .batch = BATCH, .heads = 1, .queries = LENGTH, .keys = LENGTH, .dim = WIDTH, .layout = ATTN_LAYOUT_BTHD};
    attn_arrays arrays = {.q = a->q, .k = a->k, .v = a->v, .o = a->o};
    for (int i = 0; i < NUMBERS; i++) {
        a->q[i] = (float)(i * 37 % 101) / 50 - 1;
        a->k[i] = (float)(i * 53 % 97) / 50 - 1;
        a->v[i] = (float)(i * 71 % 89) / 50 - 1;
    }
    if (attn_context_create(&context, &(attn_context_options){.threads = THREADS}) != ATTN_OK)
        return false;
    bool done = attn_problem_heads(&problem, &heads) == ATTN_OK &&
                attn_plan_create(&plan, context, &problem, NULL) == ATTN_OK &&
                attn_plan_execute(plan, &arrays, NULL) == ATTN_OK;
    attn_plan_destroy(plan);
    attn_context_destroy(context);
    return done;
}

static attention parents;

static bool child_attends_the_same(void)
{
    static attention childs;
    return attend(&childs) && memcmp(childs.o, parents.o, sizeof childs.o) == 0;
}

static void a_child_attends_as_its_parent(void **state)
{
    assert_true(attend(&parents));
    for (int i = 0; i < 3; i++)
        assert_int_equal(in_child(child_attends_the_same), 0);
}

/* --------------------------------------------------------------------------------------- fewer than requested */

static size_t address_space(void)
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file)
        return 0;
    if (fscanf(file, "%zu", &pages) != 1)
        pages = 0;
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void *nothing(void *user)
{
    return user;
}

/* Limits the address space, so that only about `threads` more stacks fit. */
static bool limit_threads(int threads)
{
    size_t held = address_space(), more = ((size_t)threads * 4 + 3) << 20;
    struct rlimit limit = {held + more, held + more};
    return held > 0 && setrlimit(RLIMIT_AS, &limit) == 0;
}

static bool refused(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, (size_t)4 << 20);
    if (pthread_create(&thread, &attributes, nothing, NULL) != 0)
        return true;
    pthread_join(thread, NULL);
    return false;
}

static bool works_with(int threads)
{
    if (!limit_threads(threads))
        return false;
    for (int asked = 2; asked <= 16; asked += 7)
        for (int i = 0; i < 20; i++)
            if (!computes(asked))
                return false;
    return refused();
}

static bool child_with_none(void)
{
    return works_with(0);
}

static bool child_with_one(void)
{
    return works_with(1);
}

static bool child_with_two(void)
{
    return works_with(2);
}

static bool child_without_limit(void)
{
    return !limit_threads(0) || !refused();
}

static void fewer_threads_do_all_the_work(void **state)
{
    /* An emulator of a processor does not limit the address space of the program that it runs. */
    if (SANITIZED || address_space() == 0 || in_child(child_without_limit) == 0)
        skip();
    assert_int_equal(in_child(child_with_none), 0);
    assert_int_equal(in_child(child_with_one), 0);
    assert_int_equal(in_child(child_with_two), 0);
}

/* ------------------------------------------------------------------------------------------------- default */

static bool child_on_one_core(void)
{
#if defined(__linux__)
    attn_context *context;
    cpu_set_t set, one;
    size_t first = 0;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return false;
    while (!CPU_ISSET(first, &set))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0 || attn_context_create(&context, NULL) != ATTN_OK)
        return false;
    return attn_context_threads(context) == 1 && computes(THREADS);
#else
    return true;
#endif
}

static void the_affinity_mask_is_the_default(void **state)
{
    unsetenv("ATTN_THREADS");
    unsetenv("OMP_NUM_THREADS");
    assert_int_equal(in_child(child_on_one_core), 0);
}

/* Writes a file below the test's root folder and makes its folders. */
static void put(const char *root, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int cores_after(const char *root, const char *name, const char *text)
{
    put(root, name, text);
    return attn__cgroup_cores(root);
}

static void make_root(char *root)
{
    strcpy(root, "/tmp/attn-cgroup-XXXXXX");
    assert_non_null(mkdtemp(root));
}

static void remove_root(const char *root)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

static void quotas_of_version_2(void **state)
{
    char root[64];
    make_root(root);
    assert_int_equal(attn__cgroup_cores(root), 0);
    assert_int_equal(cores_after(root, "proc/self/cgroup", "0::/a/b\n"), 0);
    assert_int_equal(cores_after(root, "sys/fs/cgroup/a/b/cpu.max", "max 100000\n"), 0);
    assert_int_equal(cores_after(root, "sys/fs/cgroup/a/b/cpu.max", "400000 100000\n"), 4);
    /* The smallest limit in the folders of the path applies, rounded up. */
    assert_int_equal(cores_after(root, "sys/fs/cgroup/a/cpu.max", "150000 100000\n"), 2);
    /* In a container, this file is at the root. */
    assert_int_equal(cores_after(root, "sys/fs/cgroup/cpu.max", "1000 100000\n"), 1);
    assert_int_equal(cores_after(root, "proc/self/cgroup", "0::/not/there\n"), 1);
    assert_int_equal(cores_after(root, "proc/self/cgroup", "0::/\n"), 1);
    assert_int_equal(cores_after(root, "sys/fs/cgroup/cpu.max", "-5 100000\n"), 0);
    assert_int_equal(cores_after(root, "sys/fs/cgroup/cpu.max", "50000\n"), 0);
    assert_int_equal(cores_after(root, "sys/fs/cgroup/cpu.max", "300000 0\n"), 0);
    assert_int_equal(cores_after(root, "proc/self/cgroup", "nonsense\n::\n0\n"), 0);
    remove_root(root);
}

static void quotas_of_version_1(void **state)
{
    char root[64];
    make_root(root);
    put(root, "proc/self/cgroup", "5:cpuset:/a\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/\n");
    put(root, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cores_after(root, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"), 0);
    assert_int_equal(cores_after(root, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n"), 3);
    put(root, "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "50000\n");
    assert_int_equal(cores_after(root, "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "100000\n"), 2);
    put(root, "sys/fs/cgroup/cpuset/a/cpu.cfs_quota_us", "1000\n"); /* A file of another controller is ignored. */
    put(root, "sys/fs/cgroup/cpuset/a/cpu.cfs_period_us", "1000\n");
    assert_int_equal(attn__cgroup_cores(root), 2);
    /* the controller may be mounted under its short name */
    put(root, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    put(root, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "90000\n");
    assert_int_equal(attn__cgroup_cores(root), 1);
    remove_root(root);
}

/* fewer_threads_do_all_the_work must run first, because a child reuses the stacks of its parent's threads. */
RUN_TESTS(TEST(fewer_threads_do_all_the_work), TEST(a_child_makes_its_own_threads),
          TEST(a_fork_while_others_are_in_regions), TEST(a_child_attends_as_its_parent),
          TEST(the_affinity_mask_is_the_default), TEST(quotas_of_version_2), TEST(quotas_of_version_1))
