/* SPDX-License-Identifier: MIT
 *
 * hostile.h - products through tensor.h on hostile operands, each element of results and gradients against float64 and
 * the promise of product_ref.h.  A case is one line of text, which a failure prints and a test takes back:
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

/* The sum that the structure is laid out for; the operand that is not in it is normal. */
typedef enum hostile_aim { HOSTILE_FORWARD, HOSTILE_DX, HOSTILE_DW, HOSTILE_AIMS } hostile_aim;

/* The numbers that describe a product, and those of a convolution. */
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
    int64_t n[HOSTILE_NUMBERS]; /* C_SIZE and the following three: of three axes, the last C_SPATIAL ones used */
} hostile_case;

/* A case of any kind; `large`: 128 and more each way, so that the ways for large products are taken. */
hostile_case hostile_draw(uint64_t seed, bool large);
void hostile_print(const hostile_case *c, char text[HOSTILE_TEXT]);
bool hostile_parse(hostile_case *c, const char *text);

typedef struct hostile_report {
    double share;             /* the largest share of the bound that an element used up; above 1: broken */
    int64_t broken;           /* elements */
    char first[HOSTILE_TEXT]; /* which element, and how far it is off; or why the library refused */
} hostile_report;
/* True if every element is within its bound. Resets `tape`. */
bool hostile_run(attn_tape *tape, const hostile_case *c, hostile_report *report);

/* The parts of hostile_run. */
bool hostile_run_product(attn_tape *tape, const hostile_case *c, hostile_report *report);
bool hostile_run_convolution(attn_tape *tape, const hostile_case *c, hostile_report *report);
void hostile_note(hostile_report *report, const char *array, const int64_t at[2], double got, double value,
                  double share);
void hostile_refused(hostile_report *report, const attn_tape *tape);
/* A copy of `data` that requires a gradient; the caller destroys it. */
attn_tensor *hostile_tensor(attn_tape *tape, int rank, const int64_t *shape, const float *data);
float *hostile_floats(int64_t n);

#endif
