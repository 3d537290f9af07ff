/* SPDX-License-Identifier: MIT */
#ifndef ATTN_BASE_CPU_H
#define ATTN_BASE_CPU_H

#include <stdbool.h>

/* Instruction sets in ascending order. A machine with one of these sets can also run the kernels of all smaller sets of
 * the same processor family. */
typedef enum attn__isa {
    ATTN_ISA_SCALAR = 0,
    ATTN_ISA_NEON,
    ATTN_ISA_AVX2,
    ATTN_ISA_AVX512,
    ATTN_ISA_AVX512BF16,
    ATTN_ISA_AMX, /* AMX with bf16, in addition to AVX512BF16 */
    ATTN_ISA_COUNT
} attn__isa;

/* Is true if this compiler has AMX intrinsics, as gcc and clang have from version 11 on. */
#if defined(__x86_64__) && defined(__clang__)
#define ATTN__COMPILES_AMX (__clang_major__ >= 11)
#elif defined(__x86_64__) && defined(__GNUC__)
#define ATTN__COMPILES_AMX (__GNUC__ >= 11)
#else
#define ATTN__COMPILES_AMX 0
#endif

/* Is true if this compiler has AVX-VNNI intrinsics, as gcc has from version 11 on and clang from version 12 on. */
#if defined(__x86_64__) && defined(__clang__)
#define ATTN__COMPILES_AVX_VNNI (__clang_major__ >= 12)
#else
#define ATTN__COMPILES_AVX_VNNI ATTN__COMPILES_AMX
#endif

/* Is true if this compiler can enable NEON's dot products and matrix instructions in single functions. gcc can from
 * version 10 on, clang from version 16 on. */
#if defined(__aarch64__) && defined(__clang__)
#define ATTN__COMPILES_NEON_MATRIX (__clang_major__ >= 16)
#elif defined(__aarch64__) && defined(__GNUC__)
#define ATTN__COMPILES_NEON_MATRIX (__GNUC__ >= 10)
#else
#define ATTN__COMPILES_NEON_MATRIX 0
#endif

/* CPU features that are not part of the instruction set. Some kernels use them. */
typedef enum attn__cpu_extra {
    ATTN__CPU_ANY = 0,     /* no feature */
    ATTN__CPU_AVX_VNNI,    /* dot products of bytes in AVX2 registers */
    ATTN__CPU_AVX512_VNNI, /* dot products of bytes in AVX-512 registers */
    ATTN__CPU_BF16_DOT,    /* dot products of bf16 pairs at the rate of f32 multiply-adds, in AVX-512 registers */
    ATTN__CPU_DOT_PRODUCT, /* dot products of bytes in NEON (FEAT_DotProd) */
    ATTN__CPU_INT8_MATRIX, /* 2 x 2 products of bytes in NEON (FEAT_I8MM) */
    ATTN__CPU_BF16_MATRIX, /* 2 x 2 products of bf16 in NEON (FEAT_BF16) */
    ATTN__CPU_EXTRA_COUNT
} attn__cpu_extra;

const char *attn__isa_text(attn__isa isa);
bool attn__isa_parse(const char *name, attn__isa *isa);
bool attn__isa_runs_here(attn__isa isa);
/* Returns the largest instruction set with f32 kernels that is at most `isa`. AMX has no f32 multiply-adds, so for AMX
 * this is the next smaller set. Every other set is returned unchanged. */
attn__isa attn__isa_without_amx(attn__isa isa);
attn__isa attn__isa_best(void);
bool attn__cpu_has(attn__cpu_extra extra);
/* Returns whether, with this instruction set on this machine, attention is faster in bf16 than in f32. */
bool attn__isa_gains_by_bf16(attn__isa isa);
#if defined(__x86_64__)
bool attn__cpu_is_amd(void);
#endif

#endif
