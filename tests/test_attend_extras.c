/* SPDX-License-Identifier: MIT
 *
 * Compares features of newer models with equal computations. Packed sequences are compared with padded sequences, and
 * gradients with differences of the output in float64.
 */
#include "support/context.h"

#include "attn/attn.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

CONTEXT_OF_TESTS(.threads = 2, .batch_invariant = true)

/* Creates a context in which padded rows have the same bits as packed rows. */
static void run(const attn_problem *p, const char *solver, const attn_arrays *arrays)
{
    attn_plan *plan;
    if (attn_plan_create(&plan, context, p, &(attn_plan_options){.solver = solver}) != ATTN_OK)
        fail_msg("%s", attn_context_error(context));
    if (attn_plan_execute(plan, arrays, NULL) != ATTN_OK)
        fail_msg("%s", attn_context_error(context));
    attn_plan_destroy(plan);
}

/* ------------------------------------------------------------------------------------------ packed sequences */

enum { SEQUENCES = 4, H = 8, HKV = 8, LONGEST = 300, D = 8, ROW = H * D, TOKENS = 620 };
static const int32_t offsets[SEQUENCES + 1] = {0, 170, 171, 171, 471};

/* Arrays of one run. Their elements have 4 bytes in f32 and 2 bytes in bf16. */
typedef struct tokens {
    attn_arrays a;
    void *q, *k, *v, *dout, *o, *dq, *dk, *dv;
    float *lse;
} tokens;

static void *numbers(int64_t n, size_t size, unsigned stream)
{
    attn__rng g = {.seed = 7, .stream = stream};
    char *x = calloc((size_t)n, size);
    for (int64_t i = 0; x && i < n; i++) {
        float f = (float)attn__rng_normal(&g);
        /* a bf16 number is the upper half of the f32 number */
        memcpy(x + (size_t)i * size, (const char *)&f + (4 - size), size);
    }
    return x;
}

static tokens make_tokens(int64_t n, size_t size)
{
    tokens t = {.q = numbers(n * ROW, size, 1),
                .k = numbers(n * HKV * D, size, 2),
                .v = numbers(n * HKV * D, size, 3),
                .dout = numbers(n * ROW, size, 4)};
    t.o = calloc((size_t)(n * ROW), size), t.dq = calloc((size_t)(n * ROW), size);
    t.dk = calloc((size_t)(n * HKV * D), size), t.dv = calloc((size_t)(n * HKV * D), size);
    t.lse = calloc((size_t)(n * H), sizeof(float));
    t.a = (attn_arrays){.q = t.q,
                        .k = t.k,
                        .v = t.v,
                        .dout = t.dout,
                        .o = t.o,
                        .lse = t.lse,
                        .dq = t.dq,
                        .dk = t.dk,
                        .dv = t.dv,
                        .q_offsets = offsets,
                        .k_offsets = offsets};
    return t;
}

