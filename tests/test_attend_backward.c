/* SPDX-License-Identifier: MIT
 * labels: no-tsan
 *
 * Compares every gradient of the fused backward solver with the reference solver, for all options and odd sizes. Checks
 * that the bits are the same for any number of threads.
 */
#include "attn/attn.h"
#include "base/cpu.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/cmocka.h"
#include "support/solver_check.h"

enum { Q, K, V, O, DOUT, DQ, DK, DV, BIAS, DBIAS, LSE, ARRAYS };

/* A problem with b x h heads of keys, each for g heads of queries. */
typedef struct kase {
    int64_t b, g, h, tq, tk, d, dv;
    bool tokens_outside;   /* true: the layout is [B,T,H,D] instead of [B,H,T,D] */
    bool channels_outside; /* true: the channels of q and k are the slowest dim */
    int causal;            /* band: 0 is none, 1 has hi = 0, 2 has hi = tk - tq, 3 has limits on both sides */
    int lens;              /* lengths of keys; 0: none; 1: one for each b; 2: one for each b and query */
    int mask;              /* shape of the mask; 0: no mask; 1: [B,Tk]; 2: [Tq,Tk]; 3: [B,G,H,Tq,Tk] */
    /* shape of the bias; 0: no bias; 1: all dims; 2: all except the batch; 3: [Tq,Tk]; 4: [B,1,1,1,Tk]; 5: one
     * number for each head; 6: [Tq] */
    int bias;
    double fill, dropout, spread;
    bool accumulate, bf16, own_strides, holes; /* holes: true if a third of the bias is -inf */
    int poison;                                /* 1: a row of k and v is NaN; 2: a row of q and dout is NaN */
    unsigned want;
    int64_t grid; /* if not 0, queries and keys are grids with rows of this length */
} kase;

typedef struct bench {
    attn_problem problem;
    size_t n[ARRAYS];
    void *x[ARRAYS];
    uint8_t *mask;
    int32_t *lens;
    attn_context *context;
    attn__rng rng;
    size_t esize;
} bench;

static double number(attn__rng *rng)
{
    return 2 * attn__rng_uniform(rng) - 1;
}

static float read(const bench *t, int i, size_t at)
{
    if (t->esize == 4 || i >= BIAS)
        return ((float *)t->x[i])[at];
    uint32_t bits = (uint32_t)((uint16_t *)t->x[i])[at] << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void write(bench *t, int i, size_t at, double value)
{
    float x = (float)value;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (t->esize == 4 || i >= BIAS)
        ((float *)t->x[i])[at] = x;
    else
        ((uint16_t *)t->x[i])[at] = (uint16_t)(bits >> 16);
}

static void add_dim(attn_problem *p, attn_role role, int64_t n)
{
    p->dims[p->ndims++] = (attn_dim){.role = role, .n = n};
}

/* Sets the strides of a contiguous array over the listed dims, with the last dim innermost. -1 ends the list.
 * Returns the array's size. */
static size_t lay(attn_problem *p, size_t field, const int *dims, int n)
{
    int64_t stride = 1;
    for (int i = n - 1; i >= 0; i--) {
        memcpy((char *)&p->dims[dims[i]] + field, &stride, sizeof stride);
        stride *= p->dims[dims[i]].n;
    }
    return (size_t)stride;
}

#define LAY(field, ...)                                                                                                \
    lay(p, offsetof(attn_dim, field), (int[]){__VA_ARGS__}, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)))

