/* SPDX-License-Identifier: MIT
 * Allocates and fills the arrays of a plan. */
#include "problem_arrays.h"

#include "base/bf16.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

/* Sets the field of attn_arrays that has the number `array`. */
static void point(attn_arrays *a, int array, const void *data)
{
    static const size_t fields[ATTN_ARRAY_COUNT] = {
#define FIELD(NAME, field, strides, written) [ATTN_ARRAY_##NAME] = offsetof(attn_arrays, field),
        ATTN_ARRAYS(FIELD)
#undef FIELD
    };
    if (array >= ATTN_ARRAY_Q)
        memcpy((char *)a + fields[array], &data, sizeof data);
    else if (array < ATTN_ARRAY_DTABLE)
        a->table[array - ATTN_ARRAY_TABLE] = data;
    else
        a->dtable[array - ATTN_ARRAY_DTABLE] = (void *)(uintptr_t)data;
}

uint64_t cli_arrays_scatter(uint64_t array, uint64_t i)
{
    uint64_t x = (array + 1) * UINT64_C(0x9e3779b97f4a7c15) + i * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

double cli_arrays_element(const void *block, attn_dtype dtype, int64_t i)
{
    switch (dtype) {
    case ATTN_F64:
        return ((const double *)block)[i];
    case ATTN_BF16:
        return (double)attn__from_bf16(((const uint16_t *)block)[i]);
    default:
        return (double)((const float *)block)[i];
    }
}

/* Fills an array with reals in [-1, 1). */
static void fill_reals(void *block, attn_dtype dtype, attn_dtype rounded, int array, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float x = (float)(int32_t)(uint32_t)cli_arrays_scatter((uint64_t)array, (uint64_t)i) * 0x1p-31f;
        uint16_t half = attn__to_bf16(x);
        if (rounded == ATTN_BF16)
            x = attn__from_bf16(half);
        if (dtype == ATTN_F64)
            ((double *)block)[i] = (double)x;
        else if (dtype == ATTN_BF16)
            ((uint16_t *)block)[i] = half;
        else
            ((float *)block)[i] = x;
    }
}

/* Sequences have random lengths, from 0 to `longest`, and together fit into `positions`. q and k get the same relative
 * lengths. */
static void fill_offsets(int32_t *offsets, int64_t sequences, int64_t longest, int64_t positions)
{
    double mean = sequences ? (double)positions / (double)sequences : 0;
    double reach = 2 * mean > (double)longest ? (double)longest - mean : mean;
    double sum = 0, even = 0;
    for (int64_t s = 0; s < sequences; s++) {
        uint64_t share = cli_arrays_scatter(ATTN_ARRAY_Q_OFFSETS, (uint64_t)(s / 2)) % 1000;
        /* Two neighbouring sequences have the lengths mean + even and mean - even. */
        even = (double)share / 1000 * reach * (s % 2 ? -1 : 1);
        sum += s == sequences - 1 && s % 2 == 0 ? mean : mean + even;
        offsets[s + 1] = (int32_t)(sum < (double)positions ? sum : (double)positions);
        if (offsets[s + 1] - offsets[s] > longest)
            offsets[s + 1] = (int32_t)(offsets[s] + longest);
    }
}

static void fill_index(int32_t *index, int64_t n, int64_t rows)
{
    for (int64_t i = 0; i < n; i++)
        index[i] = (int32_t)(cli_arrays_scatter(ATTN_ARRAY_BIAS_INDEX, (uint64_t)i) % (uint64_t)rows);
}

