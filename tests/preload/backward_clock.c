/* SPDX-License-Identifier: MIT
 *
 * A library to preload (LD_PRELOAD) whose clocks run backwards.
 *
 *     BACKWARD_CLOCK=steady  each reading is a third of a second before the last reading
 *     BACKWARD_CLOCK=jumps   each reading is the real time, except every fifth, which is an hour earlier */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int clock_gettime(clockid_t clock, struct timespec *t)
{
    static int (*real)(clockid_t, struct timespec *);
    static long long readings;
    if (!real)
        /* C has no cast from an object pointer to a function pointer. */
        *(void **)(void *)&real = dlsym(RTLD_NEXT, "clock_gettime");
    const char *how = getenv("BACKWARD_CLOCK");
    int result = real(clock, t);
    pthread_mutex_lock(&lock);
    long long reading = ++readings;
    pthread_mutex_unlock(&lock);
    if (how && strcmp(how, "steady") == 0) {
        long long at = 4000000000000000000LL - reading * 333333333LL;
        t->tv_sec = at / 1000000000LL;
        t->tv_nsec = at % 1000000000LL;
    } else if (how && reading % 5 == 0) {
        t->tv_sec -= 3600;
    }
    return result;
}

time_t time(time_t *to)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (to)
        *to = t.tv_sec;
    return t.tv_sec;
}

int gettimeofday(struct timeval *restrict to, void *restrict zone)
{
    struct timespec t;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &t);
    to->tv_sec = t.tv_sec;
    to->tv_usec = t.tv_nsec / 1000;
    return 0;
}
