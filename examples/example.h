/* SPDX-License-Identifier: MIT
 *
 * Functions that the examples use. They fill arrays with numbers, end the program with a message if a call or a check
 * fails, and print a problem's table of dims.
 */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include <attn/attn.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Ends the program with the context's error message if a call failed. Every function of the engine returns a status. */
static inline void must(const attn_context *context, attn_status status)
{
    if (status == ATTN_OK)
        return;
    fprintf(stderr, "%s: %s\n", attn_status_text(status), attn_context_error(context));
    exit(1);
}

static inline void claim(bool holds, const char *text)
{
    printf("%s: %s\n", text, holds ? "yes" : "NO");
    if (!holds)
        exit(1);
}

static inline attn_context *begin(void)
{
    attn_context *context;
    if (attn_context_create(&context, NULL) != ATTN_OK) {
        fprintf(stderr, "no context\n");
        exit(1);
    }
    return context;
}

/* Fills an array with numbers in [-1, 1) that are the same in every run. */
static inline void fill(float *x, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

static inline double furthest(const float *a, const float *b, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        double apart = fabs((double)a[i] - (double)b[i]);
        most = apart > most || isnan(apart) ? apart : most;
    }
    return most;
}

/* Plans a problem and executes it once. A program that runs a problem often should keep its plan. */
static inline void run(attn_context *context, const attn_problem *problem, const attn_arrays *arrays)
{
    attn_plan *plan;
    must(context, attn_plan_create(&plan, context, problem, NULL));
    must(context, attn_plan_execute(plan, arrays, NULL));
    attn_plan_destroy(plan);
}

/* Prints the table of dims. For each dim, it has the role, the length, and the stride of each operand in elements. */
static inline void print_table(const char *title, const attn_problem *problem)
{
    static const char *const roles[] = {"", "BATCH", "QUERY", "KEY", "CONTRACT", "VALUE"};
    printf("%s\n  %-8s %5s %6s %6s %6s %6s %6s %6s\n", title, "role", "n", "q", "k", "v", "o", "bias", "mask");
    for (int i = 0; i < problem->ndims; i++) {
        const attn_dim *d = &problem->dims[i];
        printf("  %-8s %5d %6d %6d %6d %6d %6d %6d\n", roles[d->role], (int)d->n, (int)d->q, (int)d->k, (int)d->v,
               (int)d->o, (int)d->bias, (int)d->mask);
    }
}

#endif
