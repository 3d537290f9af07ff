/* SPDX-License-Identifier: MIT
 *
 * isa_end.h - closes the region of an instruction set, which a vec_*.h has opened.
 */
#ifdef VF_REGION
#undef VF_REGION
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
