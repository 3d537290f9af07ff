/* SPDX-License-Identifier: MIT
 *
 * Tests valid and invalid problems that are made from bytes. If a problem is refused, there must be a message.
 * Otherwise every solver that accepts the problem must agree with the reference solver in float64.
 */
#include "attn/attn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LENGTH = 12, MOST_SPAN = 1 << 15, MOST_PAIRS = 1 << 12 };

typedef struct bytes {
    const uint8_t *at, *end;
} bytes;

/* Returns a number in [least, most], which is made from the next bytes. If all bytes are used, returns `least`. */
static int64_t take(bytes *b, int64_t least, int64_t most)
{
    return b->at < b->end ? least + *b->at++ % (most - least + 1) : least;
}

/* ------------------------------------------------------------------------------------------ a problem */

static attn_status make_usual(attn_problem *p, bytes *b)
{
    int64_t n[8];
    int form = (int)take(b, 0, 3);
    for (int i = 0; i < 8; i++)
        n[i] = take(b, 0, i < 2 ? 3 : MOST_LENGTH);
    switch (form) {
    case 0:
        return attn_problem_heads(p, &(attn_heads){.batch = n[0],
                                                   .heads = n[1] * (1 + n[2] % 2),
                                                   .kv_heads = n[1],
                                                   .queries = n[3],
                                                   .keys = n[4],
                                                   .dim = n[5],
                                                   .dim_value = n[6],
                                                   .layout = (attn_layout)(n[2] / 2 % 2),
                                                   .causal = (attn_causal)(n[7] % 3),
                                                   .lens_per = (int)(n[7] / 3 % 3),
                                                   .key_padding = n[7] > 8,
                                                   .packed = n[2] % 5 == 4,
                                                   .packed_queries = n[0] * n[3],
                                                   .packed_keys = n[0] * n[4] / 2});
    case 1:
        return attn_problem_axis(p, &(attn_axis){.rank = 3,
                                                 .shape = {n[2], n[3], n[4]},
                                                 .axis = (int)(n[5] % 3),
                                                 .channel_axis = (int)(n[6] % 3),
                                                 .heads = n[0],
                                                 .causal = (attn_causal)(n[7] % 3)});
    case 2:
        return attn_problem_tied_rows(p, n[2], n[3], n[0], n[1], n[4]);
    default:
        return attn_problem_window2d(p, &(attn_window2d){.batch = n[0],
                                                         .heads = n[1],
                                                         .height = n[2],
                                                         .width = n[3],
                                                         .dim = n[4],
                                                         .window_y = n[5] % 5,
                                                         .window_x = n[6] % 5,
                                                         .step = n[7] % 3,
                                                         .dilation = n[7] / 3 % 3,
                                                         .border = (attn_border)(n[7] % 3)});
    }
}

static void add_table(attn_problem *p, bytes *b)
{
    if (p->nrelatives == ATTN_MAX_RELATIVE)
        return;
    attn_relative *r = &p->relatives[p->nrelatives++];
    r->kind = (attn_relative_kind)take(b, 0, 3);
    r->query_dim = (int)take(b, 0, p->ndims);
    r->key_dim = (int)take(b, 0, p->ndims);
    r->offset = take(b, -2, MOST_LENGTH);
    r->rows = take(b, -1, 3 * MOST_LENGTH);
    r->row_stride = take(b, 0, MOST_LENGTH);
    r->stride[take(b, 0, ATTN_MAX_DIMS - 1)] = take(b, -1, 2);
    r->begin = take(b, 0, 2);
    r->end = take(b, 0, MOST_LENGTH);
}

static void add_operand(attn_problem *p, bytes *b)
{
    static const unsigned with[] = {ATTN_WITH_BIAS, ATTN_WITH_MASK, ATTN_WITH_LENS, ATTN_WITH_SINKS, ATTN_WITH_BLOCKS};
    static const size_t strides[] = {offsetof(attn_dim, bias), offsetof(attn_dim, mask), offsetof(attn_dim, lens),
                                     offsetof(attn_dim, sinks), offsetof(attn_dim, blocks)};
    int which = (int)take(b, 0, 4);
    int64_t stride = 1;
    p->flags |= with[which];
    p->lens_dim = (int)take(b, 0, p->ndims);
    if (which == 0 && take(b, 0, 2) == 2) {
        p->flags |= ATTN_WITH_BIAS_INDEX;
        p->bias_index = (attn_bias_index){.rows = take(b, 0, 9), .row_stride = take(b, 0, 3)};
    }
    if (which == 4)
        p->blocks = (attn_blocks){(int)take(b, 0, p->ndims), p->lens_dim, take(b, 0, 9), take(b, 0, 9)};
    for (int i = p->ndims - 1; i >= 0; i--) {
        attn_role role = p->dims[i].role;
        if (role > ATTN_ROLE_KEY || ((which == 2 || which == 3) && role == ATTN_ROLE_KEY) || take(b, 0, 3) == 3)
            continue;
        *(int64_t *)(void *)((char *)&p->dims[i] + strides[which]) = stride;
        stride *= p->dims[i].n + 4;
    }
}

