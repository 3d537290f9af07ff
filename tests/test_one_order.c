/* SPDX-License-Identifier: MIT
 * labels: no-asan no-tsan
 *
 * Tests that sums have a fixed order, in linear layers, products of matrices, convolutions and attention. The bits of a
 * result do not depend on other rows, outputs or examples, or on the number of threads. ATTN_ISA selects the
 * instruction set.
 */
#include "support/cmocka.h"

#include "attn/tensor.h"
#include "base/rng.h"
#include "tensor/number.h"
#include "tensor/packed_weights.h"
#include "tensor/parts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const int64_t counts[] = {1, 2, 3, 5, 7, 16, 17, 33, 100, 197};
static const int64_t depths[] = {1, 2, 17, 64, 197, 300, 384, 768, 1030};
static const int64_t widths[] = {1, 3, 8, 33, 64, 131, 300};
static const int threads[] = {1, 2, 3, 7};
enum { COUNTS = 10, DEPTHS = 9, WIDTHS = 7, THREADS = 4, MOST = 197, MOST_LINES = 12 };

/* ------------------------------------------------------------------------------------------- one product */

typedef enum kind { LINEAR, MATMUL, CONVOLUTION } kind;

/* A product y = x w and its gradients for a given gradient of y, computed through tensor.h. */
typedef struct product {
    kind kind;
    bool transpose_a, transpose_b;
    attn_conv conv;
    int rank[2];
    int64_t shape[2][4]; /* shapes of x and w */
} product;

typedef struct answer {
    float *y, *dx, *dw;
    int64_t ny, nx, nw;
} answer;

static float *numbers(int64_t n, uint64_t seed)
{
    attn__rng rng = {.seed = seed};
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)attn__rng_normal(&rng);
    return x;
}

static float *copy(const attn_tensor *x, int64_t *n)
{
    *n = attn_tensor_size(x);
    float *data = malloc((size_t)*n * sizeof *data);
    assert_non_null(data);
    return memcpy(data, attn_tensor_data(x), (size_t)*n * sizeof *data);
}

static attn_tensor *apply(attn_tape *tape, const product *p, attn_tensor *x, attn_tensor *w)
{
    switch (p->kind) {
    case LINEAR:
        return attn_linear(tape, x, w, NULL, ATTN_ACTIVATION_IDENTITY);
    case MATMUL:
        return attn_matmul(tape, x, w, p->transpose_a, p->transpose_b);
    default:
        return attn_convolve(tape, x, w, NULL, &p->conv);
    }
}

static answer compute(int nthreads, const product *p, const float *x, const float *w, const float *g)
{
    attn_context *context;
    attn_tape *tape;
    answer a;
    const attn_context_options options = {.threads = nthreads};
    assert_int_equal(attn_context_create(&context, &options), ATTN_OK);
    assert_int_equal(attn_tape_create(&tape, context), ATTN_OK);
    attn_tape_reset(tape, &(attn_tape_options){.record = true});
    attn_tensor *tx = attn_tape_tensor(tape, ATTN_F32, p->rank[0], p->shape[0], x);
    attn_tensor *tw = attn_tape_tensor(tape, ATTN_F32, p->rank[1], p->shape[1], w);
    assert_non_null(tx);
    assert_non_null(tw);
    attn_tensor_set_requires_grad(tx, true);
    attn_tensor_set_requires_grad(tw, true);
    attn_tensor *y = apply(tape, p, tx, tw);
    assert_non_null(y);
    const attn_tensor *gradient = attn_tape_tensor(tape, ATTN_F32, attn_tensor_rank(y), attn_tensor_shape(y), g);
    assert_int_equal(attn_backward_from(tape, y, gradient), ATTN_OK);
    a.y = copy(y, &a.ny);
    a.dx = copy(attn_tensor_grad(tx), &a.nx);
    a.dw = copy(attn_tensor_grad(tw), &a.nw);
    attn_tape_destroy(tape);
    attn_context_destroy(context);
    return a;
}

static void drop(answer *a)
{
    free(a->y);
    free(a->dx);
    free(a->dw);
}

/* --------------------------------------------------------------------------------------------- comparing */

static int failures, comparisons;

static void begin(void)
{
    failures = comparisons = 0;
}