/* The dims are 0: batch, 1: group, 2: head, 3 and 4: query, 5 and 6: key, 7: contract, 8: value. */
static void set_strides(bench *t, const kase *c)
{
    attn_problem *p = &t->problem;
    bool outside = c->tokens_outside;
    t->n[Q] = c->channels_outside ? LAY(q, 7, 0, 1, 2, 3, 4)
              : outside           ? LAY(q, 0, 3, 4, 2, 1, 7)
                                  : LAY(q, 0, 2, 1, 3, 4, 7);
    t->n[K] = c->channels_outside ? LAY(k, 7, 0, 2, 5, 6) : outside ? LAY(k, 0, 5, 6, 2, 7) : LAY(k, 0, 2, 5, 6, 7);
    t->n[V] = outside ? LAY(v, 0, 5, 6, 2, 8) : LAY(v, 0, 2, 5, 6, 8);
    t->n[O] = outside ? LAY(o, 0, 3, 4, 2, 1, 8) : LAY(o, 0, 2, 1, 3, 4, 8);
    t->n[LSE] = LAY(lse, 0, 2, 1, 3, 4);
    t->n[DQ] = t->n[Q];
    t->n[DK] = t->n[K];
    t->n[DV] = t->n[V];
    t->n[DOUT] = t->n[O];
    if (c->own_strides) {
        p->own_grad_strides = true;
        LAY(dq, 3, 4, 0, 7, 2, 1);
        LAY(dk, 5, 6, 0, 2, 7);
        LAY(dv, 0, 5, 6, 8, 2);
        LAY(dout, 3, 4, 0, 2, 1, 8);
    }
    switch (c->bias) {
    case 1:
        t->n[BIAS] = LAY(bias, 0, 1, 2, 3, 4, 5, 6);
        break;
    case 2:
        t->n[BIAS] = LAY(bias, 1, 2, 3, 4, 5, 6);
        break;
    case 3:
        t->n[BIAS] = LAY(bias, 3, 4, 5, 6);
        break;
    case 4:
        t->n[BIAS] = LAY(bias, 0, 5, 6);
        break;
    case 5:
        t->n[BIAS] = LAY(bias, 1, 2);
        break;
    case 6:
        t->n[BIAS] = LAY(bias, 3, 4);
        break;
    default:
        t->n[BIAS] = 0;
    }
    for (int i = 0; i < p->ndims && c->own_strides; i++)
        p->dims[i].dbias = p->dims[i].bias;
    t->n[DBIAS] = t->n[BIAS];
}

static void set_masks(bench *t, const kase *c)
{
    attn_problem *p = &t->problem;
    size_t masks = 0;
    if (c->mask)
        masks = c->mask == 1   ? LAY(mask, 0, 5, 6)
                : c->mask == 2 ? LAY(mask, 3, 4, 5, 6)
                               : LAY(mask, 0, 1, 2, 3, 4, 5, 6);
    t->mask = malloc(masks + 1);
    for (size_t i = 0; i < masks; i++)
        t->mask[i] = attn__rng_uniform(&t->rng) < 0.7;
    size_t lens = c->lens == 0 ? 0 : c->lens == 1 ? LAY(lens, 0) : LAY(lens, 0, 3, 4);
    p->lens_dim = c->grid ? 5 : 6;
    t->lens = malloc((lens + 1) * sizeof *t->lens);
    for (size_t i = 0; i < lens; i++)
        t->lens[i] = (int32_t)attn__rng_below(&t->rng, (uint64_t)p->dims[p->lens_dim].n + 2);
    const int64_t hi[] = {0, 0, c->tk - c->tq, 9}, lo[] = {0, INT64_MIN, INT64_MIN, -7};
    if (c->causal)
        p->bands[p->nbands++] = (attn_band){4, 6, lo[c->causal], hi[c->causal]};
    p->flags |= (masks ? ATTN_WITH_MASK : 0u) | (lens ? ATTN_WITH_LENS : 0u) | (c->bias ? ATTN_WITH_BIAS : 0u);
}