/* Each length is between half and all of the keys, as in padded data. A mask masks one key in eight. */
static void fill(void *block, const attn_span *span, attn_dtype rounded, int array, int64_t keys)
{
    int64_t n = span->high - span->low;
    for (int64_t i = 0; array == ATTN_ARRAY_MASK && i < n; i++)
        ((uint8_t *)block)[i] = cli_arrays_scatter((uint64_t)array, (uint64_t)i) % 8 != 0;
    for (int64_t i = 0; array == ATTN_ARRAY_LENS && i < n; i++)
        ((int32_t *)block)[i] = (int32_t)(keys / 2 + (int64_t)(cli_arrays_scatter((uint64_t)array, (uint64_t)i) %
                                                               (uint64_t)(keys - keys / 2 + 1)));
    for (int64_t i = 0; array == ATTN_ARRAY_BLOCKS && i < n; i++)
        ((uint8_t *)block)[i] = cli_arrays_scatter((uint64_t)array, (uint64_t)i) % 4 == 0;
    if (array != ATTN_ARRAY_MASK && array != ATTN_ARRAY_BLOCKS && array != ATTN_ARRAY_LENS &&
        array != ATTN_ARRAY_Q_OFFSETS && array != ATTN_ARRAY_K_OFFSETS)
        fill_reals(block, span->dtype, rounded, array, n);
}

/* Returns the type to which an array's numbers are rounded. Bias and other side operands of a bf16 problem are f32,
 * so that they are not rounded. */
static attn_dtype rounding(attn_dtype rounded, int array)
{
    bool typed = array <= ATTN_ARRAY_V || array == ATTN_ARRAY_O || array == ATTN_ARRAY_DOUT;
    return typed || rounded != ATTN_BF16 ? rounded : ATTN_F32;
}

void *cli_arrays_take(size_t bytes)
{
    const size_t page = (size_t)2 << 20;
    size_t align = bytes >= page ? page : 64;
    void *block = aligned_alloc(align, (bytes + align - 1) / align * align);
#ifdef MADV_HUGEPAGE
    if (block && align == page)
        (void)madvise(block, bytes, MADV_HUGEPAGE);
#endif
    return block;
}

bool cli_arrays_create(cli_arrays *made, const attn_plan *plan, const attn_problem *problem, attn_dtype rounded)
{
    *made = (cli_arrays){0};
    int64_t keys = problem->dims[problem->lens_dim].n;
    for (int array = 0; array < ATTN_ARRAY_COUNT; array++) {
        attn_span *span = &made->spans[array];
        if (!attn_plan_span(plan, (attn_array)array, span))
            continue;
        size_t size = attn_dtype_size(span->dtype), bytes = (size_t)(span->high - span->low) * size;
        bytes = (bytes / 64 + 1) * 64;
        made->blocks[array] = cli_arrays_take(bytes);
        if (!made->blocks[array]) {
            cli_arrays_destroy(made);
            return false;
        }
        memset(made->blocks[array], 0, bytes);
        const attn_packed *p = &problem->packed;
        if (array == ATTN_ARRAY_Q_OFFSETS)
            fill_offsets(made->blocks[array], span->high - 1, problem->dims[p->query_dim].n, p->queries);
        else if (array == ATTN_ARRAY_K_OFFSETS)
            fill_offsets(made->blocks[array], span->high - 1, problem->dims[p->key_dim].n, p->keys);
        else if (array == ATTN_ARRAY_BIAS_INDEX)
            fill_index(made->blocks[array], span->high - span->low, problem->bias_index.rows);
        else if (!span->output)
            fill(made->blocks[array], span, rounding(rounded, array), array, keys);
        point(&made->arrays, array, (char *)made->blocks[array] - span->low * (int64_t)size);
    }
    return true;
}

void cli_arrays_destroy(cli_arrays *made)
{
    for (int array = 0; array < ATTN_ARRAY_COUNT; array++)
        free(made->blocks[array]);
    *made = (cli_arrays){0};
}

attn_status cli_arrays_run_before(attn_context *context, const attn_problem *problem, const char *solver, cli_arrays *a)
{
    attn_problem forward = *problem;
    attn_plan *plan;
    if (problem->direction == ATTN_DIRECTION_FORWARD)
        return ATTN_OK;
    forward.direction = ATTN_DIRECTION_FORWARD;
    forward.flags &= ATTN_WITH_ALL;
    forward.flags |= problem->normalization == ATTN_NORMALIZATION_SIGMOID ? 0 : ATTN_WANT_LSE;
    attn_status status = attn_plan_create(&plan, context, &forward, &(attn_plan_options){.solver = solver});
    if (status == ATTN_OK)
        status = attn_plan_execute(plan, &a->arrays, NULL);
    attn_plan_destroy(plan);
    return status;
}