static void free_tokens(tokens *t)
{
    void *const all[] = {t->q, t->k, t->v, t->dout, t->o, t->dq, t->dk, t->dv, t->lse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void both_ways(attn_problem p, const attn_arrays *a)
{
    p.flags |= ATTN_WANT_LSE;
    run(&p, "flash", a);
    p.direction = ATTN_DIRECTION_BACKWARD;
    p.flags |= ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
    run(&p, "flash_backward", a);
}

static attn_heads heads_of(attn_causal causal)
{
    return (attn_heads){.batch = SEQUENCES,
                        .heads = H,
                        .kv_heads = HKV,
                        .queries = LONGEST,
                        .keys = LONGEST,
                        .dim = D,
                        .causal = causal};
}

/* Checks that row `row` of sequence s is the same in a packed and a padded array. `what` is the array's name for
 * messages. */
static void same_row(const char *what, const void *packed, const void *padded, int64_t s, int64_t row, size_t bytes)
{
    const char *a = (const char *)packed + (size_t)(offsets[s] + row) * bytes;
    const char *b = (const char *)padded + (size_t)(s * LONGEST + row) * bytes;
    if (memcmp(a, b, bytes) != 0)
        fail_msg("%s of sequence %lld, row %lld: packed and padded differ", what, (long long)s, (long long)row);
}

static void compare_with_padded(attn_dtype dtype, attn_causal causal)
{
    size_t size = attn_dtype_size(dtype);
    tokens packed = make_tokens(TOKENS, size), padded = make_tokens(SEQUENCES * LONGEST, size);
    static int32_t lens[SEQUENCES];
    attn_problem p;
    for (int64_t s = 0; s < SEQUENCES; s++) {
        int64_t n = lens[s] = offsets[s + 1] - offsets[s];
        void *const to[] = {padded.q, padded.dout, padded.k, padded.v};
        void *const from[] = {packed.q, packed.dout, packed.k, packed.v};
        for (int i = 0; i < 4; i++) {
            size_t row = (i < 2 ? ROW : HKV * D) * size;
            memset((char *)to[i] + (size_t)s * LONGEST * row, 0, LONGEST * row);
            memcpy((char *)to[i] + (size_t)s * LONGEST * row, (char *)from[i] + (size_t)offsets[s] * row,
                   (size_t)n * row);
        }
    }
    attn_heads h = heads_of(causal);
    h.lens_per = 1;
    attn_problem_heads(&p, &h);
    p.dtype = dtype;
    padded.a.lens = lens;
    both_ways(p, &padded.a);
    h.lens_per = 0, h.packed = true, h.packed_queries = h.packed_keys = TOKENS;
    attn_problem_heads(&p, &h);
    p.dtype = dtype;
    both_ways(p, &packed.a);
    for (int64_t s = 0; s < SEQUENCES; s++)
        for (int64_t i = 0; i < lens[s]; i++) {
            same_row("o", packed.o, padded.o, s, i, ROW * size);
            same_row("dq", packed.dq, padded.dq, s, i, ROW * size);
            same_row("dk", packed.dk, padded.dk, s, i, HKV * D * size);
            same_row("dv", packed.dv, padded.dv, s, i, HKV * D * size);
            for (int64_t head = 0; head < H; head++)
                assert_true(packed.lse[head * TOKENS + offsets[s] + i] == padded.lse[(s * H + head) * LONGEST + i]);
        }
    free_tokens(&packed);
    free_tokens(&padded);
}

static void packed_sequences_have_the_bits_of_padded_ones(void **state)
{
    (void)state;
    compare_with_padded(ATTN_F32, ATTN_CAUSAL_NONE);
    compare_with_padded(ATTN_F32, ATTN_CAUSAL_TOP_LEFT);
    compare_with_padded(ATTN_BF16, ATTN_CAUSAL_TOP_LEFT);
}

static void a_packed_sequence_has_the_bits_that_it_has_alone(void **state)
{
    (void)state;
    tokens all = make_tokens(TOKENS, 4), one = make_tokens(TOKENS, 4);
    attn_heads h = heads_of(ATTN_CAUSAL_BOTTOM_RIGHT);
    attn_problem p;
    /* Small problems could sum in another order, depending on their size. These heads are large enough. */
    h.heads = h.kv_heads = 2, h.dim = 32;
    h.packed = true, h.packed_queries = h.packed_keys = TOKENS;
    attn_problem_heads(&p, &h);
    both_ways(p, &all.a);
    h.batch = 1;
    h.queries = h.keys = offsets[4] - offsets[3];
    attn_problem_heads(&p, &h);
    one.a.q_offsets = one.a.k_offsets = offsets + 3;
    both_ways(p, &one.a);
    int64_t at = offsets[3], n = offsets[4] - at;
    assert_memory_equal((float *)all.o + at * ROW, (float *)one.o + at * ROW, (size_t)(n * ROW) * 4);
    assert_memory_equal((float *)all.dk + at * HKV * D, (float *)one.dk + at * HKV * D, (size_t)(n * HKV * D) * 4);
    for (int64_t i = 0; i < at * ROW; i++)
        assert_true(((float *)one.dq)[i] == 0.0f && ((float *)one.o)[i] == 0.0f);
    free_tokens(&all);
    free_tokens(&one);
}

static void refused(const int32_t *q, const int32_t *k, const char *words)
{
    tokens t = make_tokens(TOKENS, 4);
    attn_heads h = heads_of(ATTN_CAUSAL_NONE);
    attn_problem p;
    attn_plan *plan;
    h.packed = true, h.packed_queries = h.packed_keys = TOKENS;
    attn_problem_heads(&p, &h);
    assert_int_equal(attn_plan_create(&plan, context, &p, NULL), ATTN_OK);
    t.a.q_offsets = q, t.a.k_offsets = k;
    assert_int_equal(attn_plan_execute(plan, &t.a, NULL), ATTN_ERROR_ARGUMENT);
    if (!strstr(attn_context_error(context), words))
        fail_msg("'%s' does not say '%s'", attn_context_error(context), words);
    attn_plan_destroy(plan);
    free_tokens(&t);
}

static void offsets_out_of_order_are_refused(void **state)
{
    (void)state;
    refused(NULL, offsets, "'q_offsets'");
    refused(offsets, (int32_t[]){0, 5, 4, 4, 8}, "k_offsets[2] is 4");
    refused((int32_t[]){-1, 5, 6, 7, 8}, offsets, "q_offsets[0] is -1");
    refused((int32_t[]){0, 301, 302, 303, 304}, offsets, "q_offsets[1] is 301");
    refused(offsets, (int32_t[]){400, 450, 460, 610, 621}, "k_offsets[4] is 621");
}

static void wrong_tables_of_packed_sequences_are_refused(void **state)
{
    (void)state;
    attn_heads h = heads_of(ATTN_CAUSAL_NONE);
    h.packed = true, h.packed_queries = h.packed_keys = TOKENS;
    const char *const words[] = {"which is a BATCH dim, not a QUERY dim", "the stride of k is 5; it must be 0",
                                 "the stride of q is 0", "packed.keys is -1", "packed.batch_dim names dim 99"};
    for (int i = 0; i < 5; i++) {
        attn_problem p;
        attn_plan *plan;
        attn_problem_heads(&p, &h);
        int query = p.packed.query_dim;
        p.packed.query_dim = i == 0 ? 1 : query;
        p.dims[0].k = i == 1 ? 5 : 0;
        p.dims[query].q = i == 2 ? 0 : p.dims[query].q;
        p.packed.keys = i == 3 ? -1 : p.packed.keys;
        p.packed.batch_dim = i == 4 ? 99 : p.packed.batch_dim;
        assert_int_not_equal(attn_plan_create(&plan, context, &p, NULL), ATTN_OK);
        if (!strstr(attn_context_error(context), words[i]))
            fail_msg("'%s' does not say '%s'", attn_context_error(context), words[i]);
    }
}

/* -------------------------------------------------------------------------------- gradients against differences */

enum { FB = 2, FH = 2, FQ = 4, FK = 5, FD = 3, FSCORES = FB * FH * FQ * FK, MOST = 128 };

typedef struct small {
    attn_problem p;
    double q[FB * FQ * FH * FD], k[FB * FK * FH * FD], v[FB * FK * FH * FD], bias[FSCORES], o[FB * FQ * FH * FD];
    double lse[FB * FH * FQ], dout[FB * FQ * FH * FD], dlse[FB * FH * FQ], sinks[FH];
    attn_arrays a;
    int bias_at; /* offset of the bias of query 0 and key 0 */
} small;

static void normal(double *x, int n, unsigned stream)
{
    attn__rng g = {.seed = 11, .stream = stream};
    for (int i = 0; i < n; i++)
        x[i] = attn__rng_normal(&g);
}

#define COUNT(x) ((int)(sizeof(x) / sizeof *(x)))

static void start_small(small *s, attn_causal causal)
{
    *s = (small){0};
    attn_problem_heads(&s->p,
                       &(attn_heads){.batch = FB, .heads = FH, .queries = FQ, .keys = FK, .dim = FD, .causal = causal});
    s->p.dtype = ATTN_F64;
    for (int64_t i = s->p.ndims - 1, stride = 1; i >= 0; i--)
        if (s->p.dims[i].role <= ATTN_ROLE_KEY)
            s->p.dims[i].bias = stride, stride *= s->p.dims[i].n;
    s->p.flags |= ATTN_WITH_BIAS | ATTN_WANT_LSE;
    normal(s->q, COUNT(s->q), 1), normal(s->k, COUNT(s->k), 2), normal(s->v, COUNT(s->v), 3);
    normal(s->bias, COUNT(s->bias), 4), normal(s->dout, COUNT(s->dout), 5);
    s->a = (attn_arrays){.q = s->q, .k = s->k, .v = s->v, .bias = s->bias, .o = s->o, .lse = s->lse, .dout = s->dout};
}

static double loss_of(small *s)
{
    double loss = 0;
    run(&s->p, "reference", &s->a);
    for (int i = 0; i < COUNT(s->o); i++)
        loss += s->dout[i] * s->o[i];
    for (int i = 0; i < COUNT(s->lse) && s->a.dlse; i++)
        loss += s->dlse[i] * s->lse[i];
    return loss;
}

static void same_as_differences(small *s, const char *name, double *x, int n, const double *gradient)
{
    const double step = 1e-5;
    for (int i = 0; i < n; i++) {
        double was = x[i];
        x[i] = was + step;
        double above = loss_of(s);
        x[i] = was - step;
        double slope = (above - loss_of(s)) / (2 * step);
        x[i] = was;
        if (!(fabs(slope - gradient[i]) <= 1e-7))
            fail_msg("d%s[%d] is %.12g, differences say %.12g", name, i, gradient[i], slope);
    }
}

static void check_small(small *s)
{
    double dq[MOST], dk[MOST], dv[MOST], dbias[MOST] = {0}, dsinks[FH];
    attn_problem backward = s->p;
    backward.direction = ATTN_DIRECTION_BACKWARD;
    backward.flags |= ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV | ATTN_WANT_DBIAS;
    attn_arrays a = s->a;
    backward.flags |= s->a.dlse ? ATTN_WITH_DLSE : 0;
    backward.flags |= s->a.sinks ? ATTN_WANT_DSINKS : 0;
    a.dq = dq, a.dk = dk, a.dv = dv, a.dbias = dbias + s->bias_at, a.dsinks = dsinks;
    loss_of(s);
    run(&backward, "reference", &a);
    same_as_differences(s, "q", s->q, COUNT(s->q), dq);
    same_as_differences(s, "k", s->k, COUNT(s->k), dk);
    same_as_differences(s, "v", s->v, COUNT(s->v), dv);
    same_as_differences(s, "bias", s->bias, COUNT(s->bias), dbias);
    if (s->a.sinks)
        same_as_differences(s, "sinks", s->sinks, COUNT(s->sinks), dsinks);
}

/* The bias is added after the softcap, so its gradient has no factor of the softcap. */
static void a_softcap_has_the_gradients_of_its_output(void **state)
{
    (void)state;
    small s;
    start_small(&s, ATTN_CAUSAL_TOP_LEFT);
    s.p.softcap = 0.8;
    check_small(&s);
}

/* The bias has one number for each head and distance, whose gradient is a sum over all pairs at this distance. */
static void a_bias_by_distance_has_a_gradient(void **state)
{
    (void)state;
    small s;
    start_small(&s, ATTN_CAUSAL_NONE);
    const int64_t strides[] = {0, FQ + FK - 1, -1, 1};
    for (int dim = 0; dim < 4; dim++)
        s.p.dims[dim].bias = strides[dim];
    s.bias_at = FQ - 1;
    s.a.bias = s.bias + s.bias_at;
    check_small(&s);
    s.p.direction = ATTN_DIRECTION_BACKWARD;
    s.p.flags |= ATTN_WANT_DBIAS;
    attn_plan *plan;
    s.p.accumulate = true;
    assert_int_equal(attn_plan_create(&plan, context, &s.p, NULL), ATTN_ERROR_UNSUPPORTED);
    s.p.accumulate = false, s.p.dims[1].bias = 2;
    assert_int_equal(attn_plan_create(&plan, context, &s.p, NULL), ATTN_ERROR_SHAPE);
    assert_non_null(strstr(attn_context_error(context), "dbias"));
}

/* Heads share buckets of distances. The gradient is compared with differences, and some invalid problems must be
 * refused. */
static void a_bias_by_an_index_has_a_gradient(void **state)
{
    (void)state;
    const int32_t index[] = {4, 4, 0, 1, 2, 2, 3, 4};
    small s;
    start_small(&s, ATTN_CAUSAL_NONE);
    const int64_t strides[] = {0, 1, -1, 1};
    for (int dim = 0; dim < 4; dim++)
        s.p.dims[dim].bias = strides[dim];
    s.p.flags |= ATTN_WITH_BIAS_INDEX;
    s.p.bias_index = (attn_bias_index){6, FH};
    s.a.bias_index = index + FQ - 1;
    check_small(&s);
    attn_plan *plan;
    assert_int_equal(attn_plan_create(&plan, context, &s.p, NULL), ATTN_OK);
    attn_span span;
    assert_true(attn_plan_span(plan, ATTN_ARRAY_BIAS_INDEX, &span) && span.low == 1 - FQ && span.high == FK);
    assert_true(attn_plan_span(plan, ATTN_ARRAY_BIAS, &span) && span.low == 0 && span.high == 6 * FH);
    const int32_t wrong[] = {4, 4, 0, 1, 2, 6, 3, 4};
    s.a.bias_index = wrong + FQ - 1;
    assert_int_equal(attn_plan_execute(plan, &s.a, NULL), ATTN_ERROR_ARGUMENT);
    assert_non_null(strstr(attn_context_error(context), "bias_index[2] is 6; the table has the rows 0 to 5"));
    s.a.bias_index = NULL;
    assert_int_equal(attn_plan_execute(plan, &s.a, NULL), ATTN_ERROR_ARGUMENT);
    assert_non_null(strstr(attn_context_error(context), "'bias_index'"));
    attn_plan_destroy(plan);
}

static void wrong_indices_of_a_bias_are_refused(void **state)
{
    (void)state;
    const char *const words[] = {"but the problem has no bias", "bias_index.rows is 0", "is too large",
                                 "accumulate is not supported with bias_index",
                                 "the tables of two BATCH indices share elements"};
    for (int i = 0; i < 5; i++) {
        small s;
        attn_plan *plan;
        start_small(&s, ATTN_CAUSAL_NONE);
        const int64_t strides[] = {0, i == 4 ? 2 : 1, -1, 1};
        for (int dim = 0; dim < 4; dim++)
            s.p.dims[dim].bias = strides[dim];
        s.p.direction = ATTN_DIRECTION_BACKWARD;
        s.p.flags |= ATTN_WITH_BIAS_INDEX | ATTN_WANT_DQ | (i == 0 ? 0 : ATTN_WANT_DBIAS);
        s.p.flags &= ~(unsigned)(i == 0 ? ATTN_WITH_BIAS : 0);
        s.p.bias_index = (attn_bias_index){i == 1 ? 0 : 6, i == 2 ? INT64_MAX / 5 : FH};
        s.p.accumulate = i == 3;
        assert_int_not_equal(attn_plan_create(&plan, context, &s.p, NULL), ATTN_OK);
        if (!strstr(attn_context_error(context), words[i]))
            fail_msg("'%s' does not say '%s'", attn_context_error(context), words[i]);
    }
}

/* The size of the bias counts the queries and each BATCH dim, wherever these dims are in the problem. */
static void a_bias_that_an_index_spreads_too_far_is_refused(void **state)
{
    (void)state;
    for (int turn = 0; turn < 12; turn++) {
        small s;
        attn_plan *plan;
        start_small(&s, ATTN_CAUSAL_NONE);
        attn_dim dims[ATTN_MAX_DIMS];
        const int64_t strides[] = {1, 1, INT64_C(1) << 30, 1};
        for (int dim = 0; dim < 4; dim++)
            s.p.dims[dim].bias = strides[dim];
        s.p.dims[turn % 2].n = INT64_C(1) << 40;
        s.p.flags |= ATTN_WITH_BIAS_INDEX;
        s.p.bias_index = (attn_bias_index){6, FH};
        memcpy(dims, s.p.dims, sizeof dims);
        for (int dim = 0; dim < s.p.ndims; dim++)
            s.p.dims[(dim + turn / 2) % s.p.ndims] = dims[dim];
        assert_int_equal(attn_plan_create(&plan, context, &s.p, NULL), ATTN_ERROR_SHAPE);
        assert_non_null(strstr(attn_context_error(context), "the bias that is made from the table is too large"));
    }
}

static void the_log_sum_exp_has_a_gradient(void **state)
{
    (void)state;
    small s;
    start_small(&s, ATTN_CAUSAL_TOP_LEFT);
    normal(s.dlse, COUNT(s.dlse), 6);
    s.a.dlse = s.dlse;
    check_small(&s);
}

static void sinks_have_gradients(void **state)
{
    (void)state;
    for (int with_lse = 0; with_lse < 2; with_lse++) {
        small s;
        start_small(&s, ATTN_CAUSAL_TOP_LEFT);
        normal(s.dlse, COUNT(s.dlse), 6);
        normal(s.sinks, COUNT(s.sinks), 7);
        s.a.dlse = with_lse ? s.dlse : NULL;
        s.a.sinks = s.sinks;
        s.p.flags |= ATTN_WITH_SINKS;
        s.p.dims[1].sinks = 1;
        check_small(&s);
    }
}

/* A sink acts like a key with this score and the value 0. A sink of -inf has no effect. */
static void a_sink_is_a_key_without_value(void **state)
{
    (void)state;
    small s, more;
    start_small(&s, ATTN_CAUSAL_NONE);
    more = s;
    s.sinks[0] = 0.75, s.sinks[1] = (double)-INFINITY;
    s.a.sinks = s.sinks, s.p.flags |= ATTN_WITH_SINKS, s.p.dims[1].sinks = 1;
    run(&s.p, "reference", &s.a);
    for (int i = 0; i < COUNT(s.lse); i++) {
        int row = i % (FH * FQ), head = row / FQ;
        more.lse[i] = 0;
        for (int j = 0; j < FK; j++) {
            double score = more.bias[i * FK + j];
            for (int c = 0; c < FD; c++)
                score += s.q[((i / (FH * FQ) * FQ + row % FQ) * FH + head) * FD + c] *
                         s.k[((i / (FH * FQ) * FK + j) * FH + head) * FD + c] / sqrt(FD);
            more.lse[i] += exp(score);
        }
        double want = log(more.lse[i] + (head == 0 ? exp(0.75) : 0));
        assert_true(fabs(s.lse[i] - want) < 1e-12);
    }
}

/* ----------------------------------------------------------------------------------------------- partial results */

enum { PB = 2, PH = 3, PQ = 70, PK = 90, PD = 16, PROWS = PB * PH * PQ, PO = PROWS * PD, PKV = PB * PK * PH * PD };

typedef struct part {
    float o[PO], lse[PROWS], dout[PO], dlse[PROWS], dq[PO];
} part;
static struct {
    float q[PO], k[PKV], v[PKV], dk[2][PKV], dv[2][PKV];
    part whole, parts[3], merged[2];
} partials;

static void some(float *x, int n, unsigned stream)
{
    attn__rng g = {.seed = 12, .stream = stream};
    for (int i = 0; i < n; i++)
        x[i] = (float)attn__rng_normal(&g);
}

/* Attends to keys [from, to). If `backward` is true, also computes gradients. Those of k and v are stored at index
 * `which`. */
static void attend_part(part *p, int from, int to, int which, bool backward)
{
    attn_problem problem;
    attn_problem_heads(&problem, &(attn_heads){.batch = PB, .heads = PH, .queries = PQ, .keys = PK, .dim = PD});
    problem.dims[3].n = to - from;
    problem.flags |= backward ? ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV | ATTN_WITH_DLSE : ATTN_WANT_LSE;
    problem.direction = backward ? ATTN_DIRECTION_BACKWARD : ATTN_DIRECTION_FORWARD;
    int at = from * PH * PD;
    attn_arrays a = {.q = partials.q, .k = partials.k + at, .v = partials.v + at, .o = p->o, .lse = p->lse};
    a.dout = p->dout, a.dlse = p->dlse, a.dq = p->dq, a.dk = partials.dk[which] + at, a.dv = partials.dv[which] + at;
    run(&problem, NULL, &a);
}

static void merge(const part *a, const part *b, part *to)
{
    attn_partials shape = {.batch = PB, .heads = PH, .queries = PQ, .dim = PD};
    assert_int_equal(attn_partials_merge(context, &shape, a->o, a->lse, b->o, b->lse, to->o, to->lse), ATTN_OK);
}

static void divide(part *a, part *b, const part *from)
{
    attn_partials shape = {.batch = PB, .heads = PH, .queries = PQ, .dim = PD};
    attn_partials_arrays x = {.o1 = a->o, .lse1 = a->lse, .o2 = b->o, .lse2 = b->lse, .dout = from->dout};
    x.dlse = from->dlse, x.do1 = a->dout, x.dlse1 = a->dlse, x.do2 = b->dout, x.dlse2 = b->dlse;
    assert_int_equal(attn_partials_backward(context, &shape, &x), ATTN_OK);
}

static void near(const char *what, const float *x, const float *y, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabsf(x[i] - y[i]) <= 4e-6f * (1 + fabsf(y[i]))))
            fail_msg("%s[%d] is %.9g, of the whole %.9g", what, i, (double)x[i], (double)y[i]);
}