static void end(void)
{
    if (failures)
        fail_msg("%d of %d comparisons differ", failures, comparisons);
}

/* Checks that `rows` rows of `n` numbers have the same bits in a and b. Rows of a are step_a numbers apart, and rows
 * of b are step_b numbers apart. */
static void same(const char *what, const int64_t size[3], const float *a, int64_t step_a, const float *b,
                 int64_t step_b, int64_t rows, int64_t n)
{
    comparisons++;
    for (int64_t r = 0; r < rows; r++) {
        if (memcmp(a + r * step_a, b + r * step_b, (size_t)n * sizeof *a) == 0)
            continue;
        if (failures++ < MOST_LINES) {
            print_error("%s: %" PRId64 " x %" PRId64 " x %" PRId64 ": row %" PRId64 " differs\n", what, size[0],
                        size[1], size[2], r);
        }
        return;
    }
}

static void same_answer(const char *what, const int64_t size[3], const answer *a, const answer *b)
{
    same(what, size, a->y, 0, b->y, 0, 1, a->ny);
    same(what, size, a->dx, 0, b->dx, 0, 1, a->nx);
    same(what, size, a->dw, 0, b->dw, 0, 1, a->nw);
}

/* ----------------------------------------------------------------------------------------- linear layers */

static product linear(int64_t m, int64_t n, int64_t k)
{
    return (product){.kind = LINEAR, .rank = {2, 2}, .shape = {{m, k}, {n, k}}};
}

/* The first m rows and the last m rows must have the same bits alone as among all rows. */
static void few_rows(const answer *whole, int64_t n, int64_t k, const float *x, const float *w, const float *g)
{
    for (int c = 0; c < COUNTS; c++) {
        const int64_t size[3] = {counts[c], n, k}, last = MOST - counts[c];
        const product p = linear(counts[c], n, k);
        answer first = compute(1, &p, x, w, g), behind = compute(1, &p, x + last * k, w, g + last * n);
        same("y of the first rows", size, first.y, n, whole->y, n, counts[c], n);
        same("dx of the first rows", size, first.dx, k, whole->dx, k, counts[c], k);
        same("y of the last rows", size, behind.y, n, whole->y + last * n, n, counts[c], n);
        same("dx of the last rows", size, behind.dx, k, whole->dx + last * k, k, counts[c], k);
        drop(&first);
        drop(&behind);
    }
}

/* The first outputs must have the same bits in a layer that has only these outputs. */
static void few_outputs(const answer *whole, int64_t n, int64_t k, const float *x, const float *w, const float *g)
{
    for (int c = 0; c < WIDTHS && widths[c] < n; c++) {
        const int64_t size[3] = {MOST, widths[c], k};
        const product p = linear(MOST, widths[c], k);
        answer first = compute(1, &p, x, w, g);
        same("y of the first outputs", size, first.y, widths[c], whole->y, n, MOST, widths[c]);
        drop(&first);
    }
}

static void each_layer(const float *x, const float *w, const float *g)
{
    for (int i = 0; i < DEPTHS * WIDTHS; i += test_step()) {
        const int64_t n = widths[i % WIDTHS], k = depths[i / WIDTHS];
        const product p = linear(MOST, n, k);
        answer whole = compute(1, &p, x, w, g);
        few_rows(&whole, n, k, x, w, g);
        few_outputs(&whole, n, k, x, w, g);
        drop(&whole);
    }
}

static void linear_layers(void **state)
{
    begin();
    float *x = numbers(MOST * 1030, 1), *w = numbers(300 * 1030, 2), *g = numbers(MOST * 300, 3);
    each_layer(x, w, g);
    free(x);
    free(w);
    free(g);
    end();
}

static void any_threads(const char *what, const product *p, const int64_t size[3], const float *x, const float *w,
                        const float *g)
{
    answer one = compute(1, p, x, w, g);
    for (int t = 1; t < THREADS; t++) {
        answer more = compute(threads[t], p, x, w, g);
        same_answer(what, size, &one, &more);
        drop(&more);
    }
    drop(&one);
}

