/* SPDX-License-Identifier: MIT
 *
 * hostile_values.h - operands of products that are hard on whatever rounds, scales or samples them.
 *
 * A structure gives both operands of c[i,j] = sum over k of A[i,k] B[j,k].  Each number is a function of the structure,
 * the seed and its place alone, so that it may be laid out in any way.
 */
#ifndef ATTN_TESTS_HOSTILE_VALUES_H
#define ATTN_TESTS_HOSTILE_VALUES_H

#include <stdbool.h>
#include <stdint.h>

/* X(NAME, name).  The comments say what A and B are; "factor" is drawn with the seed from 1e-2 to 1e-8. */
/* clang-format off */
#define HOSTILE_STRUCTURES(X)                                                                                          \
    X(normal)            /* normal numbers */                                                                          \
    X(positive)          /* their absolute values: every relative error shows */                                       \
    X(gelu)              /* A GELU's outputs, B small weights */                                                       \
    X(relu)              /* A half zeros, B small weights */                                                           \
    X(softmax)           /* A weights of a softmax */                                                                  \
    X(blocks)            /* blocks of k scaled by 1e9 and 1e-9 */                                                      \
    X(interleaved)       /* every fourth row of B has a factor in the first ninth of k */                              \
    X(groups)            /* four interleaved groups of k and of rows of B, a factor between groups */                  \
    X(even)              /* 16 of each 64 rows of B have a factor at even k */                                         \
    X(concatenation)     /* the first rows of B have a factor, or 0, in half of k */                                   \
    X(sampled)           /* evenly spaced rows of B have a factor at random k */                                       \
    X(two_outliers)      /* two k of A times 1e6 where half of B is 0 */                                               \
    X(many_outliers)     /* some k of A times 1e6, where two thirds of B are 0 */                                      \
    X(dead_k)            /* one k of A times up to 1e30, where B is 0 */                                               \
    X(span)              /* powers of two from -40 to 40 along k, less in some rows */                                 \
    X(tiny_huge)         /* 1e-37 times 3e37 */                                                                        \
    X(small_normal)      /* largest below 2^-100 times numbers above 2^100 */                                          \
    X(subnormal)         /* subnormal numbers times 1e30 */                                                            \
    X(bright_half)       /* the first half of A's rows 1e3 to 1e9 times larger */                                      \
    X(bright_row)        /* one row of A */                                                                            \
    X(bright_spot)       /* one element in each 1,000 of A */                                                          \
    X(zero_rows)         /* rows, columns and some k are zero */                                                       \
    X(sparse)            /* 98 % zeros in A, at times in B too */                                                      \
    X(lognormal)         /* rows of A and of B scaled by exp(3 normal) */                                              \
    X(lognormal_k)       /* the same along k, each operand its own */                                                  \
    X(lognormal_each)    /* exp(2 normal), with signs */                                                               \
    X(channels)          /* k scaled by 1e-6 to 1e6, each operand its own */                                           \
    X(channels_opposite) /* the same, B the inverse of A */                                                            \
    X(exponents)         /* a random exponent for each element, the opposite in rows of B */                           \
    X(complement)        /* complementary zeros: some sums have no term at all */                                      \
    X(shifts)            /* circular shifts of x D and of x / D, D graded powers of two */                             \
    X(shifts_repeated)   /* the same, D repeated four times along k */                                                 \
    X(graded)            /* rows scaled by falling powers of two, k too */                                             \
    X(huge_entry)        /* one number of A near the largest there is */                                               \
    X(outlier_columns)   /* one k in each 128 of A times 50 */                                                         \
    X(outlier_elements)  /* one number in each 100 of A times 1e4 to 1e9 */                                            \
    X(digit_edge)        /* mantissas at the edge of 8-bit and 24-bit roundings */                                     \
    X(cancellation)      /* pairs of k that cancel */                                                                  \
    X(infinite)          /* a few infinities, and zeros that they meet */                                              \
    X(not_a_number)      /* a few NaN */
/* clang-format on */
#define HOSTILE_NAME(name) HOSTILE_##name,
typedef enum hostile_structure { HOSTILE_STRUCTURES(HOSTILE_NAME) HOSTILE_COUNT } hostile_structure;
#undef HOSTILE_NAME

typedef enum hostile_operand { HOSTILE_A, HOSTILE_B } hostile_operand;

typedef struct hostile {
    hostile_structure structure;
    uint64_t seed;
    bool swap;          /* A and B exchange their parts */
    int64_t rows[2], k; /* of A and B */
} hostile;

const char *hostile_structure_name(hostile_structure structure);
/* The structure of a name; HOSTILE_COUNT if no structure has the name. */
hostile_structure hostile_structure_find(const char *name);
/* Element (i,k) of an operand; `copy` tells elements of one place from each other (taps, examples).  Finite unless the
 * structure has other numbers. */
float hostile_value(const hostile *h, hostile_operand operand, int64_t i, int64_t k, int64_t copy);
/* A number from [0, n) that depends on the seed and `salt` alone. */
int64_t hostile_pick(uint64_t seed, uint64_t salt, int64_t n);

#endif
