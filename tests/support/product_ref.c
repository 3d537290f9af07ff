/* SPDX-License-Identifier: MIT */
#include "support/product_ref.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static double *zeros(int64_t n)
{
    double *x = calloc((size_t)(n > 0 ? n : 1), sizeof *x);
    if (!x)
        abort();
    return x;
}

/* ------------------------------------------------------------------------------------------- matrices */

double *product_ref_pack(matrix_view b, int64_t n, int64_t k)
{
    double *packed = zeros(n * k);
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < n; j++)
            packed[i * n + j] = (double)b.data[i * b.row + j * b.col];
    return packed;
}

void product_ref_row(double *restrict value, double *restrict magnitude, matrix_view a, int64_t i,
                     const double *restrict b, int64_t n, int64_t k)
{
    for (int64_t j = 0; j < n; j++)
        value[j] = magnitude[j] = 0;
    for (int64_t t = 0; t < k; t++) {
        const double factor = (double)a.data[i * a.row + t * a.col];
        const double *row = b + t * n;
        for (int64_t j = 0; j < n; j++) {
            const double term = factor * row[j];
            value[j] += term;
            magnitude[j] += fabs(term);
        }
    }
}

/* Sums with absolute values up to this total cannot overflow, whatever their order. */
static const double most = (double)FLT_MAX / 2;
static const double least = 1e-30;

double product_ref_share(double got, double value, double magnitude, double terms)
{
    if (!isfinite(magnitude)) {
        const bool same = isnan(value) ? isnan(got) : got == value;
        return same ? 0 : INFINITY;
    }
    if (magnitude >= most)
        return 0;
    if (magnitude == 0)
        return got == value ? 0 : INFINITY;
    const double bound = terms * 0x1p-24 * magnitude;
    const double error = fabs(got - value);
    return isfinite(got) ? error / (magnitude < least ? fmax(bound, least) : bound) : INFINITY;
}

/* --------------------------------------------------------------------------------------- convolutions */

int64_t conv_ref_pixels(const int64_t size[3])
{
    return size[0] * size[1] * size[2];
}

void conv_ref_result(conv_ref *c)
{
    for (int a = 0; a < 3; a++)
        c->result[a] = (c->size[a] + 2 * c->padding[a] - c->kernel[a]) / c->stride[a] + 1;
}

/* One tap of the kernel, applied to one row of results. */
typedef struct tap_row {
    int64_t x, g, w;
    int64_t n, step;
} tap_row;

static void add_row(conv_ref_sums *s, const tap_row *r, const float *x, const float *w, const float *g)
{
    const double weight = (double)w[r->w];
    double *restrict y = s->y + r->g, *restrict y_abs = s->y_abs + r->g;
    double *restrict dx = s->dx + r->x, *restrict dx_abs = s->dx_abs + r->x;
    double sum = 0, sum_abs = 0;
    x += r->x, g += r->g;
    for (int64_t i = 0; i < r->n; i++) {
        const double input = (double)x[i * r->step], gradient = (double)g[i];
        y[i] += weight * input;
        y_abs[i] += fabs(weight * input);
        sum += input * gradient;
        sum_abs += fabs(input * gradient);
    }
    for (int64_t i = 0; i < r->n; i++) {
        const double product = weight * (double)g[i];
        dx[i * r->step] += product;
        dx_abs[i * r->step] += fabs(product);
    }
    s->dw[r->w] += sum;
    s->dw_abs[r->w] += sum_abs;
}

/* Sets [*begin, *end) to the results along the last axis for which tap `t` is inside of x. */
static void inside(const conv_ref *c, int64_t t, int64_t *begin, int64_t *end)
{
    *begin = 0;
    *end = c->result[2];
    while (*begin < *end && *begin * c->stride[2] + t < c->padding[2])
        ++*begin;
    while (*end > *begin && (*end - 1) * c->stride[2] + t - c->padding[2] >= c->size[2])
        --*end;
}

static void add_tap(conv_ref_sums *s, const conv_ref *c, const int64_t tap[3], tap_row first, const float *const in[3])
{
    int64_t begin, end;
    inside(c, tap[2], &begin, &end);
    for (int64_t z = 0; z < c->result[0]; z++) {
        const int64_t from_z = z * c->stride[0] + tap[0] - c->padding[0];
        for (int64_t y = 0; y < c->result[1] && from_z >= 0 && from_z < c->size[0]; y++) {
            const int64_t from_y = y * c->stride[1] + tap[1] - c->padding[1];
            if (from_y < 0 || from_y >= c->size[1])
                continue;
            tap_row r = first;
            r.n = end - begin;
            r.step = c->stride[2];
            r.g += (z * c->result[1] + y) * c->result[2] + begin;
            r.x += (from_z * c->size[1] + from_y) * c->size[2] + begin * c->stride[2] + tap[2] - c->padding[2];
            add_row(s, &r, in[0], in[1], in[2]);
        }
    }
}

static void add_channels(conv_ref_sums *s, const conv_ref *c, tap_row first, const float *const in[3])
{
    for (int64_t t = 0, n = conv_ref_pixels(c->kernel); t < n; t++, first.w++) {
        const int64_t tap[3] = {t / (c->kernel[1] * c->kernel[2]), t / c->kernel[2] % c->kernel[1], t % c->kernel[2]};
        add_tap(s, c, tap, first, in);
    }
}

conv_ref_sums conv_ref_run(const conv_ref *c, const float *x, const float *w, const float *g)
{
    const int64_t in = conv_ref_pixels(c->size), out = conv_ref_pixels(c->result), taps = conv_ref_pixels(c->kernel);
    const int64_t each = c->channels / c->groups, outputs = c->outputs / c->groups;
    const int64_t ny = c->batch * c->outputs * out, nx = c->batch * c->channels * in, nw = c->outputs * each * taps;
    const float *const arrays[3] = {x, w, g};
    conv_ref_sums s = {zeros(ny), zeros(ny), zeros(nx), zeros(nx), zeros(nw), zeros(nw)};
    for (int64_t b = 0; b < c->batch; b++) {
        for (int64_t o = 0; o < c->outputs; o++) {
            for (int64_t e = 0; e < each; e++) {
                const int64_t channel = o / outputs * each + e;
                const tap_row first = {
                    .x = (b * c->channels + channel) * in, .g = (b * c->outputs + o) * out, .w = (o * each + e) * taps};
                add_channels(&s, c, first, arrays);
            }
        }
    }
    return s;
}

void conv_ref_free(conv_ref_sums *s)
{
    double *const all[] = {s->y, s->y_abs, s->dx, s->dx_abs, s->dw, s->dw_abs};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    *s = (conv_ref_sums){0};
}
