/* SPDX-License-Identifier: MIT
 * The score kinds and their derivatives. */
#include "attend/score.h"

#include <math.h>

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += a[c] * b[c];
    return sum;
}

static double additive(const attn__pair *p, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += p->ws[c] * tanh(p->qs[c] + p->ks[c]);
    return sum;
}

static double concat_sum(const attn__pair *p, int64_t n)
{
    return dot(p->ws, p->qs, n) + dot(p->w2s, p->ks, n);
}

static double relu(double x)
{
    return x <= 0 ? 0 : x; /* NaN stays */
}

static double square_distance(const attn__pair *p, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += (p->qs[c] - p->ks[c]) * (p->qs[c] - p->ks[c]);
    return sum;
}

static double triangle(double distance, double width)
{
    double height = 1 - distance / width;
    return height <= 0 ? 0 : height;
}

static double boxcar(double distance, double width)
{
    if (isnan(distance))
        return distance;
    return distance < width ? 1 : 0;
}

double attn__score(const attn__pair *p)
{
    int64_t n = p->task->contract.size;
    double width = p->task->problem.width;
    switch (p->task->problem.score) {
    case ATTN_SCORE_DOT:
        return dot(p->qs, p->ks, n);
    case ATTN_SCORE_ADDITIVE:
        return additive(p, n);
    case ATTN_SCORE_CONCAT:
        return relu(concat_sum(p, n));
    case ATTN_SCORE_GAUSSIAN:
        return -square_distance(p, n) / (2 * width * width);
    case ATTN_SCORE_BOXCAR:
        return boxcar(sqrt(square_distance(p, n)), width);
    case ATTN_SCORE_CONSTANT:
        return 1;
    case ATTN_SCORE_TRIANGULAR:
        return triangle(sqrt(square_distance(p, n)), width);
    }
    return 0;
}

static void add_scaled(double *to, double g, const double *from, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        to[c] += g * from[c];
}

static void additive_gradient(attn__pair *p, double g, int64_t n)
{
    for (int64_t c = 0; c < n; c++) {
        double t = tanh(p->qs[c] + p->ks[c]), d = g * p->ws[c] * (1 - t * t);
        p->dqs[c] += d;
        p->dks[c] += d;
        p->dws[c] += g * t;
    }
}

static void concat_gradient(attn__pair *p, double g, int64_t n)
{
    if (concat_sum(p, n) <= 0)
        return;
    add_scaled(p->dqs, g, p->ws, n);
    add_scaled(p->dks, g, p->w2s, n);
    add_scaled(p->dws, g, p->qs, n);
    add_scaled(p->dw2s, g, p->ks, n);
}

/* Along q - k, which both distance kernels with a slope move along. */
static void distance_gradient(attn__pair *p, double slope, int64_t n)
{
    for (int64_t c = 0; c < n; c++) {
        double d = slope * (p->qs[c] - p->ks[c]);
        p->dqs[c] += d;
        p->dks[c] -= d;
    }
}

static double triangle_slope(const attn__pair *p, int64_t n)
{
    double width = p->task->problem.width, distance = sqrt(square_distance(p, n));
    return distance > 0 && distance < width ? -1 / (distance * width) : distance * 0;
}

void attn__score_gradient(attn__pair *p, double g)
{
    int64_t n = p->task->contract.size;
    double width = p->task->problem.width;
    switch (p->task->problem.score) {
    case ATTN_SCORE_DOT:
        add_scaled(p->dqs, g, p->ks, n);
        add_scaled(p->dks, g, p->qs, n);
        break;
    case ATTN_SCORE_ADDITIVE:
        additive_gradient(p, g, n);
        break;
    case ATTN_SCORE_CONCAT:
        concat_gradient(p, g, n);
        break;
    case ATTN_SCORE_GAUSSIAN:
        distance_gradient(p, -g / (width * width), n);
        break;
    case ATTN_SCORE_TRIANGULAR:
        distance_gradient(p, g * triangle_slope(p, n), n);
        break;
    case ATTN_SCORE_BOXCAR:
    case ATTN_SCORE_CONSTANT:
        break; /* flat wherever they have a derivative */
    }
}
