/* SPDX-License-Identifier: MIT
 * Compares the results of a plan with the reference solver in float64. */
#include "bench.h"

#include <math.h>

/* Returns the allowed error, divided by the largest element of an output. In f32, it covers sums of a few thousand
 * terms. In bf16, it covers the rounding of 2^-9 in storage. In the backward pass, o is rounded twice: when it is
 * written, and when it is read. */
static double bound_of(const attn_problem *problem)
{
    switch (problem->dtype) {
    case ATTN_F64:
        return 1e-12;
    case ATTN_BF16:
        return problem->direction == ATTN_DIRECTION_FORWARD ? 0x1p-7 : 0x1p-5;
    default:
        return problem->direction == ATTN_DIRECTION_FORWARD ? 4e-6 : 2e-5;
    }
}

static double difference(const cli_arrays *done, const cli_arrays *expected, int array)
{
    const attn_span *a = &done->spans[array], *b = &expected->spans[array];
    double largest = 0, error = 0;
    for (int64_t i = 0; i < b->high - b->low; i++) {
        double x = cli_arrays_element(done->blocks[array], a->dtype, i);
        double y = cli_arrays_element(expected->blocks[array], b->dtype, i);
        bool same = (isnan(x) && isnan(y)) || (isinf(x) && isinf(y) && signbit(x) == signbit(y));
        if (same)
            continue;
        if (!isfinite(x) || !isfinite(y))
            return INFINITY;
        largest = fmax(largest, fabs(y));
        error = fmax(error, fabs(x - y));
    }
    return largest > 0 ? error / largest : error;
}

static attn_status run_reference(attn_context *context, const attn_problem *problem, attn_dtype rounded, cli_arrays *a)
{
    attn_plan *plan;
    attn_status status = attn_plan_create(&plan, context, problem, &(attn_plan_options){.solver = "reference"});
    if (status == ATTN_OK && !cli_arrays_create(a, plan, problem, rounded))
        status = ATTN_ERROR_MEMORY;
    if (status == ATTN_OK)
        status = cli_arrays_run_before(context, problem, "reference", a);
    if (status == ATTN_OK)
        status = attn_plan_execute(plan, &a->arrays, NULL);
    attn_plan_destroy(plan);
    return status;
}

attn_status bench_verify(attn_context *context, const attn_problem *problem, const cli_arrays *done, double *error,
                         double *bound)
{
    attn_problem exact = *problem;
    cli_arrays expected = {0};
    exact.dtype = ATTN_F64;
    *error = 0;
    *bound = bound_of(problem);
    attn_status status = run_reference(context, &exact, problem->dtype, &expected);
    for (int array = 0; status == ATTN_OK && array < ATTN_ARRAY_COUNT; array++)
        if (done->blocks[array] && done->spans[array].output)
            *error = fmax(*error, difference(done, &expected, array));
    cli_arrays_destroy(&expected);
    return status;
}