static void change(attn_problem *p, bytes *b)
{
    static const double fills[] = {0, -1e6, -3, 2}, scales[] = {0, 0.5, 1, -2};
    attn_dim *dim = &p->dims[take(b, 0, p->ndims > 0 ? p->ndims - 1 : 0)];
    switch (take(b, 0, 13)) {
    case 0:
        dim->n = take(b, -1, MOST_LENGTH);
        break;
    case 1:
        (&dim->q)[take(b, 0, 11)] = take(b, 0, 7) == 7 ? INT64_MAX / (1 + take(b, 0, 3)) : take(b, -20, 60);
        break;
    case 2:
        dim->role = (attn_role)take(b, 0, 6);
        break;
    case 3:
        if (p->nbands < ATTN_MAX_BANDS)
            p->bands[p->nbands++] =
                (attn_band){(int)take(b, 0, p->ndims), (int)take(b, 0, p->ndims), take(b, -6, 3), take(b, -3, 6)};
        break;
    case 4:
        add_table(p, b);
        break;
    case 5:
        add_operand(p, b);
        break;
    case 6:
        p->mask_fill = fills[take(b, 0, 3)];
        break;
    case 7:
        p->scale = scales[take(b, 0, 3)];
        break;
    case 8:
        p->dropout = (double)take(b, 0, 5) / 5;
        p->seed = (uint64_t)take(b, 0, 9);
        break;
    case 9:
        p->score = (attn_score)take(b, 0, ATTN_SCORE_COUNT);
        for (int i = p->ndims - 1; i >= 0; i--)
            if (p->dims[i].role == ATTN_ROLE_CONTRACT)
                p->dims[i].w = 1;
        break;
    case 10:
        p->normalization = (attn_normalization)take(b, 0, ATTN_NORMALIZATION_SIGMOID + 1);
        p->own_sigmoid_bias = p->normalization == ATTN_NORMALIZATION_SIGMOID && take(b, 0, 1);
        p->sigmoid_bias = p->own_sigmoid_bias ? (double)take(b, -4, 4) : 0;
        break;
    case 12:
        p->softcap = (double)take(b, -1, 6) / 2;
        break;
    case 11:
        p->dtype = (attn_dtype)take(b, 0, 3);
        break;
    default:
        p->flags ^= 1U << take(b, 0, 31);
    }
}

static bool make_problem(attn_problem *p, attn_context *context, bytes *b)
{
    attn_direction direction = (attn_direction)take(b, 0, 1);
    if (take(b, 0, 3) == 0) {
        char text[96];
        size_t n = (size_t)(b->end - b->at) < sizeof text - 1 ? (size_t)(b->end - b->at) : sizeof text - 1;
        memcpy(text, b->at, n);
        text[n] = '\0';
        return attn_problem_parse(p, context, text, direction) == ATTN_OK;
    }
    if (make_usual(p, b) != ATTN_OK)
        return false;
    p->direction = direction;
    if (direction == ATTN_DIRECTION_BACKWARD)
        p->flags |= ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
    for (int64_t i = take(b, 0, 7); i > 0; i--)
        change(p, b);
    p->flags &= ~(unsigned)ATTN_WANT_WEIGHTS;
    return true;
}

/* Returns true if the reference solver can run the problem many times per second. */
static bool is_small(const attn_problem *p)
{
    double work = 1;
    for (int i = 0; i < p->ndims; i++)
        work *= (double)(p->dims[i].n > 1 ? p->dims[i].n : 1);
    return work <= (double)MOST_PAIRS * MOST_LENGTH;
}

/* --------------------------------------------------------------------------------------------- arrays */

typedef struct arrays {
    attn_arrays a;
    attn_span spans[ATTN_ARRAY_COUNT];
    char *blocks[ATTN_ARRAY_COUNT];
} arrays;

