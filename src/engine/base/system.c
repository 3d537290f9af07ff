/* SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* declares sched_getaffinity and madvise */
#endif
#include "base/system.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif
#if defined(_WIN32)
#include <malloc.h>
#include <windows.h>
#else
#include <signal.h>
#include <unistd.h>
#endif
#if defined(__linux__)
#include <sched.h>
#include <sys/mman.h>
#endif

enum { STACK = 4 << 20 };

#if defined(_WIN32)

void *attn__system_alloc(size_t size, size_t align)
{
    return _aligned_malloc(size, align);
}

void attn__system_release(void *memory)
{
    _aligned_free(memory);
}

void attn__system_drop_pages(const void *data, size_t size)
{
    (void)data;
    (void)size;
}

void attn__system_trim(void)
{
}

int attn__online_cores(void)
{
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwNumberOfProcessors > 0 ? (int)info.dwNumberOfProcessors : 1;
}

int attn__usable_cores(void)
{
    DWORD_PTR mine = 0, all = 0;
    int cores = 0;
    if (GetProcessAffinityMask(GetCurrentProcess(), &mine, &all))
        for (; mine; mine &= mine - 1)
            cores++;
    return cores > 0 ? cores : attn__online_cores();
}

bool attn__heed_forks(void (*in_child)(void))
{
    (void)in_child;
    return true;
}

static bool create_thread(pthread_t *id, const pthread_attr_t *attributes, void *(*run)(void *user), void *user)
{
    return pthread_create(id, attributes, run, user) == 0;
}

#else

#define HUGE_PAGE ((size_t)2 << 20)

/* For blocks of at least 2 MiB, huge pages are requested, because rows that are kilobytes apart would otherwise need a
 * TLB entry each. Only whole huge pages are requested, so that no partly used huge page becomes resident. */
void *attn__system_alloc(size_t size, size_t align)
{
    void *memory = NULL;
    bool huge = size >= HUGE_PAGE;
    if (posix_memalign(&memory, huge ? HUGE_PAGE : align, size) != 0)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (huge) /* the result of madvise is ignored, because the memory works without huge pages */
        (void)madvise(memory, size / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
    return memory;
}

void attn__system_release(void *memory)
{
    free(memory);
}

void attn__system_drop_pages(const void *data, size_t size)
{
#ifdef MADV_DONTNEED
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)data;
    uintptr_t begin = (first + page - 1) / page * page, end = (first + size) / page * page;
    if (begin < end) /* the result of madvise is ignored: if it fails, the pages stay in memory and are valid */
        (void)madvise((char *)(uintptr_t)data + (begin - first), end - begin, MADV_DONTNEED);
#else
    (void)data;
    (void)size;
#endif
}

void attn__system_trim(void)
{
#if defined(__GLIBC__)
    (void)malloc_trim(0);
#endif
}

int attn__online_cores(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 ? (int)cores : 1;
}

int attn__usable_cores(void)
{
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
#endif
    return attn__online_cores();
}

bool attn__heed_forks(void (*in_child)(void))
{
    return pthread_atfork(NULL, NULL, in_child) == 0;
}

static bool create_thread(pthread_t *id, const pthread_attr_t *attributes, void *(*run)(void *user), void *user)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool created = pthread_create(id, attributes, run, user) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return created;
}

#endif

bool attn__start_thread(void *(*run)(void *user), void *user)
{
    pthread_t id;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK);
    bool started = create_thread(&id, &attributes, run, user);
    pthread_attr_destroy(&attributes);
    return started;
}
