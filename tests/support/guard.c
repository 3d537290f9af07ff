/* SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/guard.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static size_t pages_for(size_t size, size_t page)
{
    return (size + page - 1) / page * page;
}

void *guard_alloc(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = pages_for(size, page);
    char *map = mmap(NULL, body + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + body, page, PROT_NONE) != 0) {
        perror("guard_alloc");
        exit(1);
    }
    return map + (body - size);
}

void guard_free(void *memory, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = pages_for(size, page);
    munmap((char *)memory - (body - size), body + page);
}
