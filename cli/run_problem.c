/* SPDX-License-Identifier: MIT
 *
 * Implements `attn run --problem`. It converts named tensors to the arrays of one attention problem, and the arrays of
 * results to tensors.
 */
#include "run_problem.h"
#include "problem_arrays.h"

#include "base/bf16.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { NAME = 24 };

/* The names of the arrays, and the fields of attn_dim that hold their strides. */
static const struct array_of {
    const char *name;
    size_t strides;
} arrays[] = {
#define ARRAY(NAME, field, strides, written) [ATTN_ARRAY_##NAME] = {#field, offsetof(attn_dim, strides)},
    ATTN_ARRAYS(ARRAY)
#undef ARRAY
};

static bool is_row(int array)
{
    return arrays[array].strides == offsetof(attn_dim, n);
}

static void place_gradients(attn_problem *problem)
{
    for (int d = 0; d < problem->ndims; d++) {
        attn_dim *dim = &problem->dims[d];
        dim->dq = dim->q, dim->dk = dim->k, dim->dv = dim->v, dim->dout = dim->o, dim->dbias = dim->bias;
    }
}

static const char *name_of(int array, char name[NAME])
{
    if (array >= ATTN_ARRAY_Q)
        return arrays[array].name;
    bool gradient = array >= ATTN_ARRAY_DTABLE;
    snprintf(name, NAME, "%stable%d", gradient ? "d" : "", array - (gradient ? ATTN_ARRAY_DTABLE : ATTN_ARRAY_TABLE));
    return name;
}

/* Returns the number of the array with this name, or ATTN_ARRAY_COUNT if there is none. */
static int array_named(const char *text)
{
    char name[NAME];
    int array = 0;
    while (array < ATTN_ARRAY_COUNT && strcmp(name_of(array, name), text) != 0)
        array++;
    return array;
}

static int64_t stride_of(const attn_problem *problem, int array, int dim)
{
    int64_t stride;
    memcpy(&stride, (const char *)&problem->dims[dim] + arrays[array].strides, sizeof stride);
    return stride;
}

/* Returns the length of an array along a dim. In a packed array, it is the number of positions of all sequences.
 * Along the keys of a window, it is the number of positions of the axis, and not of taps. */
static int64_t length_of(const attn_problem *problem, int array, int dim)
{
    const attn_packed *packed = &problem->packed;
    bool is_packed = problem->flags & ATTN_WITH_PACKED;
    bool of_keys = array == ATTN_ARRAY_K || array == ATTN_ARRAY_V || array == ATTN_ARRAY_DK || array == ATTN_ARRAY_DV ||
                   array == ATTN_ARRAY_MASK;
    for (int i = 0; i < problem->nwindows && of_keys; i++)
        if (problem->windows[i].key_dim == dim)
            return problem->windows[i].size;
    return is_packed && dim == packed->query_dim ? packed->queries
           : is_packed && dim == packed->key_dim ? packed->keys
                                                 : problem->dims[dim].n;
}

/* Finds the shape of an array that has no strides, and returns its rank. Tables are [distances,channels], blocks are
 * [query blocks,key blocks], a bias by distance is [heads,distances], and a bias through an index is [heads,rows].
 * Returns 0 for other arrays. */
static int shape_of_table(const attn_problem *problem, int array, int64_t size, int64_t shape[ATTN_MAX_DIMS])
{
    bool by_row = (problem->flags & ATTN_WITH_BIAS_INDEX) != 0;
    int64_t inner = size;
    if (array < ATTN_ARRAY_Q)
        inner = problem->relatives[(array - ATTN_ARRAY_TABLE) % ATTN_MAX_RELATIVE].row_stride;
    else if (array == ATTN_ARRAY_BLOCKS)
        inner = problem->dims[problem->blocks.query_dim].blocks;
    else if (array == ATTN_ARRAY_BIAS || array == ATTN_ARRAY_DBIAS) {
        for (int d = 0; d < problem->ndims; d++) {
            by_row = by_row || problem->dims[d].bias < 0;
            if (problem->dims[d].role == ATTN_ROLE_BATCH && problem->dims[d].bias > 0)
                inner = problem->dims[d].bias < inner ? problem->dims[d].bias : inner;
        }
        if (!by_row)
            return 0;
    } else if (!is_row(array))
        return 0;
    shape[0] = inner > 0 ? size / inner : 0;
    shape[1] = inner;
    if (inner != size)
        return 2;
    shape[0] = size;
    return 1;
}

/* Returns true if dim `outer` is the heads of keys and dim `inner` is the query heads that share a head of keys. */
static bool is_group(const attn_problem *problem, int array, int outer, int inner)
{
    const attn_dim *a = &problem->dims[outer], *b = &problem->dims[inner];
    return a->role == ATTN_ROLE_BATCH && b->role == ATTN_ROLE_BATCH && b->k == 0 && b->q != 0 &&
           stride_of(problem, array, outer) == b->n * stride_of(problem, array, inner);
}