static void linear_threads(void **state)
{
    begin();
    float *x = numbers(MOST * 1030, 1), *w = numbers(300 * 1030, 2), *g = numbers(MOST * 300, 3);
    for (int i = 0; i < DEPTHS * WIDTHS * COUNTS; i += 5 * test_step()) {
        const int64_t size[3] = {counts[i % COUNTS], widths[i / COUNTS % WIDTHS], depths[i / COUNTS / WIDTHS]};
        const product p = linear(size[0], size[1], size[2]);
        any_threads("threads of a linear layer", &p, size, x, w, g);
    }
    free(x);
    free(w);
    free(g);
    end();
}

/* ------------------------------------------------------------------------------------ products of matrices */

enum { BATCH = 5 };

static product matmul(int64_t batch, const int64_t size[3], int layout)
{
    product p = {.kind = MATMUL, .transpose_a = layout & 1, .transpose_b = layout & 2, .rank = {3, 3}};
    const int64_t a[3] = {batch, size[p.transpose_a ? 2 : 0], size[p.transpose_a ? 0 : 2]};
    const int64_t b[3] = {batch, size[p.transpose_b ? 1 : 2], size[p.transpose_b ? 2 : 1]};
    memcpy(p.shape[0], a, sizeof a);
    memcpy(p.shape[1], b, sizeof b);
    return p;
}

/* Checks one product of a batch alone, and then its first row alone. This row is contiguous unless a is transposed. */
static void matmul_parts(const int64_t size[3], int layout, const float *a, const float *b, const float *g)
{
    const int64_t m = size[0], n = size[1], k = size[2], i = BATCH - 1, row[3] = {1, n, k};
    const product p = matmul(BATCH, size, layout), one = matmul(1, size, layout), least = matmul(1, row, layout);
    answer whole = compute(1, &p, a, b, g);
    answer part = compute(1, &one, a + i * m * k, b + i * k * n, g + i * m * n);
    same("y of a batch", size, part.y, 0, whole.y + i * m * n, 0, 1, m * n);
    same("da of a batch", size, part.dx, 0, whole.dx + i * m * k, 0, 1, m * k);
    same("db of a batch", size, part.dw, 0, whole.dw + i * k * n, 0, 1, k * n);
    if (!(layout & 1)) {
        answer first = compute(1, &least, a, b, g);
        same("y of the first row", size, first.y, 0, whole.y, 0, 1, n);
        same("da of the first row", size, first.dx, 0, whole.dx, 0, 1, k);
        drop(&first);
    }
    drop(&part);
    drop(&whole);
    any_threads("threads of a product", &p, size, a, b, g);
}

static void products(void **state)
{
    static const int64_t sizes[][3] = {{1, 33, 64},    {7, 16, 300},    {33, 64, 17},   {64, 64, 64},
                                       {97, 131, 197}, {128, 128, 256}, {197, 197, 64}, {197, 64, 197}};
    begin();
    float *a = numbers(BATCH * 200 * 300, 1), *b = numbers(BATCH * 200 * 300, 2), *g = numbers(BATCH * 200 * 200, 3);
    for (int i = 0; i < 4 * 8; i++)
        matmul_parts(sizes[i / 4], i % 4, a, b, g);
    free(a);
    free(b);
    free(g);
    end();
}

/* ------------------------------------------------------------------------------------------ convolutions */

enum { PICTURES = 32, SIDE = 14 };

typedef struct layer {
    int64_t channels, outputs, kernel, stride, padding, groups;
} layer;

static product convolution(const layer *l, int64_t batch, int64_t outputs)
{
    return (product){
        .kind = CONVOLUTION,
        .conv = {2, {l->stride, l->stride}, {l->padding, l->padding}, l->groups, ATTN_ACTIVATION_IDENTITY},
        .rank = {4, 4},
        .shape = {{batch, l->channels, SIDE, SIDE}, {outputs, l->channels / l->groups, l->kernel, l->kernel}}};
}

