/* SPDX-License-Identifier: MIT
 *
 * rows.h - cases of a switch over the number of rows, so that a register tile of each height is unrolled.
 */
#ifndef ATTN_SIMD_ROWS_H
#define ATTN_SIMD_ROWS_H

/* ATTN__ROWS(MOST, RUN) is "case n: RUN(n); break;" for each n from MOST, a literal or a macro of at most 12, to 2, and
 * "default: RUN(1);". */
#define ATTN__ROWS(MOST, RUN)  ATTN__ROWS_(MOST, RUN)
#define ATTN__ROWS_(MOST, RUN) ATTN__ROWS_##MOST(RUN)
#define ATTN__ROWS_CASE(n, RUN)                                                                                        \
    case n:                                                                                                            \
        RUN(n);                                                                                                        \
        break;
#define ATTN__ROWS_1(RUN)                                                                                              \
    default:                                                                                                           \
        RUN(1);
#define ATTN__ROWS_2(RUN)  ATTN__ROWS_CASE(2, RUN) ATTN__ROWS_1(RUN)
#define ATTN__ROWS_3(RUN)  ATTN__ROWS_CASE(3, RUN) ATTN__ROWS_2(RUN)
#define ATTN__ROWS_4(RUN)  ATTN__ROWS_CASE(4, RUN) ATTN__ROWS_3(RUN)
#define ATTN__ROWS_5(RUN)  ATTN__ROWS_CASE(5, RUN) ATTN__ROWS_4(RUN)
#define ATTN__ROWS_6(RUN)  ATTN__ROWS_CASE(6, RUN) ATTN__ROWS_5(RUN)
#define ATTN__ROWS_7(RUN)  ATTN__ROWS_CASE(7, RUN) ATTN__ROWS_6(RUN)
#define ATTN__ROWS_8(RUN)  ATTN__ROWS_CASE(8, RUN) ATTN__ROWS_7(RUN)
#define ATTN__ROWS_9(RUN)  ATTN__ROWS_CASE(9, RUN) ATTN__ROWS_8(RUN)
#define ATTN__ROWS_10(RUN) ATTN__ROWS_CASE(10, RUN) ATTN__ROWS_9(RUN)
#define ATTN__ROWS_11(RUN) ATTN__ROWS_CASE(11, RUN) ATTN__ROWS_10(RUN)
#define ATTN__ROWS_12(RUN) ATTN__ROWS_CASE(12, RUN) ATTN__ROWS_11(RUN)

#endif
