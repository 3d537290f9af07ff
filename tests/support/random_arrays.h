/* SPDX-License-Identifier: MIT
 *
 * random_arrays.h - strides and arrays of a random problem.
 */
#ifndef ATTN_TESTS_RANDOM_ARRAYS_H
#define ATTN_TESTS_RANDOM_ARRAYS_H

#include "support/random_problem.h"

#include "base/rng.h"

int random_dim(attn__rng *g, const attn_problem *p, attn_role role);
/* Gives strides to every operand: contiguous in a random order of the dims if `plain` is true. Otherwise an operand
 * may also have gaps, reversed dims or broadcast dims. */
void random_layout(attn__rng *g, random_problem *r, bool plain);
void random_allocate(random_problem *r);
void random_index(random_problem *r);
void random_offsets(attn__rng *g, random_problem *r);
/* Fills the inputs with normal numbers, multiplies q and k by `loud`, and writes NaN wherever no query attends. */
void random_fill(attn__rng *g, random_problem *r, double loud);

#endif