static void check_layer(const layer *l, const float *x, const float *w, const float *g)
{
    const product p = convolution(l, PICTURES, l->outputs), one = convolution(l, 1, l->outputs);
    const int64_t side = (SIDE + 2 * l->padding - l->kernel) / l->stride + 1, out = side * side, in = SIDE * SIDE;
    const int64_t size[3] = {l->channels, l->outputs, l->kernel}, i = 5, ny = l->outputs * out, nx = l->channels * in;
    answer whole = compute(1, &p, x, w, g), part = compute(1, &one, x + i * nx, w, g + i * ny);
    same("y of a picture", size, part.y, 0, whole.y + i * ny, 0, 1, ny);
    same("dx of a picture", size, part.dx, 0, whole.dx + i * nx, 0, 1, nx);
    drop(&part);
    if (l->groups == 1) {
        const product half = convolution(l, PICTURES, (l->outputs + 1) / 2);
        answer first = compute(1, &half, x, w, g);
        same("y of the first outputs of a convolution", size, first.y, (l->outputs + 1) / 2 * out, whole.y, ny,
             PICTURES, (l->outputs + 1) / 2 * out);
        drop(&first);
    }
    drop(&whole);
    any_threads("threads of a convolution", &p, size, x, w, g);
}

static void convolutions(void **state)
{
    static const layer layers[] = {{3, 16, 3, 1, 1, 1},  {3, 33, 7, 2, 3, 1},   {16, 16, 3, 1, 1, 1},
                                   {64, 64, 3, 1, 1, 1}, {64, 128, 1, 1, 0, 1}, {64, 64, 3, 2, 1, 1},
                                   {8, 8, 3, 1, 1, 8},   {6, 18, 5, 2, 1, 6},   {32, 32, 3, 1, 1, 4},
                                   {5, 7, 2, 1, 0, 1},   {3, 48, 7, 7, 0, 1}};
    begin();
    float *x = numbers(PICTURES * 64 * SIDE * SIDE, 1), *w = numbers(128 * 64 * 9, 2);
    float *g = numbers(PICTURES * 128 * SIDE * SIDE, 3);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        check_layer(&layers[i], x, w, g);
    free(x);
    free(w);
    free(g);
    end();
}

/* ---------------------------------------------------------------------------------------------- attention */

typedef struct heads_run {
    int threads;
    int64_t batch, keys, seen; /* seen: number of keys that are not padding */
    bool reproducible;
} heads_run;

enum { HEADS = 2, MOST_TOKENS = 200, MOST_DIM = 128 };

/* Runs attention on q, k, v [B,T,H,D], with gradients if `out` has dout. The first `seen` tokens of k and v are the
 * same in each run. */
static void attend(const heads_run *r, int64_t queries, int64_t dim, const float *q, const float *k, const float *v,
                   const attn_arrays *out)
{
    attn_context *context;
    attn_plan *plan;
    attn_problem problem;
    int32_t lens[PICTURES];
    const attn_heads heads = {.batch = r->batch,
                              .heads = HEADS,
                              .queries = queries,
                              .keys = r->keys,
                              .dim = dim,
                              .layout = ATTN_LAYOUT_BTHD,
                              .lens_per = 1};
    for (int64_t b = 0; b < r->batch; b++)
        lens[b] = (int32_t)r->seen;
    const attn_context_options options = {.threads = r->threads, .batch_invariant = r->reproducible};
    assert_int_equal(attn_context_create(&context, &options), ATTN_OK);
    assert_int_equal(attn_problem_heads(&problem, &heads), ATTN_OK);
    problem.flags |= out->lse ? ATTN_WANT_LSE : 0;
    assert_int_equal(attn_plan_create(&plan, context, &problem, NULL), ATTN_OK);
    attn_arrays arrays = *out;
    arrays.q = q, arrays.k = k, arrays.v = v, arrays.lens = lens;
    assert_int_equal(attn_plan_execute(plan, &arrays, NULL), ATTN_OK);
    attn_plan_destroy(plan);
    if (out->dout) {
        problem.direction = ATTN_DIRECTION_BACKWARD;
        problem.flags = ATTN_WITH_LENS | ATTN_WANT_DQ | ATTN_WANT_DK | ATTN_WANT_DV;
        assert_int_equal(attn_plan_create(&plan, context, &problem, NULL), ATTN_OK);
        assert_int_equal(attn_plan_execute(plan, &arrays, NULL), ATTN_OK);
        attn_plan_destroy(plan);
    }
    attn_context_destroy(context);
}

