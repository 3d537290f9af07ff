/* SPDX-License-Identifier: MIT
 *
 * slices_portable.h - products by int8 slices in plain C, with the bits of the vector code.
 */
#ifndef ATTN_TESTS_SLICES_PORTABLE_H
#define ATTN_TESTS_SLICES_PORTABLE_H

#include "gemm/slices.h"

const attn__slices_kernel *attn__slices_portable(void);

#endif
