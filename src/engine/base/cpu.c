/* SPDX-License-Identifier: MIT */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* syscall */
#endif
#include "base/cpu.h"

#include "attn/attn.h"

#include <stdatomic.h>
#include <string.h>
#if defined(__linux__)
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
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
/* CPUID's leaves 1 and 7, and the registers that the system saves (XCR0). __builtin_cpu_supports is not used, because
 * it reports no features if the run-time library leaves its table empty (as zig's does). */
typedef struct features {
    unsigned leaf1_c, leaf7_b, leaf7_c, leaf7_d, leaf7_1_a;
    unsigned saved;
} features;

static bool bits(unsigned of, unsigned mask)
{
    return (of & mask) == mask;
}

static features read_features(void)
{
    enum { XSAVE_IN_USE = 1 << 27 };
    features f = {0};
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid(1, &a, &b, &c, &d))
        f.leaf1_c = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        unsigned last = a;
        f.leaf7_b = b, f.leaf7_c = c, f.leaf7_d = d;
        if (last >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d))
            f.leaf7_1_a = a;
    }
    if (bits(f.leaf1_c, XSAVE_IN_USE)) {
        unsigned high;
        __asm__ volatile("xgetbv" : "=a"(f.saved), "=d"(high) : "c"(0));
    }
    return f;
}

static bool has_avx2(const features *f)
{
    enum { FMA = 1 << 12, AVX = 1 << 28, AVX2 = 1 << 5, SAVES_YMM = 0x6 };
    return bits(f->leaf1_c, FMA | AVX) && bits(f->leaf7_b, AVX2) && bits(f->saved, SAVES_YMM);
}

static bool has_avx512(const features *f)
{
    const unsigned foundation = 1u << 16, words_and_longs = 1u << 17, bytes = 1u << 30, shorter = 1u << 31;
    enum { SAVES_ZMM = 0xe6 };
    return has_avx2(f) && bits(f->leaf7_b, foundation | words_and_longs | bytes | shorter) && bits(f->saved, SAVES_ZMM);
}

static bool has_avx512bf16(const features *f)
{
    enum { AVX512BF16 = 1 << 5 };
    return has_avx512(f) && bits(f->leaf7_1_a, AVX512BF16);
}

/* Returns whether AMX can be used. Linux saves the 8 KiB of AMX state only for processes that requested it. VBMI and
 * VNNI, which the AMX kernels also use, are checked too, because a machine that emulates AMX may lack them. */
static bool has_amx(const features *f)
{
    enum { VBMI = 1 << 1, VNNI = 1 << 11, BF16 = 1 << 22, TILES = 1 << 24, INT8 = 1 << 25 };
    bool has_vectors = has_avx512bf16(f) && bits(f->leaf7_c, VBMI | VNNI);
#if defined(ATTN_EMULATE_AMX) && ATTN__COMPILES_AMX
    return has_vectors;
#elif defined(__linux__) && defined(SYS_arch_prctl) && ATTN__COMPILES_AMX
    enum { REQUEST_STATE = 0x1023, TILE_DATA = 18 };
    return has_vectors && bits(f->leaf7_d, BF16 | TILES | INT8) &&
           syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
#else
    (void)has_vectors;
    return false;
#endif
}
#endif

bool attn__isa_runs_here(attn__isa isa)
{
#if defined(__x86_64__)
    features f = read_features();
    switch (isa) {
    case ATTN_ISA_SCALAR:
        return true;
    case ATTN_ISA_AVX2:
        return has_avx2(&f);
    case ATTN_ISA_AVX512:
        return has_avx512(&f);
    case ATTN_ISA_AVX512BF16:
        return has_avx512bf16(&f);
    case ATTN_ISA_AMX:
        return has_amx(&f);
    default:
        return false;
    }
#elif defined(__aarch64__)
    return isa == ATTN_ISA_SCALAR || isa == ATTN_ISA_NEON;
#else
    return isa == ATTN_ISA_SCALAR;
#endif
}

attn__isa attn__isa_without_amx(attn__isa isa)
{
    return isa == ATTN_ISA_AMX ? ATTN_ISA_AVX512BF16 : isa;
}