/* An example alone must have the same bits as in a batch, for several numbers of threads. */
static void check_attention(int64_t tokens, int64_t dim, const float *q, const float *k, const float *v)
{
    const int64_t row = HEADS * dim, n = tokens * row, size[3] = {tokens, tokens, dim};
    const heads_run runs[] = {{1, 1, tokens, tokens, false},
                              {2, PICTURES, tokens, tokens, false},
                              {3, PICTURES, tokens, tokens, false},
                              {7, 2, tokens, tokens, false}};
    float *alone = numbers(n, 0), *o = numbers(PICTURES * n, 0);
    for (int i = 0; i < 4; i++) {
        attend(&runs[i], tokens, dim, q, k, v, &(attn_arrays){.o = i ? o : alone});
        if (i)
            same("o of a batch", size, o, 0, alone, 0, 1, n);
    }
    free(alone);
    free(o);
}

static void attention(void **state)
{
    static const int64_t tokens[] = {1, 7, 16, 33, 64, 129, 197}, dims[] = {8, 32, 64, 128};
    begin();
    const int64_t n = PICTURES * (MOST_TOKENS + 60) * HEADS * MOST_DIM;
    float *q = numbers(n, 1), *k = numbers(n, 2), *v = numbers(n, 3);
    for (int i = 0; i < 7 * 4; i++)
        check_attention(tokens[i / 4], dims[i % 4], q, k, v);
    free(q);
    free(k);
    free(v);
    end();
}

typedef struct pass {
    float *o, *lse, *dq, *dk, *dv;
} pass;

static pass run_pass(const heads_run *r, int64_t dim, const float *q, const float *k, const float *v, const float *dout)
{
    int64_t n = r->batch * r->keys * HEADS * dim;
    pass p = {numbers(n, 0), numbers(r->batch * r->keys * HEADS, 0), numbers(n, 0), numbers(n, 0), numbers(n, 0)};
    float *padded = calloc((size_t)n, sizeof *padded);
    assert_non_null(padded);
    memcpy(padded, dout, (size_t)(r->seen * HEADS * dim) * sizeof *padded);
    attend(r, r->keys, dim, q, k, v,
           &(attn_arrays){.o = p.o, .lse = p.lse, .dout = padded, .dq = p.dq, .dk = p.dk, .dv = p.dv});
    free(padded);
    return p;
}

static void drop_pass(pass *p)
{
    free(p->o);
    free(p->lse);
    free(p->dq);
    free(p->dk);
    free(p->dv);
}

/* In a batch-invariant context, an example must have the same bits for any padding and in any batch. */
static void check_padding(int64_t tokens, int64_t dim, const float *const x[4])
{
    const int64_t n = tokens * HEADS * dim, size[3] = {tokens, tokens, dim};
    const heads_run alone = {1, 1, tokens, tokens, true};
    pass wanted = run_pass(&alone, dim, x[0], x[1], x[2], x[3]);
    static const int64_t more[] = {1, 3, 8, 31, 60};
    for (int i = 0; i < 5; i++) {
        const heads_run padded = {threads[i % THREADS], i % 2 ? PICTURES : 1, tokens + more[i], tokens, true};
        pass found = run_pass(&padded, dim, x[0], x[1], x[2], x[3]);
        same("o of padded tokens", size, found.o, 0, wanted.o, 0, 1, n);
        same("dq of padded tokens", size, found.dq, 0, wanted.dq, 0, 1, n);
        same("dk of padded tokens", size, found.dk, 0, wanted.dk, 0, 1, n);
        same("dv of padded tokens", size, found.dv, 0, wanted.dv, 0, 1, n);
        drop_pass(&found);
    }
    drop_pass(&wanted);
}

static void padding(void **state)
{
    static const int64_t tokens[] = {1, 7, 33, 64, 95, 129, 197}, dims[] = {8, 32, 64, 128};
    begin();
    const int64_t n = PICTURES * (MOST_TOKENS + 60) * HEADS * MOST_DIM;
    float *x[4];
    for (int i = 0; i < 4; i++)
        x[i] = numbers(n, (uint64_t)i + 1);
    for (int i = 0; i < 7 * 4; i++)
        check_padding(tokens[i / 4], dims[i % 4], (const float *const *)x);
    for (int i = 0; i < 4; i++)
        free(x[i]);
    end();
}

