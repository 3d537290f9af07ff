/* SPDX-License-Identifier: MIT */
#include "base/caches.h"

#include "base/cpu.h"
#include "base/integers.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

enum { LEVELS = 4 }; /* level 0 is unused */

/* Size of a cache level in bytes (0 if unknown), and the number of threads that share the cache. */
typedef struct level {
    int64_t bytes, threads;
} level;

#if defined(__x86_64__)
/* Intel and AMD have different leaves. */
static unsigned leaf_of_caches(void)
{
    enum { INTEL = 4, HIGHEST_EXTENDED = (int)0x80000000u, AMD = (int)0x8000001du };
    return attn__cpu_is_amd() && __get_cpuid_max((unsigned)HIGHEST_EXTENDED, NULL) >= (unsigned)AMD ? (unsigned)AMD
                                                                                                    : INTEL;
}

static void ask_processor(level levels[LEVELS])
{
    enum { TYPE = 0x1f, DATA = 1, UNIFIED = 3, MOST = 16 };
    unsigned leaf = leaf_of_caches(), a = 0, b = 0, c = 0, d = 0;
    for (unsigned i = 0; i < MOST && __get_cpuid_count(leaf, i, &a, &b, &c, &d) && (a & TYPE) != 0; i++) {
        unsigned type = a & TYPE, at = a >> 5 & 7;
        int64_t ways = (b >> 22) + 1, partitions = (b >> 12 & 0x3ff) + 1, line = (b & 0xfff) + 1, sets = (int64_t)c + 1;
        if ((type == DATA || type == UNIFIED) && at > 0 && at < LEVELS)
            levels[at] = (level){ways * partitions * line * sets, (a >> 14 & 0xfff) + 1};
    }
}
#elif defined(__APPLE__)
static void ask_processor(level levels[LEVELS])
{
    static const char *const names[LEVELS] = {NULL, "hw.l1dcachesize", "hw.l2cachesize", "hw.l3cachesize"};
    for (int i = 1; i < LEVELS; i++) {
        int64_t bytes = 0;
        size_t size = sizeof bytes;
        if (sysctlbyname(names[i], &bytes, &size, NULL, 0) == 0)
            levels[i] = (level){bytes, 1};
    }
}
#else
static void ask_processor(level levels[LEVELS])
{
    (void)levels;
}
#endif

/* Reads the first line of a file that describes a cache of the first processor. The line is "" if the file does not
 * exist. */
static void read_line(int index, const char *name, char line[64])
{
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
    FILE *file = fopen(path, "r");
    if (!file || !fgets(line, 64, file))
        line[0] = '\0';
    if (file)
        fclose(file);
}

/* Counts the processors in a list such as "0-3,8". */
static int64_t count_listed(const char *list)
{
    int64_t count = 0;
    for (char *end; *list >= '0' && *list <= '9'; list = *end == ',' ? end + 1 : end) {
        int64_t first = strtoll(list, &end, 10), last = first;
        if (*end == '-')
            last = strtoll(end + 1, &end, 10);
        count += last - first + 1;
    }
    return attn__max(count, 1);
}

/* Fills in the cache levels that CPUID did not report, with the values that the system reports. */
static void ask_system(level levels[LEVELS])
{
    enum { MOST = 8 };
    char line[64];
    for (int i = 0; i < MOST; i++) {
        read_line(i, "type", line);
        bool data = line[0] == 'D' || line[0] == 'U'; /* Data, Unified */
        read_line(i, "level", line);
        int at = atoi(line);
        if (!data || at < 1 || at >= LEVELS || levels[at].bytes > 0)
            continue;
        read_line(i, "size", line);
        char *unit;
        levels[at].bytes = strtoll(line, &unit, 10) * (*unit == 'M' ? 1 << 20 : *unit == 'K' ? 1 << 10 : 1);
        read_line(i, "shared_cpu_list", line);
        levels[at].threads = count_listed(line);
    }
}

/* Returns the bytes of a cache level for one core. A cache that only one core's threads share belongs to that core. If
 * several cores share a cache, its size is divided by their number. */
static int64_t bytes_of_core(const level levels[LEVELS], int at)
{
    int64_t of_core = attn__max(levels[1].threads, 1);
    return levels[at].bytes / attn__max(levels[at].threads / of_core, 1);
}

static attn__caches caches;

static void find_caches(void)
{
    enum { KIB = 1 << 10 };
    static const attn__caches smallest[ATTN_ISA_COUNT] = {
        [ATTN_ISA_SCALAR] = {32 * KIB, 256 * KIB, 0},      [ATTN_ISA_NEON] = {32 * KIB, 512 * KIB, 0},
        [ATTN_ISA_AVX2] = {32 * KIB, 256 * KIB, 0},        [ATTN_ISA_AVX512] = {32 * KIB, 512 * KIB, 0},
        [ATTN_ISA_AVX512BF16] = {32 * KIB, 1024 * KIB, 0}, [ATTN_ISA_AMX] = {48 * KIB, 2048 * KIB, 0}};
    level levels[LEVELS] = {{0}};
    ask_processor(levels);
    ask_system(levels);
    const attn__caches *least = &smallest[attn__isa_best()];
    caches.l1 = levels[1].bytes > 0 ? bytes_of_core(levels, 1) : least->l1;
    caches.l2 = levels[2].bytes > 0 ? bytes_of_core(levels, 2) : least->l2;
    caches.l3 = bytes_of_core(levels, 3);
}

const attn__caches *attn__caches_here(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_caches);
    return &caches;
}