static void setup(bench *t, const kase *c)
{
    memset(t, 0, sizeof *t);
    attn_problem *p = &t->problem;
    t->rng = (attn__rng){7, (uint64_t)(c->tq * 1000 + c->tk), 0};
    t->esize = c->bf16 ? 2 : 4;
    add_dim(p, ATTN_ROLE_BATCH, c->b);
    add_dim(p, ATTN_ROLE_BATCH, c->g ? c->g : 1);
    add_dim(p, ATTN_ROLE_BATCH, c->h);
    add_dim(p, ATTN_ROLE_QUERY, c->grid ? c->tq / c->grid : 1);
    add_dim(p, ATTN_ROLE_QUERY, c->grid ? c->grid : c->tq);
    add_dim(p, ATTN_ROLE_KEY, c->grid ? c->tk / c->grid : 1);
    add_dim(p, ATTN_ROLE_KEY, c->grid ? c->grid : c->tk);
    add_dim(p, ATTN_ROLE_CONTRACT, c->d);
    add_dim(p, ATTN_ROLE_VALUE, c->dv ? c->dv : c->d);
    p->dtype = c->bf16 ? ATTN_BF16 : ATTN_F32;
    p->mask_fill = c->fill;
    p->dropout = c->dropout;
    p->seed = 11;
    set_strides(t, c);
    set_masks(t, c);
    for (int i = 0; i < ARRAYS; i++) {
        t->x[i] = malloc((t->n[i] + 1) * 4);
        double spread = i == Q && c->spread > 0 ? c->spread : 1;
        for (size_t j = 0; j < t->n[i]; j++)
            write(t, i, j, number(&t->rng) * spread);
    }
    for (size_t j = 0; j < t->n[BIAS] && c->holes; j += 3)
        write(t, BIAS, j, -INFINITY);
    assert_int_equal(attn_context_create(&t->context, NULL), ATTN_OK);
}

static void teardown(bench *t)
{
    for (int i = 0; i < ARRAYS; i++)
        free(t->x[i]);
    free(t->mask);
    free(t->lens);
    attn_context_destroy(t->context);
}

static attn_arrays arrays_of(const bench *t)
{
    return (attn_arrays){.q = t->x[Q],
                         .k = t->x[K],
                         .v = t->x[V],
                         .bias = t->x[BIAS],
                         .mask = t->mask,
                         .lens = t->lens,
                         .o = t->x[O],
                         .lse = t->x[LSE],
                         .dout = t->x[DOUT],
                         .dq = t->x[DQ],
                         .dk = t->x[DK],
                         .dv = t->x[DV],
                         .dbias = t->x[DBIAS],
                         .seed_offset = 5};
}

static void execute(bench *t, const attn_problem *problem, const char *solver, int threads)
{
    attn_plan *plan;
    attn_plan_options options = {.solver = solver, .threads = threads};
    if (attn_plan_create(&plan, t->context, problem, &options) != ATTN_OK)
        fail_msg("%s: %s", solver, attn_context_error(t->context));
    attn_arrays arrays = arrays_of(t);
    assert_int_equal(attn_plan_execute(plan, &arrays, NULL), ATTN_OK);
    attn_plan_destroy(plan);
}

/* Sets one row of each head to NaN, in the layout [B,H,T,D]. It is at a third of the keys or queries. */
static void poison(bench *t, const kase *c)
{
    for (int64_t head = 0; head < c->b * c->h && c->poison; head++)
        for (int64_t channel = 0; channel < c->d; channel++) {
            size_t query = (size_t)((head * c->tq + c->tq / 3) * c->d + channel);
            size_t key = (size_t)((head * c->tk + c->tk / 3) * c->d + channel);
            write(t, c->poison == 2 ? Q : K, c->poison == 2 ? query : key, (double)NAN);
            write(t, c->poison == 2 ? DOUT : V, c->poison == 2 ? query : key, (double)NAN);
        }
}

static void forward(bench *t)
{
    attn_problem problem = t->problem;
    problem.flags |= ATTN_WANT_LSE;
    execute(t, &problem, "reference", 2);
}

