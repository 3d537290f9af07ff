/* SPDX-License-Identifier: MIT
 *
 * float_mode.h - reads and sets a thread's rounding mode and its flushing of small numbers to zero. Both are control
 * bits of the floating-point unit. The status bits are not touched.
 */
#ifndef ATTN_BASE_FLOAT_MODE_H
#define ATTN_BASE_FLOAT_MODE_H

#include <stdint.h>

typedef uint64_t attn__float_mode;

#if defined(__x86_64__)
static inline attn__float_mode attn__float_mode_get(void)
{
    /* mask of the control bits of MXCSR; the six lower bits are status bits, which record exceptions */
    const unsigned control = 0xffc0u;
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