/* A contiguous array gets the lengths of its dims, outermost first. Its two dims of query heads become one. Any other
 * array gets one axis with all elements. */
static int shape_of(const attn_problem *problem, int array, const attn_span *span, int64_t shape[ATTN_MAX_DIMS])
{
    int64_t size = span->high - span->low, expected = 1;
    int dims[ATTN_MAX_DIMS], n = 0, rank = shape_of_table(problem, array, size, shape);
    if (rank > 0)
        return rank;
    for (int d = 0; d < problem->ndims; d++) {
        int64_t stride = stride_of(problem, array, d);
        int at = n;
        if (stride == 0)
            continue;
        /* If two strides are equal, at least one of the two dims has length 1. */
        for (; at > 0 && (stride_of(problem, array, dims[at - 1]) < stride ||
                          (stride_of(problem, array, dims[at - 1]) == stride && problem->dims[dims[at - 1]].n == 1));
             at--)
            dims[at] = dims[at - 1];
        dims[at] = d;
        n++;
    }
    bool flat = false;
    for (int i = n - 1; i >= 0; i--) {
        int64_t length = length_of(problem, array, dims[i]);
        flat = flat || (stride_of(problem, array, dims[i]) != expected && length != 1);
        expected *= length;
    }
    if (flat || expected != size) {
        shape[0] = size;
        return 1;
    }
    for (int i = 0; i < n; i++) {
        int64_t length = length_of(problem, array, dims[i]);
        if (i > 0 && is_group(problem, array, dims[i - 1], dims[i]))
            shape[rank - 1] *= length;
        else
            shape[rank++] = length;
    }
    return rank;
}

static void print_shape(char text[128], const int64_t *shape, int rank)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < rank && used < 100; i++)
        used += (size_t)snprintf(text + used, 128 - used, "%s%lld", i ? "," : "", (long long)shape[i]);
}

/* ------------------------------------------------------------------------------------------------ inputs */

static double number(const attn_tensor *x, int64_t i)
{
    const void *data = attn_tensor_data(x);
    switch (attn_tensor_dtype(x)) {
    case ATTN_I32:
        return ((const int32_t *)data)[i];
    case ATTN_I64:
        return (double)((const int64_t *)data)[i];
    case ATTN_U8:
    case ATTN_BOOL:
        return ((const uint8_t *)data)[i];
    default:
        return cli_arrays_element(data, attn_tensor_dtype(x), i);
    }
}

/* Stores a number in the array's type. Returns false if the type cannot represent it. */
static bool put(void *block, attn_dtype dtype, int64_t i, double x)
{
    bool whole = x == floor(x);
    switch (dtype) {
    case ATTN_F64:
        ((double *)block)[i] = x;
        return true;
    case ATTN_F32:
        ((float *)block)[i] = (float)x;
        return true;
    case ATTN_BF16:
        ((uint16_t *)block)[i] = attn__to_bf16((float)x);
        return true;
    case ATTN_I32:
        ((int32_t *)block)[i] = whole && fabs(x) <= INT32_MAX ? (int32_t)x : 0;
        return whole && fabs(x) <= INT32_MAX;
    default:
        ((uint8_t *)block)[i] = x != 0;
        return true;
    }
}

static int take(const attn_problem *problem, cli_arrays *a, int array, const attn_tensor *x)
{
    char name[NAME], text[128], given[128];
    int64_t shape[ATTN_MAX_DIMS], lengths[ATTN_MAX_DIMS], size = a->spans[array].high - a->spans[array].low;
    int rank = shape_of(problem, array, &a->spans[array], shape), its = attn_tensor_rank(x);
    bool fits = its == rank && its <= ATTN_MAX_DIMS;
    for (int i = 0; i < its && i < ATTN_MAX_DIMS; i++) {
        lengths[i] = attn_tensor_length(x, i);
        fits = fits && lengths[i] == shape[i];
    }
    fits = fits || (size == 0 && attn_tensor_size(x) == 0);
    print_shape(text, shape, rank);
    print_shape(given, lengths, its < ATTN_MAX_DIMS ? its : ATTN_MAX_DIMS);
    if (!fits)
        return cli_fail(CLI_BAD, "--input %s: expected the shape [%s], found [%s]", name_of(array, name), text, given);
    for (int64_t i = 0; i < size; i++)
        if (!put(a->blocks[array], a->spans[array].dtype, i, number(x, i)))
            return cli_fail(CLI_BAD, "--input %s: number %lld is %g; expected 32-bit integers", name_of(array, name),
                            (long long)i, number(x, i));
    return CLI_OK;
}

/* Returns true if the user must give the array. Results of the forward pass that the backward pass reads are not
 * given but computed. */
static bool is_asked(const cli_arrays *a, int array)
{
    return a->blocks[array] && !a->spans[array].output && array != ATTN_ARRAY_O && array != ATTN_ARRAY_LSE;
}