/* Fills the gradients with numbers, to which a plan with `accumulate` adds. All other plans must overwrite them. */
static void fill_gradients(bench *t)
{
    attn__rng rng = {3, 4, 0};
    for (int i = DQ; i <= DBIAS; i++)
        for (size_t j = 0; j < t->n[i] && i != BIAS; j++)
            write(t, i, j, number(&rng));
}

static void copy_gradients(const bench *t, float *to[ARRAYS])
{
    for (int i = DQ; i <= DBIAS; i++) {
        to[i] = malloc((t->n[i] + 1) * sizeof(float));
        for (size_t j = 0; j < t->n[i]; j++)
            to[i][j] = read(t, i, j);
    }
}

static void free_gradients(float *x[ARRAYS])
{
    for (int i = DQ; i <= DBIAS; i++)
        free(x[i]);
}

static void compare(const bench *t, const kase *c, float *want[ARRAYS], int number_of_case)
{
    static const char *const names[] = {[DQ] = "dq", [DK] = "dk", [DV] = "dv", [DBIAS] = "dbias"};
    for (int i = DQ; i <= DBIAS; i++) {
        double largest = 0, worst = 0, tolerance = c->bf16 ? 8e-3 : 1e-5;
        for (size_t j = 0; j < t->n[i]; j++)
            largest = isnan((double)want[i][j]) ? largest : fmax(largest, fabs((double)want[i][j]));
        /* The gradient of such a bias is a sum over all keys of a row, in which terms of order 1 cancel to 0. */
        if (i == DBIAS && c->bias >= 5)
            largest = fmax(largest, 1);
        for (size_t j = 0; j < t->n[i] && i != BIAS; j++) {
            double got = read(t, i, j);
            if (isnan((double)want[i][j]) && isnan(got))
                continue;
            if (isnan((double)want[i][j]) != isnan(got))
                fail_msg("case %d: %s[%zu] is %g, not %g", number_of_case, names[i], j, got, (double)want[i][j]);
            worst = fmax(worst, fabs(got - (double)want[i][j]));
        }
        if (worst > tolerance * fmax(largest, 1e-3))
            fail_msg("case %d: %s is off by %g of %g", number_of_case, names[i], worst, largest);
    }
}

static void check(const kase *c, int number_of_case)
{
    bench t;
    float *want[ARRAYS], *first[ARRAYS];
    setup(&t, c);
    poison(&t, c);
    forward(&t);
    attn_problem problem = t.problem;
    problem.direction = ATTN_DIRECTION_BACKWARD;
    problem.accumulate = c->accumulate;
    problem.flags |=
        c->want ? c->want : ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV | (c->bias ? (unsigned)ATTN_WANT_DBIAS : 0u);
    fill_gradients(&t);
    execute(&t, &problem, "reference", 2);
    copy_gradients(&t, want);
    for (int threads = 1; threads <= 7; threads = threads == 3 ? 7 : threads + 1) {
        fill_gradients(&t);
        execute(&t, &problem, "flash_backward", threads);
        if (threads == 1) {
            compare(&t, c, want, number_of_case);
            copy_gradients(&t, first);
        }
        for (int i = DQ; i <= DBIAS; i++)
            for (size_t j = 0; j < t.n[i]; j++) {
                float x = read(&t, i, j);
                if (memcmp(&x, &first[i][j], sizeof x) != 0)
                    fail_msg("case %d: other bits with %d threads", number_of_case, threads);
            }
    }
    free_gradients(want);
    free_gradients(first);
    teardown(&t);
}

/* Runs a case in its own size and, on a machine with AMX, in a size that uses AMX. */
static void check_both(const kase *c, int number_of_case)
{
    kase wide = *c;
    check(c, number_of_case);
    if (attn__isa_best() < ATTN_ISA_AMX)
        return;
    /* Cases with large heads, or whose bias gradient is a sum over all pairs of a head, do not run in the larger
     * size. */
    if (c->d >= 48 || c->bias >= 5)
        return;
    wide.d += 48;
    wide.dv += wide.dv ? 48 : 0;
    wide.tq += c->bf16 || c->tq > 208 ? 0 : 216;
    wide.tk += c->bf16 || c->tk > 208 ? 0 : 216;
    check(&wide, 100 + number_of_case);
}

