/* SPDX-License-Identifier: MIT
 *
 * sets.h - lists the instruction sets for which every kernel is compiled on this architecture, best first. The last one
 * is plain C. Declarations, the choice of a kernel, and tests read this list.
 */
#ifndef ATTN_SIMD_SETS_H
#define ATTN_SIMD_SETS_H

/* Expands to X(NAME of attn__isa, suffix, ...) for each set. */
#if defined(__x86_64__)
#define ATTN__SETS(X, ...) X(AVX512, avx512, __VA_ARGS__) X(AVX2, avx2, __VA_ARGS__) X(SCALAR, scalar, __VA_ARGS__)
#elif defined(__aarch64__)
#define ATTN__SETS(X, ...) X(NEON, neon, __VA_ARGS__) X(SCALAR, scalar, __VA_ARGS__)
#else
#define ATTN__SETS(X, ...) X(SCALAR, scalar, __VA_ARGS__)
#endif

#endif