static void merged_parts_are_the_whole(void **state)
{
    (void)state;
    part *p = partials.parts, *m = partials.merged, *whole = &partials.whole;
    const int ends[] = {0, 13, 60, PK};
    some(partials.q, PO, 1), some(partials.k, PKV, 2), some(partials.v, PKV, 3);
    some(whole->dout, PO, 4), some(whole->dlse, PROWS, 5);
    attend_part(whole, 0, PK, 0, false);
    attend_part(whole, 0, PK, 0, true);
    for (int i = 0; i < 3; i++)
        attend_part(&p[i], ends[i], ends[i + 1], 1, false);
    merge(&p[0], &p[1], &m[0]);
    merge(&m[0], &p[2], &m[1]);
    near("o", m[1].o, whole->o, PO);
    near("lse", m[1].lse, whole->lse, PROWS);
    memcpy(m[1].dout, whole->dout, sizeof whole->dout);
    memcpy(m[1].dlse, whole->dlse, sizeof whole->dlse);
    divide(&m[0], &p[2], &m[1]);
    divide(&p[0], &p[1], &m[0]);
    for (int i = 0; i < 3; i++)
        attend_part(&p[i], ends[i], ends[i + 1], 1, true);
    for (int i = 0; i < PO; i++)
        p[0].dq[i] += p[1].dq[i] + p[2].dq[i];
    near("dq", p[0].dq, whole->dq, PO);
    near("dk", partials.dk[1], partials.dk[0], PKV);
    near("dv", partials.dv[1], partials.dv[0], PKV);
    /* Merging a part without keys changes nothing, even if the output is one of the inputs. */
    memset(p[0].o, 0, sizeof p[0].o);
    for (int i = 0; i < PROWS; i++)
        p[0].lse[i] = -INFINITY;
    merge(&p[0], whole, &p[0]);
    assert_memory_equal(p[0].o, whole->o, sizeof whole->o);
    assert_memory_equal(p[0].lse, whole->lse, sizeof whole->lse);
}

