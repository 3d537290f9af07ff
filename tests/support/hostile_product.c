/* SPDX-License-Identifier: MIT */
#include "support/hostile.h"

#include "tensor/packed_weights.h"
#include "tensor/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A product with operands and results: y[b] = x[b] w[b]^T + bias, dx[b] = g[b] w[b] and dw[b] = g[b]^T x[b]. The
 * shapes are x [B,m,k], w [B or 1,n,k], g and y [B,m,n], for any layout of the tensors. `packed` is the y of a
 * linear layer with packed weights, as in inference. It is NULL if the structure is made for a gradient instead of
 * y. */
typedef struct product {
    const hostile_case *c;
    int64_t batch, weights, m, n, k;
    float *x, *w, *bias, *g;
    float *y, *packed, *dx, *dw, *dbias;
} product;

/* ------------------------------------------------------------------------------------------- the operands */

static hostile values_of(const product *p)
{
    const hostile_case *c = p->c;
    hostile h = {.structure = c->structure, .seed = c->seed, .swap = c->swap};
    h.rows[0] = c->aim == HOSTILE_DW ? p->n : p->m;
    h.rows[1] = c->aim == HOSTILE_FORWARD ? p->n : p->k;
    h.k = c->aim == HOSTILE_FORWARD ? p->k : c->aim == HOSTILE_DX ? p->n : p->m;
    return h;
}

/* Fills x[b,i,j] with an operand's numbers: row i, index k = j. If `across` is true, it is row j and index k = i. */
static void fill(float *data, const hostile *h, hostile_operand operand, bool across, const int64_t n[3])
{
    for (int64_t b = 0, at = 0; b < n[0]; b++) {
        for (int64_t i = 0; i < n[1]; i++)
            for (int64_t j = 0; j < n[2]; j++)
                data[at++] = across ? hostile_value(h, operand, j, i, b) : hostile_value(h, operand, i, j, b);
    }
}

static void fill_operands(product *p)
{
    const hostile h = values_of(p);
    const hostile plain = {.seed = p->c->seed + 1, .rows = {1, 1}, .k = 1};
    const int64_t of_x[3] = {p->batch, p->m, p->k}, of_w[3] = {p->weights, p->n, p->k},
                  of_g[3] = {p->batch, p->m, p->n};
    const hostile_aim aim = p->c->aim;
    fill(p->x, aim == HOSTILE_DX ? &plain : &h, aim == HOSTILE_DW ? HOSTILE_B : HOSTILE_A, aim == HOSTILE_DW, of_x);
    fill(p->w, aim == HOSTILE_DW ? &plain : &h, HOSTILE_B, aim == HOSTILE_DX, of_w);
    fill(p->g, aim == HOSTILE_FORWARD ? &plain : &h, HOSTILE_A, aim == HOSTILE_DW, of_g);
    for (int64_t j = 0; j < p->n; j++)
        p->bias[j] = p->c->n[P_BIAS] ? hostile_value(&plain, HOSTILE_A, j, 7, 7) : 0;
}

static product open_product(const hostile_case *c)
{
    product p = {.c = c, .batch = c->n[P_BATCH], .m = c->n[P_M], .n = c->n[P_N], .k = c->n[P_K]};
    p.weights = c->kind == HOSTILE_LINEAR || c->n[P_SHARED] ? 1 : p.batch;
    const int64_t nx = p.batch * p.m * p.k, nw = p.weights * p.n * p.k, ny = p.batch * p.m * p.n;
    p.x = hostile_floats(nx);
    p.dx = hostile_floats(nx);
    p.w = hostile_floats(nw);
    p.dw = hostile_floats(nw);
    p.g = hostile_floats(ny);
    p.y = hostile_floats(ny);
    p.packed = c->kind == HOSTILE_LINEAR && c->aim == HOSTILE_FORWARD ? hostile_floats(ny) : NULL;
    p.bias = hostile_floats(p.n);
    p.dbias = hostile_floats(p.n);
    fill_operands(&p);
    return p;
}

