/* SPDX-License-Identifier: MIT
 * Makes memory that all ranks of one machine share. The memory is a file without a name, which rank 0 creates. The
 * other ranks open it by rank 0's process id and file descriptor. Such a file has no size limit, unlike /dev/shm, which
 * is often small in containers. The system frees the file when the processes end, even if they crash. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* declares memfd_create and mremap */
#endif
#include "dist/ranks.h"

#include "base/rng.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/resource.h>
#include <time.h>

/* memfd_create and MFD_CLOEXEC need glibc 2.27, but wheels are built for glibc 2.17, so the value is defined here */
enum { CLOSE_ON_EXEC = 1 };

/* Identifies rank 0's file by process id, file descriptor and name. The name is not a path: a rank that has opened the
 * descriptor compares the file's name, to check that it opened the right file. */
typedef struct file {
    int64_t process, descriptor;
    char name[32];
} file;

static size_t whole_pages(size_t bytes)
{
    const size_t huge = (size_t)2 << 20;
    return attn__size_add(bytes, huge - 1) / huge * huge;
}

/* Reports whether this process may make a file of `bytes` bytes. Without this check, extending a file beyond the
 * process's limit would end the process with SIGXFSZ. */
static bool may_have(size_t bytes)
{
    struct rlimit most;
    return getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur == RLIM_INFINITY || bytes <= most.rlim_cur;
}

static int make_file(file *made, size_t bytes)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t number = attn__mix64((uint64_t)now.tv_sec ^ attn__mix64((uint64_t)now.tv_nsec) ^ (uint64_t)getpid());
    snprintf(made->name, sizeof made->name, "attn-%016" PRIx64, number);
    int descriptor = (int)syscall(SYS_memfd_create, made->name, CLOSE_ON_EXEC);
    if (descriptor >= 0 && (!may_have(bytes) || ftruncate(descriptor, (off_t)bytes) != 0)) {
        close(descriptor);
        descriptor = -1;
    }
    made->process = getpid();
    made->descriptor = descriptor;
    return descriptor;
}

static int open_file(const file *of)
{
    char path[64], link[96], wanted[96];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/fd/%" PRId64, of->process, of->descriptor);
    snprintf(wanted, sizeof wanted, "/memfd:%.31s (deleted)", of->name);
    ssize_t length = readlink(path, link, sizeof link - 1);
    link[length > 0 ? length : 0] = '\0';
    return strcmp(link, wanted) == 0 ? open(path, O_RDWR | O_CLOEXEC) : -1;
}

static void *map_file(int descriptor, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (memory == MAP_FAILED)
        return NULL;
#ifdef MADV_HUGEPAGE
    /* the result is ignored, because the memory also works without huge pages */
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

static attn_status all_can(attn_context *context, bool can, bool *all)
{
    uint64_t cannot = !can;
    attn_status status = attn__ranks_sum(context, &cannot, 1, ATTN__MAX_U64);
    *all = status == ATTN_OK && cannot == 0;
    return status;
}

/* Sets *all to whether all ranks request the same number of bytes, and that number is not 0. Different numbers must be
 * refused, because a rank with a larger model would write beyond the file's end. */
static attn_status all_want(attn_context *context, size_t bytes, bool *all)
{
    /* one reduction gives both maximum and minimum: the minimum of `bytes` is the complement of the maximum of
     * ~bytes */
    uint64_t most[] = {bytes, ~(uint64_t)bytes};
    attn_status status = attn__ranks_sum(context, most, 2, ATTN__MAX_U64);
    *all = status == ATTN_OK && most[0] > 0 && most[0] == ~most[1];
    return status;
}

attn_status attn__ranks_memory_make(attn_context *context, size_t bytes, attn__ranks_memory *memory)
{
    bool all = false, first = attn__ranks_first(context);
    file where = {.descriptor = -1};
    attn_status status = ATTN_OK;
    *memory = (attn__ranks_memory){NULL, whole_pages(bytes), -1};
    if (attn__ranks_together(context))
        status = all_want(context, getenv("ATTN_RANKS_APART") ? 0 : bytes, &all);
    if (!all)
        return status;
    if (first)
        memory->file = make_file(&where, memory->bytes);
    status = attn__ranks_broadcast(context, &where, sizeof where, 0);
    if (status == ATTN_OK && !first && where.descriptor >= 0)
        memory->file = open_file(&where);
    memory->data = memory->file >= 0 ? map_file(memory->file, memory->bytes) : NULL;
    if (status == ATTN_OK)
        status = all_can(context, memory->data != NULL, &all);
    if (status != ATTN_OK || !all)
        attn__ranks_memory_free(memory);
    return status;
}

void attn__ranks_memory_part(const attn__ranks_memory *memory)
{
    if (!memory->data)
        return;
    /* Map the pages copy-on-write at a new address first. If this fails, the pages stay shared. A mapping directly over
     * the old address could fail and leave no memory at that address. */
    void *own = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, memory->file, 0);
    if (own != MAP_FAILED)
        (void)mremap(own, memory->bytes, memory->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, memory->data);
}

void attn__ranks_memory_free(attn__ranks_memory *memory)
{
    if (memory->data)
        (void)munmap(memory->data, memory->bytes);
    if (memory->file >= 0)
        close(memory->file);
    *memory = (attn__ranks_memory){NULL, 0, -1};
}
#else
attn_status attn__ranks_memory_make(attn_context *context, size_t bytes, attn__ranks_memory *memory)
{
    (void)context;
    *memory = (attn__ranks_memory){NULL, bytes, -1};
    return ATTN_OK;
}

void attn__ranks_memory_part(const attn__ranks_memory *memory)
{
    (void)memory;
}

void attn__ranks_memory_free(attn__ranks_memory *memory)
{
    (void)memory;
}
#endif