attn__isa attn__isa_best(void)
{
    int isa = ATTN_ISA_COUNT - 1;
    while (!attn__isa_runs_here((attn__isa)isa))
        isa--;
    return (attn__isa)isa;
}

#if defined(__x86_64__)
bool attn__cpu_is_amd(void)
{
    /* the registers hold the first four letters of the vendor's name: "Auth" (AuthenticAMD) or "Hygo" (HygonGenuine) */
    const unsigned amd = 0x68747541u, hygon = 0x6f677948u;
    unsigned a = 0, b = 0, c = 0, d = 0;
    __cpuid(0, a, b, c, d);
    return b == amd || b == hygon;
}
#endif

/* Returns the set of features, with one bit for each attn__cpu_extra. BF16_DOT is set only on AMD's processors,
 * because VDPBF16PS takes as long as a multiply-add on Zen 4 and 5, and twice as long on Intel's processors. On
 * Intel's processors, f32 products of values rounded to bf16 are faster. */
static unsigned read_extras(void)
{
#if defined(__x86_64__)
    enum { AVX512_VNNI = 1 << 11, AVX_VNNI = 1 << 4 };
    features f = read_features();
    return (has_avx2(&f) && bits(f.leaf7_1_a, AVX_VNNI) ? 1u << ATTN__CPU_AVX_VNNI : 0) |
           (has_avx512(&f) && bits(f.leaf7_c, AVX512_VNNI) ? 1u << ATTN__CPU_AVX512_VNNI : 0) |
           (has_avx512bf16(&f) && attn__cpu_is_amd() ? 1u << ATTN__CPU_BF16_DOT : 0);
#elif defined(__aarch64__) && defined(__linux__)
    enum { CAP_DOT_PRODUCT = 1 << 20, CAP2_INT8_MATRIX = 1 << 13, CAP2_BF16 = 1 << 14 };
    unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    return (first & CAP_DOT_PRODUCT ? 1u << ATTN__CPU_DOT_PRODUCT : 0) |
           (second & CAP2_INT8_MATRIX ? 1u << ATTN__CPU_INT8_MATRIX : 0) |
           (second & CAP2_BF16 ? 1u << ATTN__CPU_BF16_MATRIX : 0);
#elif defined(__aarch64__) && defined(__APPLE__)
    static const char *const names[ATTN__CPU_EXTRA_COUNT] = {[ATTN__CPU_DOT_PRODUCT] = "hw.optional.arm.FEAT_DotProd",
                                                             [ATTN__CPU_INT8_MATRIX] = "hw.optional.arm.FEAT_I8MM",
                                                             [ATTN__CPU_BF16_MATRIX] = "hw.optional.arm.FEAT_BF16"};
    unsigned all = 0;
    for (int i = 0; i < ATTN__CPU_EXTRA_COUNT; i++) {
        int there = 0;
        size_t size = sizeof there;
        if (names[i] && sysctlbyname(names[i], &there, &size, NULL, 0) == 0 && there)
            all |= 1u << i;
    }
    return all;
#else
    return 0;
#endif
}

bool attn__cpu_has(attn__cpu_extra extra)
{
    static _Atomic unsigned known;
    unsigned all = atomic_load_explicit(&known, memory_order_relaxed);
    if (!all) {
        /* ATTN__CPU_ANY is always set, so that `known` is never 0 after the detection */
        all = read_extras() | 1u << ATTN__CPU_ANY;
        atomic_store_explicit(&known, all, memory_order_relaxed);
    }
    return all >> extra & 1;
}

bool attn__isa_gains_by_bf16(attn__isa isa)
{
    return isa == ATTN_ISA_AMX || (isa == ATTN_ISA_AVX512BF16 && attn__cpu_has(ATTN__CPU_BF16_DOT));
}

const char *attn_isa_name(int i)
{
    for (int isa = ATTN_ISA_COUNT - 1; isa >= 0; isa--)
        if (attn__isa_runs_here((attn__isa)isa) && i-- == 0)
            return isa_names[isa];
    return NULL;
}