/* Computes keys [from, to) of a problem with another normalization than softmax. Its scores are not negative. */
static void attend_normalized(part *p, int from, int to, attn_normalization how)
{
    attn_problem problem;
    attn_problem_heads(&problem, &(attn_heads){.batch = PB, .heads = PH, .queries = PQ, .keys = PK, .dim = PD});
    problem.dims[3].n = to - from;
    problem.normalization = how;
    problem.flags |= ATTN_WANT_LSE;
    int at = from * PH * PD;
    attn_arrays a = {.q = partials.q, .k = partials.k + at, .v = partials.v + at, .o = p->o, .lse = p->lse};
    run(&problem, NULL, &a);
}

static void parts_of_other_normalizations_are_the_whole(void **state)
{
    (void)state;
    static const attn_normalization how[] = {ATTN_NORMALIZATION_MEAN, ATTN_NORMALIZATION_SUM, ATTN_NORMALIZATION_NONE};
    part *p = partials.parts, *m = partials.merged, *whole = &partials.whole;
    some(partials.q, PO, 1), some(partials.k, PKV, 2), some(partials.v, PKV, 3);
    for (int i = 0; i < PO; i++)
        partials.q[i] = fabsf(partials.q[i]);
    for (int i = 0; i < PKV; i++)
        partials.k[i] = fabsf(partials.k[i]);
    for (int n = 0; n < 3; n++) {
        attn_partials shape = {.batch = PB, .heads = PH, .queries = PQ, .dim = PD, .normalization = how[n]};
        attend_normalized(whole, 0, PK, how[n]);
        attend_normalized(&p[0], 0, 13, how[n]);
        attend_normalized(&p[1], 13, PK, how[n]);
        assert_int_equal(attn_partials_merge(context, &shape, p[0].o, p[0].lse, p[1].o, p[1].lse, m[0].o, m[0].lse),
                         ATTN_OK);
        float unit = how[n] == ATTN_NORMALIZATION_NONE ? 1.0f / PK : 1.0f; /* sums become means, as near() expects */
        for (int i = 0; i < PO; i++)
            whole->o[i] *= unit, m[0].o[i] *= unit;
        near("o", m[0].o, whole->o, PO);
        near("lse", m[0].lse, whole->lse, PROWS);
    }
    /* The parts of a sum have its gradient. A row without keys adds nothing, even if its output is not a number. */
    attn_partials shape = {.batch = PB, .heads = PH, .queries = PQ, .dim = PD, .normalization = how[2]};
    p[1].lse[0] = -INFINITY, p[1].o[0] = NAN;
    some(whole->dout, PO, 4), some(whole->dlse, PROWS, 5);
    attn_partials_arrays x = {.o1 = p[0].o, .lse1 = p[0].lse, .o2 = p[1].o, .lse2 = p[1].lse, .dout = whole->dout};
    x.dlse = whole->dlse, x.do1 = p[0].dout, x.dlse1 = p[0].dlse, x.do2 = p[1].dout, x.dlse2 = p[1].dlse;
    assert_int_equal(attn_partials_merge(context, &shape, p[0].o, p[0].lse, p[1].o, p[1].lse, m[0].o, m[0].lse),
                     ATTN_OK);
    assert_true(m[0].o[0] == p[0].o[0] && m[0].lse[0] == 0);
    assert_int_equal(attn_partials_backward(context, &shape, &x), ATTN_OK);
    assert_memory_equal(p[0].dout, whole->dout, sizeof whole->dout);
    assert_true(p[1].dout[0] == 0 && p[1].dout[PO - 1] == whole->dout[PO - 1]);
    for (int i = 0; i < PROWS; i++)
        assert_true(p[0].dlse[i] == 0 && p[1].dlse[i] == 0);
}