/* ------------------------------------------------------------------------------- weights packed before */

static void packed_product(attn_tape *tape, attn_dtype dtype, int64_t m, const attn_tensor *x, attn_tensor *w, void *to)
{
    int64_t in = attn_tensor_length(w, 1), shape[2] = {m, in};
    attn_tensor *part = attn_tape_tensor(tape, dtype, 2, shape, attn_tensor_data((attn_tensor *)(uintptr_t)x));
    attn_tensor *y = attn_linear(tape, part, w, NULL, ATTN_ACTIVATION_IDENTITY);
    assert_non_null(y);
    memcpy(to, attn_tensor_data(y), (size_t)attn_tensor_size(y) * attn_dtype_size(dtype));
}

static void check_packed(attn_dtype dtype, int64_t in, int64_t out, int nthreads)
{
    enum { ROWS = 33 };
    attn_context *context;
    attn_tape *tape;
    attn_tensor *x, *w;
    const attn__packed *first, *again;
    size_t size = attn_dtype_size(dtype), bytes = (size_t)(ROWS * out) * size;
    char *plain = malloc(bytes), *all = malloc(bytes), *one = malloc(bytes);
    assert_int_equal(attn_context_create(&context, &(attn_context_options){.threads = nthreads}), ATTN_OK);
    assert_int_equal(attn_tape_create(&tape, context), ATTN_OK);
    assert_int_equal(attn_tensor_create(&x, context, dtype, 2, (int64_t[]){ROWS, in}), ATTN_OK);
    assert_int_equal(attn_tensor_create(&w, context, dtype, 2, (int64_t[]){out, in}), ATTN_OK);
    attn__rng rng = {.seed = 3};
    for (int64_t i = 0; i < (ROWS + out) * in; i++)
        attn__set_number(i < ROWS * in ? x : w, i < ROWS * in ? i : i - ROWS * in, attn__rng_normal(&rng));
    attn_tape_reset(tape, NULL);
    packed_product(tape, dtype, ROWS, x, w, plain);
    assert_int_equal(attn__packed_weights_begin(tape), ATTN_OK);
    packed_product(tape, dtype, ROWS, x, w, all);
    assert_true(attn__packed_weights_find(tape, w, 3, &first) && first);
    for (int64_t m = 1; m < 9; m++) {
        packed_product(tape, dtype, m, x, w, one);
        assert_memory_equal(one, all, (size_t)(m * out) * size);
    }
    assert_true(attn__packed_weights_find(tape, w, 3, &again) && again == first);
    if (!first->weights.slices)
        assert_memory_equal(all, plain, bytes);
    assert_true(attn__packed_weights_find(tape, w, 1 << 20, &again));
    assert_true(again == (first->weights.slices ? first : NULL));
    attn_tensor *made = attn_tape_tensor(tape, dtype, 2, (int64_t[]){out, in}, attn_tensor_data(w));
    assert_true(made && attn__packed_weights_find(tape, made, 3, &again) && !again);
    assert_int_equal(attn__packed_weights_begin(tape), ATTN_OK); /* Calls of begin may be nested. */
    attn__packed_weights_end(tape);
    assert_true(attn__packed_weights_find(tape, w, 3, &again) && again == first);
    attn_tape_reset(tape, &(attn_tape_options){.record = true});
    assert_true(attn__packed_weights_find(tape, w, 3, &again) && !again);
    attn__packed_weights_end(tape);
    assert_true(attn__packed_weights_find(tape, w, 3, &again) && !again);
    attn_tensor_destroy(x);
    attn_tensor_destroy(w);
    attn_tape_destroy(tape);
    attn_context_destroy(context);
    free(plain);
    free(all);
    free(one);
}

static void packed_weights_give_the_same_bits(void **state)
{
    for (int t = 0; t < 3; t++) {
        check_packed(ATTN_F32, 300, 131, threads[t]);
        check_packed(ATTN_F32, 512, 40, threads[t]);
        check_packed(ATTN_F64, 270, 33, threads[t]);
    }
}

RUN_TESTS(TEST(packed_weights_give_the_same_bits), TEST(linear_layers), TEST(linear_threads), TEST(products),
          TEST(convolutions), TEST(attention), TEST(padding))
