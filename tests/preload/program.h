/* SPDX-License-Identifier: MIT
 *
 * program.h - tells calls of the program's own code from calls of shared libraries, by the return address.
 */
#ifndef ATTN_TESTS_PROGRAM_H
#define ATTN_TESTS_PROGRAM_H

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

static uintptr_t program_low = UINTPTR_MAX, program_high;

/* Stores the address range of the program, which is the first object that the loader lists. */
static int program_find(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    (void)user;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD)
            continue;
        uintptr_t low = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, high = low + info->dlpi_phdr[i].p_memsz;
        program_low = low < program_low ? low : program_low;
        program_high = high > program_high ? high : program_high;
    }
    return 1;
}

static inline bool program_calls(const void *back)
{
    return (uintptr_t)back >= program_low && (uintptr_t)back < program_high;
}

#define IS_OURS program_calls(__builtin_return_address(0))

#endif
