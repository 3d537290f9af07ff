/* SPDX-License-Identifier: MIT
 *
 * float_mode.h - the rounding mode of a thread, and whether it flushes small numbers to zero. These are the control
 * bits of its floating point unit, without the status bits.
 */
#ifndef ATTN_BASE_FLOAT_MODE_H
#define ATTN_BASE_FLOAT_MODE_H

#include <stdint.h>

typedef uint64_t attn__float_mode;

#if defined(__x86_64__)
static inline attn__float_mode attn__float_mode_get(void)
{
    const unsigned control = 0xffc0u; /* bits of MXCSR; the six bits below are exceptions that occurred */
    return __builtin_ia32_stmxcsr() & control;
}

static inline void attn__float_mode_set(attn__float_mode mode)
{
    if (attn__float_mode_get() != mode)
        __builtin_ia32_ldmxcsr((unsigned)mode);
}
#elif defined(__aarch64__)
static inline attn__float_mode attn__float_mode_get(void)
{
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control;
}

static inline void attn__float_mode_set(attn__float_mode mode)
{
    if (attn__float_mode_get() != mode)
        __asm__ volatile("msr fpcr, %0" : : "r"(mode));
}
#else
static inline attn__float_mode attn__float_mode_get(void)
{
    return 0;
}

static inline void attn__float_mode_set(attn__float_mode mode)
{
    (void)mode;
}
#endif

#endif
