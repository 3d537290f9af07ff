/* SPDX-License-Identifier: MIT
 *
 * A library to preload (LD_PRELOAD) that makes the N-th allocation of the program's own code fail. At the end, it
 * writes the number of allocations and the number of blocks that are not freed to a file. Allocations of shared
 * libraries do not fail. The library that users install contains nothing of this.
 *
 *     FAILING_MEMORY_AT=N        number of the allocation that fails, counted from 1; unset: no allocation fails
 *     FAILING_MEMORY_OWN=1       only allocations of the command's own code count, and not those of the library, which
 *                                calls posix_memalign
 *     FAILING_MEMORY_ON=1        all later allocations fail too
 *     FAILING_MEMORY_REPORT=FILE the file to which "CALLS HELD" is written: the allocations, and the blocks that are
 *                                not freed
 *     FAILING_MEMORY_FORK=A,B    for programs that take minutes: each allocation fails in a child process of its own.
 *                                The child continues from there in the folder child/, a copy of the working folder. In
 *                                every fifth child, all later allocations fail too. The number of the allocation is
 *                                written to descriptor A. Then a byte is read from descriptor B: 'f' starts the child,
 *                                and any other byte skips this allocation. The child's exit status is written to A.
 *     FAILING_MEMORY_SITES=1     only the first allocation of each call stack fails
 *     FAILING_MEMORY_TRACE=1     prints the call stack of the failing call on standard error, as addresses for
 *                                addr2line -fe attn ADDRESS...
 */
#define _GNU_SOURCE
#include "program.h"

#include <dirent.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* dlsym cannot look up the allocation functions, because the loader itself allocates. So glibc's own names are
 * declared here. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *memory);

static struct {
    long fail_at, calls, held;
    bool own, and_on, forks, sites;
    int ask, go; /* file descriptors A and B of FAILING_MEMORY_FORK */
    const char *report;
} state;

/* A hash table of the addresses of the program's blocks, with open addressing. 0 marks an empty slot, and 1 marks a
 * freed block. */