#define RUN(...)                                                                                                       \
    do {                                                                                                               \
        const kase list[] = {__VA_ARGS__};                                                                             \
        for (size_t i = 0; i < sizeof list / sizeof *list; i++)                                                        \
            check_both(&list[i], (int)i);                                                                              \
    } while (0)

static void test_sizes(void **state)
{
    (void)state;
    RUN({.b = 1, .h = 1, .tq = 1, .tk = 1, .d = 1}, {.b = 2, .h = 3, .tq = 5, .tk = 7, .d = 3, .dv = 11},
        {.b = 1, .h = 2, .tq = 63, .tk = 95, .d = 17}, {.b = 1, .h = 1, .tq = 65, .tk = 97, .d = 64},
        {.b = 1, .h = 2, .tq = 64, .tk = 96, .d = 16, .tokens_outside = true},
        {.b = 3, .h = 4, .tq = 10, .tk = 10, .d = 64, .tokens_outside = true},
        {.b = 1, .h = 1, .tq = 33, .tk = 200, .d = 130, .dv = 512},
        {.b = 1, .h = 1, .tq = 129, .tk = 31, .d = 511, .dv = 5},
        {.b = 1, .h = 2, .tq = 31, .tk = 40, .d = 24, .channels_outside = true});
}

static void test_waves(void **state)
{
    (void)state;
    RUN({.b = 1, .h = 1, .tq = 270, .tk = 300, .d = 4, .causal = 2},
        {.b = 1, .h = 2, .tq = 390, .tk = 260, .d = 4, .bias = 3},
        {.b = 1, .h = 1, .tq = 260, .tk = 270, .d = 4, .bias = 5},
        {.b = 1, .h = 1, .tq = 260, .tk = 270, .d = 4, .bias = 6},
        {.b = 2, .h = 1, .tq = 260, .tk = 270, .d = 4, .bias = 4, .lens = 1},
        {.b = 1, .h = 1, .tq = 270, .tk = 120, .d = 250, .dv = 9, .bf16 = true});
}

/* On few threads, bf16 runs one pass. On more threads, it runs two passes over several blocks of keys. `check`
 * compares the bits of both. */
static void test_one_pass_has_the_bits_of_two(void **state)
{
    (void)state;
    for (int bias = 0; bias <= 6; bias++)
        check(&(kase){.b = 1,
                      .h = 2,
                      .tq = 150,
                      .tk = 600,
                      .d = 136,
                      .bf16 = true,
                      .bias = bias,
                      .causal = bias % 3,
                      .mask = bias % 2 * 3,
                      .dropout = bias == 1 ? 0.2 : 0},
              bias);
    check(&(kase){.b = 1, .h = 2, .tq = 150, .tk = 600, .d = 136, .bf16 = true, .poison = 1}, 7);
    check(&(kase){.b = 1, .h = 2, .tq = 150, .tk = 600, .d = 136, .bf16 = true, .accumulate = true, .lens = 2}, 8);
}

