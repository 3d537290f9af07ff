/* SPDX-License-Identifier: MIT
 *
 * hostile_values.h - operands that are difficult for products that round, scale or sample them. A structure defines
 * both operands of c[i,j] = sum over k of A[i,k] B[j,k]. An element depends only on the structure, the seed and the
 * indices. So operands can have any memory layout.
 */
#ifndef ATTN_TESTS_HOSTILE_VALUES_H
#define ATTN_TESTS_HOSTILE_VALUES_H

#include <stdbool.h>
#include <stdint.h>

/* X(NAME, name). A factor is a number from 1e-2 to 1e-8 that depends on the seed. */
/* clang-format off */
#define HOSTILE_STRUCTURES(X)                                                                                          \
    X(normal)            /* normal numbers */                                                                          \
    X(positive)          /* absolute values of normal numbers, whose sums show every relative error */                 \
    X(gelu)              /* A is like outputs of GELU, and B has small weights */                                      \
    X(relu)              /* half of A is zeros, and B has small weights */                                             \
    X(softmax)           /* A is like softmax weights, and B has normal numbers */                                     \
    X(blocks)            /* blocks along k are scaled by 1e9, 1e-9 or 1 */                                             \
    X(interleaved)       /* in the first ninth of k, every fourth row of B is multiplied by a factor */                \
    X(groups)            /* k and rows of B form four interleaved groups; if the groups differ, B has a factor */      \
    X(even)              /* at even k, 16 of each 64 rows of B are multiplied by a factor */                           \
    X(concatenation)     /* in the first half of k, the first quarter of B's rows is multiplied by a factor or 0 */    \
    X(sampled)           /* at random k, evenly spaced rows of B are multiplied by a factor */                         \
    X(two_outliers)      /* A is multiplied by 1e6 at two k, where half of B is 0 */                                   \
    X(many_outliers)     /* A is multiplied by 1e6 at some k, where two thirds of B are 0 */                           \
    X(dead_k)            /* A is multiplied by up to 1e30 at one k, where B is 0 */                                    \
    X(span)              /* powers of two from 2^-40 to 2^40 scale k, and some rows have a smaller range */            \
    X(tiny_huge)         /* A has numbers around 1e-37, and B has numbers around 3e37 */                               \
    X(small_normal)      /* A has numbers below 2^-100, and B has numbers above 2^100 */                               \
    X(subnormal)         /* A has subnormal numbers, and B has numbers around 1e30 */                                  \
    X(bright_half)       /* the first half of the rows of A is multiplied by 1e3 to 1e9 */                             \
    X(bright_row)        /* one row of A */                                                                            \
    X(bright_spot)       /* one element of A in 1,000 is multiplied by 1e3 to 1e9 */                                   \
    X(zero_rows)         /* some rows, some columns and some k are zero */                                             \
    X(sparse)            /* 98 % of A, and sometimes 98 % of B, are zeros */                                           \
    X(lognormal)         /* rows of A and of B are scaled by exp(3 x), where x is normal */                            \
    X(lognormal_k)       /* A and B are scaled along k by exp(2 x), where x is normal and differs for A and B */       \
    X(lognormal_each)    /* all elements are exp(2 x) with random signs, where x is normal */                          \
    X(channels)          /* different factors from 1e-6 to 1e6 scale A and B along k */                                \
    X(channels_opposite) /* factors from 1e-6 to 1e6 scale A along k, and the inverse factors scale B */               \
    X(exponents)         /* A has random exponents, and B has the same exponents negated */                            \
    X(complement)        /* A is zero where B is not, so that all terms of some sums are 0 */                          \
    X(shifts)            /* A is circular shifts of x D, and B of x / D, where D has graded powers of two */           \
    X(shifts_repeated)   /* A is circular shifts of x D, and B of x / D, where D repeats four times along k */         \
    X(graded)            /* falling powers of two scale rows and sometimes k */                                        \
    X(huge_entry)        /* one element of A is close to the largest f32 */                                            \
    X(outlier_columns)   /* A is multiplied by 50 at one k in each 128 */                                              \
    X(outlier_elements)  /* one element of A in 100 is multiplied by 1e4 to 1e9 */                                     \
    X(digit_edge)        /* mantissas are close to rounding boundaries of 8 and of 24 bits */                          \
    X(cancellation)      /* pairs of k cancel each other */                                                            \
    X(infinite)          /* a few elements are infinite, and some elements that multiply them are 0 */                 \
    X(not_a_number)      /* a few NaN */
/* clang-format on */
#define HOSTILE_NAME(name) HOSTILE_##name,
typedef enum hostile_structure { HOSTILE_STRUCTURES(HOSTILE_NAME) HOSTILE_COUNT } hostile_structure;
#undef HOSTILE_NAME

typedef enum hostile_operand { HOSTILE_A, HOSTILE_B } hostile_operand;

typedef struct hostile {
    hostile_structure structure;
    uint64_t seed;
    bool swap; /* true: A and B exchange their structures */
    int64_t rows[2], k;
} hostile;

const char *hostile_structure_name(hostile_structure structure);
/* Returns the structure with this name, or HOSTILE_COUNT if there is none. */
hostile_structure hostile_structure_find(const char *name);
/* Returns element (i,k) of an operand. `copy` distinguishes elements with the same indices, such as those of two
 * examples. The element is finite unless the structure has infinity or NaN. */
float hostile_value(const hostile *h, hostile_operand operand, int64_t i, int64_t k, int64_t copy);
/* Returns a number in [0, n) that depends only on the seed and `salt`. */
int64_t hostile_pick(uint64_t seed, uint64_t salt, int64_t n);

#endif