static void put(arrays *s, int array, void *at)
{
    attn_arrays *a = &s->a;
    void *const slots[ATTN_ARRAY_COUNT] = {
        [ATTN_ARRAY_Q] = &a->q,
        [ATTN_ARRAY_K] = &a->k,
        [ATTN_ARRAY_V] = &a->v,
        [ATTN_ARRAY_BIAS] = &a->bias,
        [ATTN_ARRAY_MASK] = &a->mask,
        [ATTN_ARRAY_LENS] = &a->lens,
        [ATTN_ARRAY_W] = &a->w,
        [ATTN_ARRAY_W2] = &a->w2,
        [ATTN_ARRAY_Q_OFFSETS] = &a->q_offsets,
        [ATTN_ARRAY_K_OFFSETS] = &a->k_offsets,
        [ATTN_ARRAY_BIAS_INDEX] = &a->bias_index,
        [ATTN_ARRAY_SINKS] = &a->sinks,
        [ATTN_ARRAY_DLSE] = &a->dlse,
        [ATTN_ARRAY_BLOCKS] = &a->blocks,
        [ATTN_ARRAY_O] = &a->o,
        [ATTN_ARRAY_LSE] = &a->lse,
        [ATTN_ARRAY_DOUT] = &a->dout,
        [ATTN_ARRAY_DQ] = &a->dq,
        [ATTN_ARRAY_DK] = &a->dk,
        [ATTN_ARRAY_DV] = &a->dv,
        [ATTN_ARRAY_DBIAS] = &a->dbias,
        [ATTN_ARRAY_DW] = &a->dw,
        [ATTN_ARRAY_DW2] = &a->dw2,
        [ATTN_ARRAY_DSINKS] = &a->dsinks,
    };
    if (array >= ATTN_ARRAY_Q)
        *(void **)slots[array] = at;
    else if (array < ATTN_ARRAY_DTABLE)
        a->table[array - ATTN_ARRAY_TABLE] = at;
    else
        a->dtable[array - ATTN_ARRAY_DTABLE] = at;
}

/* Fills an array with numbers that bf16 represents exactly. */
static void fill(char *block, attn_dtype dtype, int64_t n, int array)
{
    for (int64_t i = 0; i < n; i++) {
        float x = (float)((i * 37 + array * 11) % 255 - 127) / 128;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        if (dtype == ATTN_U8)
            block[i] = (i * 7 + array) % 5 != 0;
        else if (dtype == ATTN_I32)
            ((int32_t *)(void *)block)[i] = (int32_t)(i * 5 % 11 - 1);
        else if (dtype == ATTN_F64)
            ((double *)(void *)block)[i] = (double)x;
        else if (dtype == ATTN_BF16)
            ((uint16_t *)(void *)block)[i] = (uint16_t)(bits >> 16);
        else
            ((float *)(void *)block)[i] = x;
    }
}

/* Fills offsets of packed sequences. The sequences have different lengths, and end when all positions are used. */
static void fill_offsets(int32_t *offsets, int64_t sequences, int64_t longest, int64_t positions)
{
    for (int64_t s = 0; s < sequences; s++) {
        int64_t length = (s * 5 + 3) % (longest + 1);
        offsets[s + 1] = (int32_t)(offsets[s] + (length < positions - offsets[s] ? length : positions - offsets[s]));
    }
}

static void fill_rows(int32_t *entries, int64_t n, int64_t rows)
{
    for (int64_t i = 0; i < n; i++)
        entries[i] = (int32_t)(i * 7 % rows);
}

/* Allocates arrays that are exactly as long as their spans. So the address sanitizer detects any access outside of a
 * span. */
static bool make_arrays(arrays *s, const attn_plan *plan, const attn_problem *problem)
{
    const attn_packed *p = &problem->packed;
    *s = (arrays){0};
    for (int array = 0; array < ATTN_ARRAY_COUNT; array++) {
        attn_span *span = &s->spans[array];
        if (!attn_plan_span(plan, (attn_array)array, span))
            continue;
        int64_t n = span->high - span->low, size = (int64_t)attn_dtype_size(span->dtype);
        if (n < 0 || n > MOST_SPAN)
            return false;
        s->blocks[array] = calloc((size_t)(n > 0 ? n : 1), (size_t)size);
        if (!s->blocks[array])
            return false;
        if (array == ATTN_ARRAY_Q_OFFSETS)
            fill_offsets((int32_t *)(void *)s->blocks[array], n - 1, problem->dims[p->query_dim].n, p->queries);
        else if (array == ATTN_ARRAY_K_OFFSETS)
            fill_offsets((int32_t *)(void *)s->blocks[array], n - 1, problem->dims[p->key_dim].n, p->keys);
        else if (array == ATTN_ARRAY_BIAS_INDEX)
            fill_rows((int32_t *)(void *)s->blocks[array], n, problem->bias_index.rows);
        else if (!span->output)
            fill(s->blocks[array], span->dtype, n, array);
        put(s, array, s->blocks[array] - span->low * size);
    }
    return true;
}

static void free_arrays(arrays *s)
{
    for (int array = 0; array < ATTN_ARRAY_COUNT; array++)
        free(s->blocks[array]);
    *s = (arrays){0};
}

static double element(const arrays *s, int array, int64_t i)
{
    const void *block = s->blocks[array];
    uint32_t bits;
    float x;
    switch (s->spans[array].dtype) {
    case ATTN_F64:
        return ((const double *)block)[i];
    case ATTN_BF16:
        bits = (uint32_t)((const uint16_t *)block)[i] << 16;
        memcpy(&x, &bits, sizeof x);
        return (double)x;
    default:
        return (double)((const float *)block)[i];
    }
}