static void test_masks(void **state)
{
    (void)state;
    RUN({.b = 2, .h = 2, .tq = 70, .tk = 70, .d = 8, .causal = 1},
        {.b = 2, .h = 2, .tq = 70, .tk = 130, .d = 8, .causal = 2},
        {.b = 2, .h = 2, .tq = 130, .tk = 70, .d = 8, .causal = 2},
        {.b = 2, .h = 2, .tq = 130, .tk = 170, .d = 8, .causal = 3},
        {.b = 9, .h = 2, .tq = 37, .tk = 41, .d = 8, .lens = 1},
        {.b = 3, .h = 2, .tq = 37, .tk = 141, .d = 8, .lens = 2},
        {.b = 3, .h = 2, .tq = 37, .tk = 41, .d = 8, .mask = 1},
        {.b = 3, .h = 2, .tq = 37, .tk = 41, .d = 8, .mask = 2},
        {.b = 3, .h = 2, .tq = 37, .tk = 141, .d = 8, .mask = 3, .causal = 1, .lens = 2},
        {.b = 2, .h = 2, .tq = 36, .tk = 42, .d = 8, .causal = 1, .lens = 1, .grid = 6},
        {.b = 2, .h = 2, .tq = 36, .tk = 42, .d = 8, .causal = 1, .lens = 2, .mask = 3, .grid = 6, .bias = 1});
}

static void test_fill(void **state)
{
    (void)state;
    RUN({.b = 3, .h = 2, .tq = 37, .tk = 41, .d = 8, .mask = 1, .fill = -1e6},
        {.b = 3, .h = 2, .tq = 37, .tk = 17, .d = 8, .lens = 2, .fill = -1e6, .bias = 1, .holes = true},
        {.b = 9, .h = 2, .tq = 37, .tk = 41, .d = 8, .lens = 2, .fill = -1e6},
        {.b = 9, .h = 2, .tq = 37, .tk = 141, .d = 8, .lens = 1, .fill = -0.5},
        {.b = 3, .h = 2, .tq = 37, .tk = 141, .d = 8, .lens = 1, .fill = -10000, .causal = 1},
        {.b = 3, .h = 2, .tq = 37, .tk = 41, .d = 8, .mask = 3, .fill = -0.5, .bias = 1, .dropout = 0.3});
}

/* One key is visible. Its bias makes its score slightly smaller than the fill of the masked keys, so that its weight
 * is small but not 0. */
static void test_near_fill(void **state)
{
    enum { QUERIES = 7, KEYS = 5, CHANNELS = 8 };
    static random_problem r;
    attn_context *c;
    attn_problem *p = &r.forward;
    truth t;
    double worst = 0;
    (void)state;
    p->dtype = ATTN_F32;
    p->mask_fill = -10000;
    p->flags = ATTN_WITH_MASK | ATTN_WITH_BIAS | ATTN_WANT_LSE;
    p->ndims = 4;
    p->dims[0] = (attn_dim){.role = ATTN_ROLE_QUERY, .n = QUERIES, .q = CHANNELS, .o = CHANNELS, .lse = 1};
    p->dims[1] = (attn_dim){.role = ATTN_ROLE_KEY, .n = KEYS, .k = CHANNELS, .v = CHANNELS, .mask = 1, .bias = 1};
    p->dims[2] = (attn_dim){.role = ATTN_ROLE_CONTRACT, .n = CHANNELS, .q = 1, .k = 1};
    p->dims[3] = (attn_dim){.role = ATTN_ROLE_VALUE, .n = CHANNELS, .v = 1, .o = 1};
    r.backward = *p;
    r.backward.direction = ATTN_DIRECTION_BACKWARD;
    r.backward.flags = ATTN_WITH_MASK | ATTN_WITH_BIAS | ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
    random_problem_arrays(&r, 3);
    for (int64_t j = 0; j < KEYS; j++) {
        ((uint8_t *)r.array[ARRAY_MASK].block)[j] = j == 0;
        array_set(&r.array[ARRAY_BIAS], j, -10006.5);
    }
    assert_int_equal(attn_context_create(&c, NULL), ATTN_OK);
    truth_make(&t, &r);
    solver_prepare_backward(c, &r);
    assert_true(solver_check(c, "flash_backward", &r, &t, ATTN_DIRECTION_BACKWARD, &worst));
    truth_free(&t, &r);
    random_problem_free(&r);
    attn_context_destroy(c);
}