static int take_all(const attn_problem *problem, cli_arrays *a, const attn_named_list *inputs)
{
    char name[NAME];
    int code = CLI_OK;
    for (int64_t i = 0; i < inputs->n && code == CLI_OK; i++) {
        int array = array_named(inputs->items[i].name);
        if (array == ATTN_ARRAY_COUNT || !is_asked(a, array))
            return cli_fail(CLI_BAD, "--input: this problem has no input \"%s\"", inputs->items[i].name);
        if (attn_named_find(inputs, inputs->items[i].name) != inputs->items[i].tensor)
            return cli_fail(CLI_BAD, "--input: \"%s\" is given twice", inputs->items[i].name);
        code = take(problem, a, array, inputs->items[i].tensor);
    }
    for (int array = 0; array < ATTN_ARRAY_COUNT && code == CLI_OK; array++)
        if (is_asked(a, array) && !attn_named_find(inputs, name_of(array, name))) {
            char text[128];
            int64_t shape[ATTN_MAX_DIMS];
            print_shape(text, shape, shape_of(problem, array, &a->spans[array], shape));
            code = cli_fail(CLI_BAD, "--input %s is missing; its shape is [%s]", name_of(array, name), text);
        }
    return code;
}

/* ----------------------------------------------------------------------------------------------- outputs */

/* A bf16 output becomes f32, because .npy does not support bf16. */
static int give(const cli_call *cli, const attn_problem *problem, const cli_arrays *a, attn_named *output)
{
    int array = array_named(output->name);
    bool there = array != ATTN_ARRAY_COUNT && a->blocks[array] && !is_asked(a, array);
    int64_t shape[ATTN_MAX_DIMS];
    if (!there)
        return cli_fail(CLI_BAD, "--output: this problem has no output \"%s\"", output->name);
    const attn_span *span = &a->spans[array];
    attn_dtype dtype = span->dtype == ATTN_BF16 ? ATTN_F32 : span->dtype;
    if (attn_tensor_create(&output->tensor, cli->context, dtype, shape_of(problem, array, span, shape), shape) !=
        ATTN_OK)
        return cli_failed(cli, NULL);
    for (int64_t i = 0; i < span->high - span->low; i++)
        put(attn_tensor_data(output->tensor), dtype, i, cli_arrays_element(a->blocks[array], span->dtype, i));
    return CLI_OK;
}

static bool asks_for(const attn_named_list *outputs, const char *name)
{
    int64_t i = 0;
    while (i < outputs->n && strcmp(outputs->items[i].name, name) != 0)
        i++;
    return i < outputs->n;
}

static attn_direction direction_of(const attn_named_list *outputs)
{
    for (int64_t i = 0; i < outputs->n; i++) {
        int array = array_named(outputs->items[i].name);
        bool gradient = array >= ATTN_ARRAY_DQ || (array >= ATTN_ARRAY_DTABLE && array < ATTN_ARRAY_Q);
        if (gradient && array < ATTN_ARRAY_COUNT)
            return ATTN_DIRECTION_BACKWARD;
    }
    return ATTN_DIRECTION_FORWARD;
}

static int execute(const cli_call *cli, const attn_problem *problem, const attn_plan *plan, cli_arrays *a,
                   const attn_named_list *inputs, attn_named_list *outputs)
{
    int code = take_all(problem, a, inputs);
    if (code != CLI_OK)
        return code;
    attn_status status = cli_arrays_run_before(cli->context, problem, NULL, a);
    if (status == ATTN_OK)
        status = attn_plan_execute(plan, &a->arrays, NULL);
    if (status != ATTN_OK)
        return cli_failed(cli, NULL);
    for (int64_t i = 0; i < outputs->n && code == CLI_OK; i++)
        code = give(cli, problem, a, &outputs->items[i]);
    return code;
}

int cli_run_problem(const cli_call *cli, const attn_named_list *inputs, attn_named_list *outputs)
{
    attn_problem problem;
    attn_plan *plan = NULL;
    cli_arrays a;
    outputs->owns = true;
    if (outputs->n == 0)
        return cli_fail(CLI_BAD, "--problem: no output is requested; give --output NAME=FILE");
    if (attn_problem_parse(&problem, cli->context, cli_text(cli, "problem"), direction_of(outputs)) != ATTN_OK)
        return cli_failed(cli, NULL);
    if (problem.dropout > 0)
        problem.seed = (uint64_t)cli_int(cli, "seed");
    if (problem.direction == ATTN_DIRECTION_FORWARD && asks_for(outputs, "lse"))
        problem.flags |= ATTN_WANT_LSE;
    if (attn_plan_create(&plan, cli->context, &problem, NULL) != ATTN_OK)
        return cli_failed(cli, NULL);
    place_gradients(&problem);
    int code = cli_arrays_create(&a, plan, &problem, problem.dtype) ? CLI_OK : cli_fail(CLI_FAILED, "out of memory");
    if (code == CLI_OK) {
        code = execute(cli, &problem, plan, &a, inputs, outputs);
        cli_arrays_destroy(&a);
    }
    attn_plan_destroy(plan);
    return code;
}
