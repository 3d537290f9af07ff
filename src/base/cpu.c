/* SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include "base/cpu.h"

#include "attn/attn.h"

#include <string.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const isa_names[ATTN_ISA_COUNT] = {
    [ATTN_ISA_SCALAR] = "scalar",
    [ATTN_ISA_NEON] = "neon",
    [ATTN_ISA_AVX2] = "avx2",
    [ATTN_ISA_AVX512] = "avx512",
    [ATTN_ISA_AVX512BF16] = "avx512bf16",
    [ATTN_ISA_AMX] = "amx",
};

const char *attn__isa_text(attn__isa isa)
{
    return isa_names[isa];
}

bool attn__isa_parse(const char *name, attn__isa *isa)
{
    for (int i = 0; i < ATTN_ISA_COUNT; i++) {
        if (strcmp(name, isa_names[i]) == 0) {
            *isa = (attn__isa)i;
            return true;
        }
    }
    return false;
}

#if defined(__x86_64__)
/* AMX has 8 KiB of state, which Linux saves only for processes that asked for it. */
static bool matrix_unit(void)
{
#if defined(__linux__) && defined(SYS_arch_prctl) && ATTN__COMPILES_AMX
    enum { REQUEST_STATE = 0x1023, TILE_DATA = 18, LEAF = 7, HAS_BF16 = 22, HAS_TILES = 24, HAS_INT8 = 25 };
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(LEAF, 0, &a, &b, &c, &d) || !(d >> HAS_BF16 & 1u) || !(d >> HAS_TILES & 1u) ||
        !(d >> HAS_INT8 & 1u) || !__builtin_cpu_supports("avx512vbmi"))
        return false;
    return syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
#else
    return false;
#endif
}
#endif

/* The compiler's run-time checks also ask whether the system saves the wide registers. */
bool attn__isa_runs_here(attn__isa isa)
{
#if defined(__x86_64__)
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    switch (isa) {
    case ATTN_ISA_SCALAR:
        return true;
    case ATTN_ISA_AVX2:
        return avx2;
    case ATTN_ISA_AVX512:
        return avx512;
    case ATTN_ISA_AVX512BF16:
        return avx512 && __builtin_cpu_supports("avx512bf16");
    case ATTN_ISA_AMX:
        return avx512 && __builtin_cpu_supports("avx512bf16") && matrix_unit();
    default:
        return false;
    }
#elif defined(__aarch64__)
    return isa == ATTN_ISA_SCALAR || isa == ATTN_ISA_NEON;
#else
    return isa == ATTN_ISA_SCALAR;
#endif
}

attn__isa attn__isa_best(void)
{
    int isa = ATTN_ISA_COUNT - 1;
    while (!attn__isa_runs_here((attn__isa)isa))
        isa--;
    return (attn__isa)isa;
}

const char *attn_isa_name(int i)
{
    for (int isa = ATTN_ISA_COUNT - 1; isa >= 0; isa--) {
        if (attn__isa_runs_here((attn__isa)isa) && i-- == 0)
            return isa_names[isa];
    }
    return NULL;
}

static size_t cache_or(int name, size_t usual)
{
    long bytes = sysconf(name);
    return bytes > 0 ? (size_t)bytes : usual;
}

attn__caches attn__cache_sizes(void)
{
    enum { KiB = 1024 };
    attn__caches caches = {32 * KiB, 512 * KiB, 8192 * KiB};
#if defined(_SC_LEVEL1_DCACHE_SIZE)
    caches.l1 = cache_or(_SC_LEVEL1_DCACHE_SIZE, caches.l1);
    caches.l2 = cache_or(_SC_LEVEL2_CACHE_SIZE, caches.l2);
    caches.l3 = cache_or(_SC_LEVEL3_CACHE_SIZE, caches.l3);
#endif
    return caches;
}

int attn__usable_cores(void)
{
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
#endif
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 ? (int)cores : 1;
}
