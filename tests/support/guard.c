/* SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "support/guard.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#if defined(_WIN32)
#include <windows.h>
#else
#include <sys/mman.h>
#include <unistd.h>
#endif

static size_t pages_for(size_t size, size_t page)
{
    return (size + page - 1) / page * page;
}

#if defined(_WIN32)

static size_t page_size(void)
{
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwPageSize;
}

static char *map_pages(size_t body, size_t guard)
{
    DWORD before;
    char *map = VirtualAlloc(NULL, body + guard, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE);
    return map && VirtualProtect(map + body, guard, PAGE_NOACCESS, &before) ? map : NULL;
}

static void unmap_pages(char *map, size_t size)
{
    (void)size;
    VirtualFree(map, 0, MEM_RELEASE);
}

#else

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static char *map_pages(size_t body, size_t guard)
{
    char *map = mmap(NULL, body + guard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return map != MAP_FAILED && mprotect(map + body, guard, PROT_NONE) == 0 ? map : NULL;
}

static void unmap_pages(char *map, size_t size)
{
    munmap(map, size);
}

#endif

void *guard_alloc(size_t size)
{
    size_t page = page_size(), body = pages_for(size, page);
    char *map = map_pages(body, page);
    if (!map) {
        perror("guard_alloc");
        exit(1);
    }
    return map + (body - size);
}

void guard_free(void *memory, size_t size)
{
    size_t page = page_size(), body = pages_for(size, page);
    unmap_pages((char *)memory - (body - size), body + page);
}