/* The weight of the first part underflows to 0. As in a whole row, 0 * NaN is NaN; a part without keys adds nothing. */
static void nan_of_a_part_reaches_the_merged_row_whatever_its_weight(void **state)
{
    (void)state;
    const float inf = (float)INFINITY, o[] = {inf, 3}, rest[] = {1, 2}, lse[] = {-1000, -inf}, more = 0;
    float merged[2], sum, dout[] = {1, (float)NAN}, slopes[6];
    attn_partials shape = {.batch = 1, .heads = 1, .queries = 1, .dim = 2};
    for (int empty = 0; empty < 2; empty++) {
        attn_partials_arrays x = {.o1 = o, .lse1 = &lse[empty], .o2 = rest, .lse2 = &more, .dout = dout};
        x.do1 = slopes, x.do2 = slopes + 2, x.dlse1 = slopes + 4, x.dlse2 = slopes + 5;
        assert_int_equal(attn_partials_merge(context, &shape, o, &lse[empty], rest, &more, merged, &sum), ATTN_OK);
        assert_true(empty ? merged[0] == 1 : isnan(merged[0]));
        assert_true(merged[1] == 2 && sum == 0);
        assert_int_equal(attn_partials_backward(context, &shape, &x), ATTN_OK);
        assert_true(slopes[0] == 0 && slopes[2] == 1 && isnan(slopes[3]));
        assert_true(empty ? slopes[1] == 0 : isnan(slopes[1]));
        assert_true(empty ? slopes[4] == 0 : isnan(slopes[4]));
    }
}