/* --------------------------------------------------------------------------------------------- running */

static void fault(const char *what, const char *solver)
{
    fprintf(stderr, "fuzz_problem: %s (solver %s)\n", what, solver);
    abort();
}

/* Computes the output and the log-sum-exp, which the backward pass reads. If a backward problem has no forward
 * problem, returns false. */
static bool run_before(attn_context *context, const attn_problem *problem, arrays *s)
{
    attn_problem forward = *problem;
    attn_plan *plan;
    if (problem->direction == ATTN_DIRECTION_FORWARD)
        return true;
    forward.direction = ATTN_DIRECTION_FORWARD;
    forward.flags = problem->flags & ATTN_WITH_ALL;
    forward.flags |= problem->normalization == ATTN_NORMALIZATION_SIGMOID ? 0 : ATTN_WANT_LSE;
    bool done = attn_plan_create(&plan, context, &forward, &(attn_plan_options){.solver = "reference"}) == ATTN_OK &&
                attn_plan_execute(plan, &s->a, NULL) == ATTN_OK;
    attn_plan_destroy(plan);
    attn_context_clear_error(context);
    return done;
}

/* Runs the problem. If it is refused or too large, returns false. */
static bool run(attn_context *context, const attn_problem *problem, const char *solver, arrays *s)
{
    attn_plan *plan;
    attn_status status = attn_plan_create(&plan, context, problem, &(attn_plan_options){.solver = solver});
    *s = (arrays){0};
    if (status != ATTN_OK && !attn_context_error(context)[0])
        fault("refused without a word", solver);
    bool done = status == ATTN_OK && make_arrays(s, plan, problem) && run_before(context, problem, s);
    if (done && attn_plan_execute(plan, &s->a, NULL) != ATTN_OK)
        fault(attn_context_error(context), solver);
    attn_plan_destroy(plan);
    attn_context_clear_error(context);
    return done;
}

/* Returns true if rounding errors have a bound. They have no bound for step functions and for sums of mixed signs. */
static bool comparable(const attn_problem *p)
{
    bool nonnegative =
        p->score == ATTN_SCORE_BOXCAR || p->score == ATTN_SCORE_CONSTANT || p->score == ATTN_SCORE_TRIANGULAR;
    return p->score != ATTN_SCORE_BOXCAR && (p->normalization != ATTN_NORMALIZATION_SUM || nonnegative);
}

static void compare(const attn_problem *problem, const char *solver, const arrays *done, const arrays *exact)
{
    double bound = problem->dtype == ATTN_BF16 ? 0x1p-5 : problem->dtype == ATTN_F64 ? 1e-10 : 1e-4;
    for (int array = 0; array < ATTN_ARRAY_COUNT; array++) {
        const attn_span *span = &exact->spans[array];
        double largest = 1;
        for (int64_t i = 0; span->output && i < span->high - span->low; i++)
            largest = fmax(largest, fabs(element(exact, array, i)));
        for (int64_t i = 0; span->output && i < span->high - span->low; i++) {
            double x = element(done, array, i), y = element(exact, array, i);
            bool same = (isnan(x) && isnan(y)) || (isinf(x) && isinf(y) && signbit(x) == signbit(y));
            if (same || (!isfinite(largest) && !isfinite(x)) || fabs(x - y) <= bound * largest)
                continue;
            fprintf(stderr, "array %d, element %lld: %.9g, not %.9g\n", array, (long long)i, x, y);
            fault("differs from the reference", solver);
        }
    }
}

static void check(attn_context *context, const attn_problem *problem)
{
    attn_problem wide = *problem;
    arrays exact, done;
    if (problem->dtype == ATTN_F32 || problem->dtype == ATTN_BF16)
        wide.dtype = ATTN_F64;
    bool right = run(context, &wide, "reference", &exact);
    for (int i = 0; attn_solver_name(i); i++) {
        if (run(context, problem, attn_solver_name(i), &done) && right && comparable(problem))
            compare(problem, attn_solver_name(i), &done, &exact);
        free_arrays(&done);
    }
    free_arrays(&exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bytes b = {data, data + size};
    attn_context *context;
    attn_problem problem = {0};
    size_t held;
    if (attn_context_create(&context, &(attn_context_options){.threads = 1}) != ATTN_OK)
        abort();
    if (make_problem(&problem, context, &b) && is_small(&problem))
        check(context, &problem);
    attn_context_clear_error(context);
    attn_context_memory(context, &held, NULL, NULL);
    if (held != 0)
        fault("memory is still held", "any");
    attn_context_destroy(context);
    return 0;
}