static void test_bias(void **state)
{
    (void)state;
    for (int bias = 1; bias <= 6; bias++)
        RUN({.b = 3, .g = 2, .h = 2, .tq = 37, .tk = 101, .d = 8, .bias = bias, .causal = 1},
            {.b = 2, .h = 3, .tq = 66, .tk = 35, .d = 8, .bias = bias, .mask = 1, .accumulate = true},
            {.b = 2, .h = 3, .tq = 24, .tk = 36, .d = 8, .bias = bias, .grid = 12, .own_strides = true},
            {.b = 2, .h = 3, .tq = 24, .tk = 36, .d = 8, .bias = bias, .want = ATTN_WANT_DBIAS},
            {.b = 2, .h = 3, .tq = 24, .tk = 36, .d = 8, .bias = bias, .holes = true});
}

static void test_groups(void **state)
{
    (void)state;
    RUN({.b = 2, .g = 4, .h = 2, .tq = 37, .tk = 41, .d = 16, .tokens_outside = true, .causal = 1},
        {.b = 2, .g = 3, .h = 2, .tq = 37, .tk = 41, .d = 16, .own_strides = true, .lens = 2, .dropout = 0.2},
        {.b = 2, .g = 3, .h = 2, .tq = 37, .tk = 41, .d = 16, .bf16 = true, .mask = 3});
}

static void test_dropout(void **state)
{
    (void)state;
    RUN({.b = 2, .h = 2, .tq = 37, .tk = 141, .d = 16, .dropout = 0.1},
        {.b = 2, .h = 2, .tq = 36, .tk = 48, .d = 16, .dropout = 0.9, .grid = 12, .bias = 2, .tokens_outside = true});
}

static void test_wanted(void **state)
{
    (void)state;
    for (unsigned some = 1; some < 8; some++)
        RUN({.b = 2, .h = 2, .tq = 100, .tk = 141, .d = 16, .want = some * ATTN_WANT_DQ, .causal = 1},
            {.b = 2, .h = 2, .tq = 100, .tk = 141, .d = 16, .want = some * ATTN_WANT_DQ, .accumulate = true},
            {.b = 2, .h = 2, .tq = 150, .tk = 121, .d = 160, .want = some * ATTN_WANT_DQ, .bf16 = true});
}

/* A NaN in a masked value must not change the results, and a NaN in a visible value must. */
static void test_nan(void **state)
{
    (void)state;
    for (int poison = 1; poison <= 2; poison++)
        RUN({.b = 2, .h = 2, .tq = 70, .tk = 110, .d = 8, .mask = 1, .poison = poison},
            {.b = 2, .h = 2, .tq = 70, .tk = 110, .d = 8, .mask = 2, .poison = poison},
            {.b = 2, .h = 2, .tq = 70, .tk = 110, .d = 8, .causal = 1, .poison = poison},
            {.b = 6, .h = 2, .tq = 70, .tk = 110, .d = 8, .lens = 1, .poison = poison},
            {.b = 2, .h = 2, .tq = 70, .tk = 110, .d = 8, .lens = 2, .poison = poison, .bias = 1},
            {.b = 2, .h = 2, .tq = 70, .tk = 110, .d = 8, .poison = poison, .dropout = 0.4},
            {.b = 2, .h = 2, .tq = 70, .tk = 110, .d = 8, .poison = poison, .bias = 2, .holes = true},
            {.b = 2, .h = 2, .tq = 70, .tk = 110, .d = 8, .poison = poison, .mask = 2, .fill = -100});
}

