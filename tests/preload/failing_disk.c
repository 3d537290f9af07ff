/* SPDX-License-Identifier: MIT
 *
 * A library to preload (LD_PRELOAD) that simulates a bad disk. The N-th call of the program to the file system fails,
 * or every read and write is cut short, or temporary files cannot be created. Calls of shared libraries, which read
 * fonts, do not fail. Writing to standard output does not fail either, because the C library makes these calls itself.
 *
 *     FAILING_DISK_AT=N         number of the call that fails, counted from 1; unset: no call fails
 *     FAILING_DISK_ON=1         all later calls fail too, as on a disk that stays full
 *     FAILING_DISK_SHORT=1      read and write transfer at most 7 bytes, and every third call is interrupted at its
 *                               start
 *     FAILING_DISK_TEMPORARY=1  tmpfile fails
 *     FAILING_DISK_REPORT=FILE  the file to which the number of calls is written
 */
#define _GNU_SOURCE
#include "program.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    long fail_at, calls;
    bool and_on, cut_short;
    const char *report;
} state;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Finds the C library's definition of a function. The pointer is copied through memory, because C has no cast from
 * an object pointer to a function pointer. */
#define REAL(type, name, ...)                                                                                          \
    static type (*real)(__VA_ARGS__);                                                                                  \
    if (!real)                                                                                                         \
    *(void **)(void *)&real = dlsym(RTLD_NEXT, name)

/* Counts a call if it is the program's own. Returns true and sets errno to `reason` if the call must fail. */
static bool counts_out(bool ours, int reason)
{
    if (!ours)
        return false;
    pthread_mutex_lock(&lock);
    long call = ++state.calls;
    pthread_mutex_unlock(&lock);
    bool fails = state.fail_at && (call == state.fail_at || (state.and_on && call > state.fail_at));
    if (fails)
        errno = reason;
    return fails;
}

/* Returns how many of `size` bytes are transferred. 0 means that the call is interrupted. */
static size_t portion(bool ours, size_t size)
{
    static unsigned turn;
    if (!state.cut_short || !ours || size == 0)
        return size;
    return ++turn % 3 == 0 ? 0 : size < 7 ? size : 7;
}

int open(const char *path, int flags, ...)
{
    REAL(int, "open", const char *, int, ...);
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & O_CREAT ? va_arg(more, mode_t) : 0;
    va_end(more);
    return counts_out(IS_OURS, flags & O_CREAT ? ENOSPC : EIO) ? -1 : real(path, flags, mode);
}

ssize_t read(int file, void *to, size_t size)
{
    REAL(ssize_t, "read", int, void *, size_t);
    size_t some = portion(IS_OURS, size);
    if (some == 0 && size > 0) {
        errno = EINTR;
        return -1;
    }
    return counts_out(IS_OURS, EIO) ? -1 : real(file, to, some);
}

ssize_t write(int file, const void *from, size_t size)
{
    REAL(ssize_t, "write", int, const void *, size_t);
    size_t some = portion(IS_OURS, size);
    if (some == 0 && size > 0) {
        errno = EINTR;
        return -1;
    }
    return counts_out(IS_OURS, ENOSPC) ? -1 : real(file, from, some);
}

int fsync(int file)
{
    REAL(int, "fsync", int);
    return counts_out(IS_OURS, EIO) ? -1 : real(file);
}

int fchmod(int file, mode_t mode)
{
    REAL(int, "fchmod", int, mode_t);
    return counts_out(IS_OURS, EIO) ? -1 : real(file, mode);
}

int rename(const char *from, const char *to)
{
    REAL(int, "rename", const char *, const char *);
    return counts_out(IS_OURS, ENOSPC) ? -1 : real(from, to);
}

int mkdir(const char *path, mode_t mode)
{
    REAL(int, "mkdir", const char *, mode_t);
    return counts_out(IS_OURS, ENOSPC) ? -1 : real(path, mode);
}

DIR *opendir(const char *path)
{
    REAL(DIR *, "opendir", const char *);
    return counts_out(IS_OURS, EIO) ? NULL : real(path);
}

struct dirent *readdir(DIR *folder)
{
    REAL(struct dirent *, "readdir", DIR *);
    return counts_out(IS_OURS, EIO) ? NULL : real(folder);
}

FILE *tmpfile(void)
{
    REAL(FILE *, "tmpfile", void);
    if (!IS_OURS || !getenv("FAILING_DISK_TEMPORARY"))
        return real();
    errno = ENOSPC;
    return NULL;
}

/* Only mappings of files fail here. failing_memory.c makes allocations fail. */
void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset)
{
    REAL(void *, "mmap", void *, size_t, int, int, int, off_t);
    return file >= 0 && counts_out(IS_OURS, ENODEV) ? MAP_FAILED : real(at, size, protection, flags, file, offset);
}

__attribute__((constructor)) static void begin(void)
{
    const char *at = getenv("FAILING_DISK_AT");
    state.fail_at = at ? atol(at) : 0;
    state.and_on = getenv("FAILING_DISK_ON") != NULL;
    state.cut_short = getenv("FAILING_DISK_SHORT") != NULL;
    state.report = getenv("FAILING_DISK_REPORT");
    dl_iterate_phdr(program_find, NULL);
}

__attribute__((destructor)) static void end(void)
{
    state.cut_short = false;
    FILE *file = state.report ? fopen(state.report, "w") : NULL;
    if (file) {
        fprintf(file, "%ld\n", state.calls);
        fclose(file);
    }
}
