/* SPDX-License-Identifier: MIT
 *
 * hostile.h - tests products of tensor.h on hostile operands. Each element of results and gradients is compared with a
 * float64 result, and its error must be within the bound of product_ref.h. A case is one line of text. A failure prints
 * the line of its case, and a test can run this line again:
 *
 *     linear:interleaved:forward:0:17:1,33,257,384,1,0,0,0,0
 *     kind:structure:aim:swapped:seed:numbers
 */
#ifndef ATTN_TESTS_HOSTILE_H
#define ATTN_TESTS_HOSTILE_H

#include "attn/tensor.h"
#include "support/hostile_values.h"
#include "support/product_ref.h"

enum { HOSTILE_NUMBERS = 18, HOSTILE_TEXT = 512 };

typedef enum hostile_kind { HOSTILE_LINEAR, HOSTILE_MATMUL, HOSTILE_CONVOLUTION, HOSTILE_KINDS } hostile_kind;

/* Which sum gets the two operands of the hostile structure. The third operand gets normal random numbers. */
typedef enum hostile_aim { HOSTILE_FORWARD, HOSTILE_DX, HOSTILE_DW, HOSTILE_AIMS } hostile_aim;

/* Indices of the numbers of a case, for matrix products and for convolutions. */
enum { P_BATCH, P_M, P_N, P_K, P_BIAS, P_TRANSPOSE_A, P_TRANSPOSE_B, P_SHARED, P_TWICE, P_NUMBERS };
enum {
    C_SPATIAL,
    C_BATCH,
    C_CHANNELS,
    C_OUTPUTS,
    C_GROUPS,
    C_SIZE,
    C_KERNEL = C_SIZE + 3,
    C_STRIDE = C_KERNEL + 3,
    C_PADDING = C_STRIDE + 3,
    C_BIAS = C_PADDING + 3,
    C_NUMBERS
};

typedef struct hostile_case {
    hostile_kind kind;
    hostile_structure structure;
    hostile_aim aim;
    bool swap;
    uint64_t seed;
    /* A convolution always has three axes for size, kernel, stride and padding, and uses the last C_SPATIAL of them. */
    int64_t n[HOSTILE_NUMBERS];
} hostile_case;

/* If `large` is true, sizes are at least 128, so that the code for large products runs. */
hostile_case hostile_draw(uint64_t seed, bool large);
void hostile_print(const hostile_case *c, char text[HOSTILE_TEXT]);
bool hostile_parse(hostile_case *c, const char *text);

typedef struct hostile_report {
    /* largest error of an element, divided by its bound in product_ref.h; it must not be above 1 */
    double share;
    int64_t broken; /* number of elements with an error above the bound */
    /* first wrong element and its error, or why the library refused the case */
    char first[HOSTILE_TEXT];
} hostile_report;
/* Returns true if the error of every element is within its bound. Resets `tape`. */
bool hostile_run(attn_tape *tape, const hostile_case *c, hostile_report *report);

bool hostile_run_product(attn_tape *tape, const hostile_case *c, hostile_report *report);
bool hostile_run_convolution(attn_tape *tape, const hostile_case *c, hostile_report *report);
void hostile_note(hostile_report *report, const char *array, const int64_t at[2], double got, double value,
                  double share);
void hostile_refused(hostile_report *report, const attn_tape *tape);
/* Creates a copy of `data` that requires a gradient. The caller destroys it. */
attn_tensor *hostile_tensor(attn_tape *tape, int rank, const int64_t *shape, const float *data);
float *hostile_floats(int64_t n);

#endif