/* Tests numbers, and products of numbers, that AMX cannot represent. Results must be the same as without AMX. */
static void test_too_large(void **state)
{
    (void)state;
    static const struct {
        int array;
        double value;
    } odd[] = {{DOUT, INFINITY}, {DOUT, -3.4e38}, {DOUT, 3e38}, {V, INFINITY},
               {V, (double)NAN}, {Q, -INFINITY},  {V, 3.4e38},  {K, (double)NAN}};
    for (size_t i = 0; i < 2 * sizeof odd / sizeof *odd; i++) {
        kase c = {.b = 1, .h = 2, .tq = 230, .tk = 221, .d = 50, .bf16 = i % 2, .mask = i % 4 / 2};
        bench t;
        float *want[ARRAYS];
        setup(&t, &c);
        for (size_t j = 0; j < t.n[V]; j++)
            write(&t, V, j, 0.25 * read(&t, V, j));
        write(&t, odd[i / 2].array, 47 * 50 + 3, odd[i / 2].value);
        forward(&t);
        attn_problem problem = t.problem;
        problem.direction = ATTN_DIRECTION_BACKWARD;
        problem.flags |= ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
        fill_gradients(&t);
        execute(&t, &problem, "reference", 1);
        copy_gradients(&t, want);
        execute(&t, &problem, "flash_backward", 1);
        for (int a = DQ; a <= DV; a++) {
            double largest = 0;
            for (size_t j = 0; j < t.n[a]; j++)
                largest = isfinite(want[a][j]) ? fmax(largest, fabs((double)want[a][j])) : largest;
            for (size_t j = 0; j < t.n[a]; j++) {
                float got = read(&t, a, j);
                if (isfinite(want[a][j]) != isfinite(got) ||
                    fabs((double)got - (double)want[a][j]) > (c.bf16 ? 8e-3 : 1e-5) * largest)
                    fail_msg("%d: gradient %d [%zu] is %g, not %g", (int)i, a, j, (double)got, (double)want[a][j]);
            }
        }
        free_gradients(want);
        teardown(&t);
    }
}

/* When a sum is added to a large number, it is rounded only once, however many blocks it has. */
static void test_added_once(void **state)
{
    (void)state;
    enum { LARGE = 4096 };
    static const char *const solvers[] = {"flash_backward", "wide"};
    static const int64_t sizes[][3] = {{600, 530, 50}, {300, 300, 8}, {257, 2000, 64}, {1100, 40, 300}};
    for (int i = 0; i < 8; i++) {
        kase c = {.b = 1, .h = 1, .tq = sizes[i / 2][0], .tk = sizes[i / 2][1], .d = sizes[i / 2][2], .spread = 4};
        bench t;
        float *want[ARRAYS];
        setup(&t, &c);
        forward(&t);
        attn_problem problem = t.problem;
        problem.direction = ATTN_DIRECTION_BACKWARD;
        problem.flags |= ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
        execute(&t, &problem, solvers[i % 2], 2);
        copy_gradients(&t, want);
        for (int a = DQ; a <= DV; a++)
            for (size_t j = 0; j < t.n[a]; j++)
                write(&t, a, j, LARGE);
        problem.accumulate = true;
        execute(&t, &problem, solvers[i % 2], 2);
        for (int a = DQ; a <= DV; a++)
            for (size_t j = 0; j < t.n[a]; j++) {
                double sum = LARGE + (double)want[a][j];
                assert_true(fabs(read(&t, a, j) - sum) <= (sum < LARGE ? 0x1p-13 : 0x1p-12) * 1.001 + 1e-6);
            }
        free_gradients(want);
        teardown(&t);
    }
}

static void test_large_logits(void **state)
{
    (void)state;
    RUN({.b = 1, .h = 2, .tq = 40, .tk = 50, .d = 16, .spread = 30});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),     cmocka_unit_test(test_waves),
        cmocka_unit_test(test_masks),     cmocka_unit_test(test_one_pass_has_the_bits_of_two),
        cmocka_unit_test(test_fill),      cmocka_unit_test(test_bias),
        cmocka_unit_test(test_groups),    cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_wanted),    cmocka_unit_test(test_large_logits),
        cmocka_unit_test(test_near_fill), cmocka_unit_test(test_nan),
        cmocka_unit_test(test_too_large), cmocka_unit_test(test_added_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