enum { PLACES = 1 << 20 };
static uintptr_t blocks[PLACES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t place_of(uintptr_t block)
{
    return (size_t)((block >> 4) * 0x9e3779b97f4a7c15u >> 44) % PLACES;
}

static void *note(void *memory)
{
    if (!memory)
        return NULL;
    pthread_mutex_lock(&lock);
    size_t i = place_of((uintptr_t)memory);
    while (blocks[i] > 1)
        i = (i + 1) % PLACES;
    blocks[i] = (uintptr_t)memory;
    state.held++;
    pthread_mutex_unlock(&lock);
    return memory;
}

static bool forget(void *memory)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (size_t i = place_of((uintptr_t)memory); blocks[i] && !found; i = (i + 1) % PLACES) {
        if (blocks[i] == (uintptr_t)memory) {
            blocks[i] = 1;
            state.held--;
            found = true;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void tell_where(void)
{
    void *frames[32];
    int n = backtrace(frames, 32);
    for (int i = 0; i < n; i++)
        if (program_calls(frames[i]))
            fprintf(stderr, "0x%lx ", (unsigned long)((uintptr_t)frames[i] - program_low));
    fputc('\n', stderr);
}

static void must(bool what)
{
    if (!what)
        _exit(99);
}

/* Redirects all later writes of an open file to its copy below child/, which is now the working folder. */
static void write_to_copy(int file, const char *before)
{
    char link[64], path[4096];
    size_t length = strlen(before);
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t n = readlink(link, path, sizeof path - 1);
    int flags = fcntl(file, F_GETFL);
    if (n < 0 || flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
        return;
    path[n] = '\0';
    if (strncmp(path, before, length) != 0 || path[length] != '/')
        return;
    int copy = open(path + length + 1, flags & (O_ACCMODE | O_APPEND));
    must(copy >= 0 && lseek(copy, lseek(file, 0, SEEK_CUR), SEEK_SET) >= 0 && dup2(copy, file) == file);
    close(copy);
}

static void be_child(long call)
{
    char before[4096];
    close(state.ask);
    close(state.go);
    state.forks = false;
    state.fail_at = call;
    state.and_on = call % 5 == 0;
    must(getcwd(before, sizeof before) && chdir("child") == 0);
    DIR *files = opendir("/proc/self/fd");
    must(files != NULL);
    for (struct dirent *entry; (entry = readdir(files));)
        write_to_copy(atoi(entry->d_name), before);
    closedir(files);
    for (int i = 1; i <= 2; i++) {
        int file = open(i == 1 ? "stdout" : "stderr", O_WRONLY | O_CREAT | O_TRUNC, 0666);
        must(file >= 0 && dup2(file, i) == i);
        close(file);
    }
}

/* Returns true if no earlier allocation had the same call stack in the program's own code. */
static bool new_site(void)
{
    enum { SITES = 1 << 16 };
    static uint64_t seen[SITES];
    void *frames[48];
    uint64_t chain = 14695981039346656037u;
    int n = backtrace(frames, 48);
    for (int i = 0; i < n; i++)
        if (program_calls(frames[i]))
            chain = (chain ^ ((uintptr_t)frames[i] - program_low)) * 1099511628211u;
    size_t at = (size_t)(chain >> 48);
    while (seen[at] && seen[at] != chain)
        at = (at + 1) % SITES;
    bool fresh = seen[at] == 0;
    seen[at] = chain;
    return fresh;
}

/* Forks a child for this allocation if the test requests it. Returns true in the child, where the allocation must
 * fail. */
static bool fails_in_child(long call)
{
    char answer = 0;
    int status = 0;
    if (state.sites && !new_site())
        return false;
    must(dprintf(state.ask, "%ld\n", call) > 0 && read(state.go, &answer, 1) == 1);
    if (answer != 'f')
        return false;
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        be_child(call);
        return true;
    }
    must(waitpid(child, &status, 0) == child && dprintf(state.ask, "%d\n", status) > 0);
    return false;
}

static bool counts_out(void)
{
    pthread_mutex_lock(&lock);
    long call = ++state.calls;
    pthread_mutex_unlock(&lock);
    if (state.forks && !fails_in_child(call))
        return false;
    bool fails = state.fail_at && (call == state.fail_at || (state.and_on && call > state.fail_at));
    if (fails && call == state.fail_at && getenv("FAILING_MEMORY_TRACE"))
        tell_where();
    if (fails)
        errno = ENOMEM;
    return fails;
}

void *malloc(size_t size)
{
    if (!IS_OURS)
        return __libc_malloc(size);
    return counts_out() ? NULL : note(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
    if (!IS_OURS)
        return __libc_calloc(n, size);
    return counts_out() ? NULL : note(__libc_calloc(n, size));
}

void *realloc(void *memory, size_t size)
{
    if (!IS_OURS)
        return __libc_realloc(memory, size);
    if (counts_out())
        return NULL;
    void *fresh = __libc_realloc(memory, size);
    if (fresh && memory)
        forget(memory);
    return note(fresh);
}

int posix_memalign(void **memory, size_t align, size_t size)
{
    bool ours = IS_OURS;
    if (ours && !state.own && counts_out())
        return ENOMEM;
    void *fresh = __libc_memalign(align, size);
    if (!fresh)
        return ENOMEM;
    *memory = ours ? note(fresh) : fresh;
    return 0;
}

void *aligned_alloc(size_t align, size_t size)
{
    if (!IS_OURS)
        return __libc_memalign(align, size);
    return counts_out() ? NULL : note(__libc_memalign(align, size));
}

char *strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    bool ours = IS_OURS;
    if (ours && counts_out())
        return NULL;
    char *copy = __libc_malloc(size);
    if (copy)
        memcpy(copy, text, size);
    return ours ? note(copy) : copy;
}

void free(void *memory)
{
    if (memory)
        forget(memory);
    __libc_free(memory);
}

__attribute__((constructor)) static void begin(void)
{
    const char *at = getenv("FAILING_MEMORY_AT");
    state.fail_at = at ? atol(at) : 0;
    state.own = getenv("FAILING_MEMORY_OWN") != NULL;
    state.and_on = getenv("FAILING_MEMORY_ON") != NULL;
    state.report = getenv("FAILING_MEMORY_REPORT");
    state.sites = getenv("FAILING_MEMORY_SITES") != NULL;
    const char *forks = getenv("FAILING_MEMORY_FORK");
    state.forks = forks && sscanf(forks, "%d,%d", &state.ask, &state.go) == 2;
    dl_iterate_phdr(program_find, NULL);
}

/* The report is written only if the program ends normally. A missing report means that the program crashed. */
__attribute__((destructor)) static void end(void)
{
    char text[64];
    int n = snprintf(text, sizeof text, "%ld %ld\n", state.calls, state.held);
    int file = state.report ? open(state.report, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    if (file >= 0) {
        if (write(file, text, (size_t)n) != n)
            _exit(99);
        close(file);
    }
}