static void wrong_partials_are_refused(void **state)
{
    (void)state;
    float x[4] = {0};
    attn_partials good = {.batch = 1, .heads = 1, .queries = 1, .dim = 4}, bad[7];
    const attn_status want[] = {ATTN_ERROR_SHAPE,      ATTN_ERROR_SHAPE,    ATTN_ERROR_UNSUPPORTED,
                                ATTN_ERROR_ARGUMENT,   ATTN_ERROR_ARGUMENT, ATTN_ERROR_UNSUPPORTED,
                                ATTN_ERROR_UNSUPPORTED};
    for (int i = 0; i < 7; i++)
        bad[i] = good;
    bad[0].dim = -1, bad[1].queries = bad[1].dim = INT64_C(1) << 40, bad[2].dtype = ATTN_I32,
    bad[3].layout = (attn_layout)9, bad[4].normalization = (attn_normalization)9;
    bad[5].normalization = ATTN_NORMALIZATION_HARDMAX, bad[6].normalization = ATTN_NORMALIZATION_SIGMOID;
    for (int i = 0; i < 7; i++)
        assert_int_equal(attn_partials_merge(context, &bad[i], x, x, x, x, x, x), want[i]);
    assert_int_equal(attn_partials_merge(context, &good, x, x, NULL, x, x, x), ATTN_ERROR_ARGUMENT);
    assert_non_null(strstr(attn_context_error(context), "the array 'o2' is NULL"));
    assert_int_equal(attn_partials_backward(context, &good, &(attn_partials_arrays){.o1 = x}), ATTN_ERROR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_sequences_have_the_bits_of_padded_ones),
        cmocka_unit_test(a_packed_sequence_has_the_bits_that_it_has_alone),
        cmocka_unit_test(offsets_out_of_order_are_refused),
        cmocka_unit_test(wrong_tables_of_packed_sequences_are_refused),
        cmocka_unit_test(a_softcap_has_the_gradients_of_its_output),
        cmocka_unit_test(a_bias_by_distance_has_a_gradient),
        cmocka_unit_test(a_bias_by_an_index_has_a_gradient),
        cmocka_unit_test(wrong_indices_of_a_bias_are_refused),
        cmocka_unit_test(a_bias_that_an_index_spreads_too_far_is_refused),
        cmocka_unit_test(the_log_sum_exp_has_a_gradient),
        cmocka_unit_test(sinks_have_gradients),
        cmocka_unit_test(a_sink_is_a_key_without_value),
        cmocka_unit_test(merged_parts_are_the_whole),
        cmocka_unit_test(parts_of_other_normalizations_are_the_whole),
        cmocka_unit_test(nan_of_a_part_reaches_the_merged_row_whatever_its_weight),
        cmocka_unit_test(wrong_partials_are_refused),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
