/* SPDX-License-Identifier: MIT
 *
 * Prints the progress of long work from a thread, after some time without output. The thread counts ticks instead of
 * reading a clock, because a clock may stop or be set back.
 */
#include "command.h"
#include "progress.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

/* TICK is the length of a tick in seconds. SOON and SILENCE are numbers of ticks without output: SOON before the
 * first line about counted work, and SILENCE before later lines. */
enum { TICK = 2, SOON = 3, SILENCE = 10 };

static struct {
    int tick; /* in milliseconds */
    int out;  /* copy of the original standard error, which stays the same while output is captured */
    int stop[2];
    bool runs;
    pthread_t thread;
    attn_context *context;
    _Atomic(const char *) things;
    atomic_llong done, total;
    atomic_int ticks, silent; /* ticks since the work began, and ticks since the last output */
    atomic_bool told, waits, own;
    void (*show)(void *user, int64_t done, int64_t total);
    void *user;
} watch;

static void say(void)
{
    const char *things = atomic_load(&watch.things);
    long long done = atomic_load(&watch.done), total = atomic_load(&watch.total);
    int seconds = TICK * atomic_load(&watch.ticks);
    char text[32], line[160];
    int n;
    if (things && total < 0 && done > 0) {
        n = snprintf(line, sizeof line, "attn: %lld %s so far, %.1f %s/s\n", done, things,
                     (double)done / (seconds > 0 ? seconds : 1), things);
    } else if (things && total > 0 && done > 0) {
        cli_time_text((double)seconds / (double)done * (double)(total - done), text, sizeof text);
        n = snprintf(line, sizeof line, "attn: %lld of %lld %s, %s left\n", done, total, things, text);
    } else {
        cli_time_text(seconds, text, sizeof text);
        n = things && total > 0
                ? snprintf(line, sizeof line, "attn: the first of %lld %s, %s so far\n", total, things, text)
                : snprintf(line, sizeof line, "attn: still at work, %s so far\n", text);
    }
    static const char clear[] = "\r\033[K"; /* clears the line, because a progress bar may be on it */
    if (isatty(watch.out))
        (void)!write(watch.out, clear, sizeof clear - 1);
    (void)!write(watch.out, line, (size_t)n);
    atomic_store(&watch.silent, 0);
    atomic_store(&watch.told, true);
}

static void *run(void *unused)
{
    (void)unused;
    struct pollfd end = {.fd = watch.stop[0], .events = POLLIN};
    while (poll(&end, 1, watch.tick) == 0) {
        if (atomic_load(&watch.waits))
            continue;
        atomic_fetch_add(&watch.ticks, 1);
        int silent = atomic_fetch_add(&watch.silent, 1) + 1;
        bool counted = atomic_load(&watch.total) != 0 && atomic_load(&watch.done) > 0;
        if (silent >= SILENCE || (counted && silent >= SOON && !atomic_load(&watch.told)))
            say();
    }
    return NULL;
}

/* The time starts again if the kind of work is new, or if the same kind begins again. */
static void note(const char *things, int64_t done, int64_t total)
{
    if (things != atomic_load(&watch.things) || done < atomic_load(&watch.done)) {
        atomic_store(&watch.ticks, 0);
        atomic_store(&watch.told, false);
    }
    atomic_store(&watch.things, things);
    atomic_store(&watch.done, done);
    /* Waiting for input does not count as work. */
    atomic_store(&watch.total, total < 0 || done < total ? total : 0);
}

static bool library_works(void *user, const char *things, int64_t done, int64_t total)
{
    (void)user;
    if (!atomic_load(&watch.own))
        note(things, done, total);
    if (watch.show)
        watch.show(watch.user, done, total);
    return true;
}

void cli_watch_show(void (*show)(void *user, int64_t done, int64_t total), void *user)
{
    watch.show = show;
    watch.user = user;
}

void cli_watch_work(const char *things, int64_t done, int64_t total)
{
    note(total != 0 ? things : NULL, done, total);
    atomic_store(&watch.own, total != 0);
}

void cli_watch_said(void)
{
    atomic_store(&watch.silent, 0);
}

void cli_watch_waits(bool for_user)
{
    atomic_store(&watch.waits, for_user);
    atomic_store(&watch.silent, 0);
    atomic_store(&watch.ticks, 0);
}

/* Starts the thread. It blocks all signals, so that the command's own thread receives them. */
static bool start(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&watch.thread, NULL, run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

/* Without a thread or a file for output, the command works and prints less. */
void cli_watch_begin(attn_context *context, int tick)
{
    watch.tick = tick;
    watch.context = context;
    watch.out = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    if (watch.out < 0)
        return;
    if (pipe(watch.stop) == 0) {
        watch.runs = start();
        if (watch.runs) {
            attn_context_set_progress(context, library_works, NULL);
            return;
        }
        close(watch.stop[0]);
        close(watch.stop[1]);
    }
    close(watch.out);
}

void cli_watch_end(void)
{
    if (!watch.runs)
        return;
    attn_context_set_progress(watch.context, NULL, NULL);
    close(watch.stop[1]); /* Closing the pipe ends the thread's poll. */
    pthread_join(watch.thread, NULL);
    close(watch.stop[0]);
    close(watch.out);
    watch.runs = false;
}