static void close_product(product *p)
{
    float *const all[] = {p->x, p->w, p->bias, p->g, p->y, p->packed, p->dx, p->dw, p->dbias};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* ---------------------------------------------------------------------------------------- the library's */

/* Copies `from` to `to`, or if `transpose` is true, sets to[b,j,i] = from[b,i,j]. */
static void turn(float *to, const float *from, bool transpose, const int64_t n[3])
{
    for (int64_t b = 0; b < n[0]; b++) {
        for (int64_t i = 0; i < n[1]; i++)
            for (int64_t j = 0; j < n[2]; j++)
                to[b * n[1] * n[2] + (transpose ? j * n[1] + i : i * n[2] + j)] = from[(b * n[1] + i) * n[2] + j];
    }
}

/* Makes a tensor of x[b,i,j], with the last two axes exchanged if `transpose` is true. If `flat` is true, a first
 * axis of length 1 is dropped. */
static attn_tensor *tensor_of(attn_tape *tape, const float *data, bool transpose, bool flat, const int64_t n[3])
{
    const int64_t shape[3] = {n[0], n[transpose ? 2 : 1], n[transpose ? 1 : 2]};
    float *laid = hostile_floats(n[0] * n[1] * n[2]);
    turn(laid, data, transpose, n);
    attn_tensor *x = hostile_tensor(tape, flat ? 2 : 3, flat ? shape + 1 : shape, laid);
    free(laid);
    return x;
}

static void take_back(float *to, const attn_tensor *from, bool transposed, const int64_t n[3])
{
    const int64_t laid[3] = {n[0], n[transposed ? 2 : 1], n[transposed ? 1 : 2]};
    turn(to, attn_tensor_data(from), transposed, laid);
}

typedef struct tensors {
    attn_tensor *x, *w, *bias;
} tensors;

static attn_tensor *forward(const product *p, attn_tape *tape, const tensors *t)
{
    const int64_t *n = p->c->n;
    attn_tape_reset(tape, &(attn_tape_options){.record = true});
    if (p->c->kind == HOSTILE_LINEAR)
        return attn_linear(tape, t->x, t->w, n[P_BIAS] ? t->bias : NULL, ATTN_ACTIVATION_IDENTITY);
    return attn_matmul(tape, t->x, t->w, n[P_TRANSPOSE_A] != 0, n[P_TRANSPOSE_B] != 0);
}

static bool both_ways(const product *p, attn_tape *tape, const tensors *t)
{
    attn_tensor *y = forward(p, tape, t);
    attn_tensor *g = y ? attn_tape_tensor(tape, ATTN_F32, attn_tensor_rank(y), attn_tensor_shape(y), p->g) : NULL;
    if (!g || attn_backward_from(tape, y, g) != ATTN_OK)
        return false;
    memcpy(p->y, attn_tensor_data(y), (size_t)attn_tensor_size(y) * sizeof *p->y);
    return true;
}

static bool with_packed(const product *p, attn_tape *tape, const tensors *t)
{
    attn_tape_reset(tape, NULL);
    if (attn__packed_weights_begin(tape) != ATTN_OK)
        return false;
    attn_tensor *y = attn_linear(tape, t->x, t->w, p->c->n[P_BIAS] ? t->bias : NULL, ATTN_ACTIVATION_IDENTITY);
    if (y)
        memcpy(p->packed, attn_tensor_data(y), (size_t)attn_tensor_size(y) * sizeof *p->packed);
    attn__packed_weights_end(tape);
    return y != NULL;
}

/* Operand b of attn_matmul is [k,n] unless it is transposed. The weights of a linear layer are always [n,k]. */
static bool compute(const product *p, attn_tape *tape)
{
    const int64_t *n = p->c->n, of_x[3] = {p->batch, p->m, p->k}, of_w[3] = {p->weights, p->n, p->k};
    const bool linear = p->c->kind == HOSTILE_LINEAR, turn_w = !linear && !n[P_TRANSPOSE_B];
    tensors t = {.x = tensor_of(tape, p->x, n[P_TRANSPOSE_A] != 0, linear, of_x),
                 .w = tensor_of(tape, p->w, turn_w, linear || n[P_SHARED], of_w),
                 .bias = hostile_tensor(tape, 1, &p->n, p->bias)};
    bool done = both_ways(p, tape, &t) && (!n[P_TWICE] || both_ways(p, tape, &t));
    if (done) {
        take_back(p->dx, attn_tensor_grad(t.x), n[P_TRANSPOSE_A] != 0, of_x);
        take_back(p->dw, attn_tensor_grad(t.w), turn_w, of_w);
        if (n[P_BIAS])
            memcpy(p->dbias, attn_tensor_data(attn_tensor_grad(t.bias)), (size_t)p->n * sizeof *p->dbias);
    }
    done = done && (!p->packed || with_packed(p, tape, &t));
    attn_tape_reset(tape, NULL);
    attn_tensor_destroy(t.x);
    attn_tensor_destroy(t.w);
    attn_tensor_destroy(t.bias);
    return done;
}

/* ---------------------------------------------------------------------------------------------- checks */

typedef struct check {
    const char *name;
    int64_t m, n, k;
    matrix_view a, b;
    const float *result, *bias;
    int times; /* 2 if a gradient was added to itself */
} check;

enum { REFERENCE_WORK = 2000000 };

static void check_row(hostile_report *report, const check *c, int64_t i, const double *b, double *sums)
{
    double *value = sums, *magnitude = sums + c->n;
    product_ref_row(value, magnitude, c->a, i, b, c->n, c->k);
    for (int64_t j = 0; j < c->n; j++) {
        const double bias = c->bias ? (double)c->bias[j] : 0, got = (double)c->result[i * c->n + j];
        const double terms = (double)(c->k * c->times + (c->bias != NULL)), times = c->times;
        const double sum = times * value[j] + bias, size = times * magnitude[j] + fabs(bias);
        const int64_t at[2] = {i, j};
        hostile_note(report, c->name, at, got, sum, product_ref_share(got, sum, size, terms));
    }
}

/* Checks all rows of a small product. For a large product, checks as many random rows as the reference computes in
 * some milliseconds. */
static void run_check(hostile_report *report, const check *c, uint64_t seed)
{
    double *b = product_ref_pack(c->b, c->n, c->k), *sums = calloc((size_t)(2 * c->n + 1), sizeof *sums);
    const int64_t cost = c->n * c->k, rows = cost * c->m > REFERENCE_WORK ? 2 + REFERENCE_WORK / cost : c->m;
    if (!sums)
        abort();
    for (int64_t r = 0; r < rows && r < c->m; r++)
        check_row(report, c, rows >= c->m ? r : hostile_pick(seed, (uint64_t)r, c->m), b, sums);
    free(sums);
    free(b);
}

static void check_forward(const product *p, hostile_report *report)
{
    for (int64_t i = 0; i < p->batch; i++) {
        const float *w = p->w + (p->weights > 1 ? i * p->n * p->k : 0), *x = p->x + i * p->m * p->k;
        const float *g = p->g + i * p->m * p->n;
        const check y = {
            "y", p->m, p->n, p->k, {x, p->k, 1}, {w, 1, p->k}, p->y + i * p->m * p->n, p->c->n[P_BIAS] ? p->bias : NULL,
            1};
        const check dx = {"dx",
                          p->m,
                          p->k,
                          p->n,
                          {g, p->n, 1},
                          {w, p->k, 1},
                          p->dx + i * p->m * p->k,
                          NULL,
                          1 + (int)p->c->n[P_TWICE]};
        run_check(report, &y, p->c->seed);
        if (p->packed) {
            check packed = y;
            packed.name = "y of packed weights";
            packed.result = p->packed + i * p->m * p->n;
            run_check(report, &packed, p->c->seed);
        }
        run_check(report, &dx, p->c->seed);
    }
}

/* Checks the gradient of the weights, which is a sum over the batch if the weights are shared. */
static void check_weights(const product *p, hostile_report *report)
{
    const int64_t depth = p->batch * p->m / p->weights;
    for (int64_t i = 0; i < p->weights; i++) {
        const float *x = p->x + i * p->m * p->k, *g = p->g + i * p->m * p->n;
        const check dw = {"dw",
                          p->n,
                          p->k,
                          depth,
                          {g, 1, p->n},
                          {x, p->k, 1},
                          p->dw + i * p->n * p->k,
                          NULL,
                          1 + (int)p->c->n[P_TWICE]};
        run_check(report, &dw, p->c->seed);
    }
}

static void check_bias(const product *p, hostile_report *report)
{
    const float one = 1;
    const check dbias = {"dbias",         1,        p->n, p->batch * p->m,          {&one, 0, 0},
                         {p->g, p->n, 1}, p->dbias, NULL, 1 + (int)p->c->n[P_TWICE]};
    run_check(report, &dbias, p->c->seed);
}

bool hostile_run_product(attn_tape *tape, const hostile_case *c, hostile_report *report)
{
    product p = open_product(c);
    if (compute(&p, tape)) {
        check_forward(&p, report);
        check_weights(&p, report);
        if (c->n[P_BIAS])
            check_bias(&p, report);
    } else {
        hostile_refused(report, tape);
    }
    close_product(&p);
    return report->broken == 0;
}
