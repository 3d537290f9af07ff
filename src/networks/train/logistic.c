/* SPDX-License-Identifier: MIT
 *
 * Fits an L1-regularized logistic regression by coordinate descent with Newton directions (Yuan, Ho and Lin 2010).
 *
 * The objective is |w|_1 + C sum_i log(1 + exp(-s_i z_i)) with z = x w. The method changes one coefficient w_j at a
 * time, by a step d that minimizes a quadratic model of the loss plus |w_j + d|. The step is halved until the objective
 * falls enough. z is updated after each step, so a coordinate costs one pass over its feature. The intercept is the
 * coefficient of an additional last feature, which is 1 in all rows.
 */
#include "attn/train.h"

#include "base/context.h"
#include "train/logistic.h"

#include <math.h>
#include <string.h>

static const double SUFFICIENT = 0.01, SHORTER = 0.5; /* constants of the paper's line search */
/* If the expected decrease of the objective is smaller than this fraction of C rows + |w|, no line search is done. Such
 * a decrease is below the rounding error of the objective. Near the minimum the full Newton step is good anyway. */
static const double ROUNDING = 1e-11;

typedef struct fit {
    attn_context *context;
    const attn_logistic *p;
    double c;
    double *z, *step; /* [rows]; z: scores x w; step: change of z by the full step of the current coordinate */
    double *chance;   /* [rows]: sigmoid(z) */
} fit;

/* Returns log(1 + exp(t)) without overflow. */
static double log1p_exp(double t)
{
    return t > 0 ? t + log1p(exp(-t)) : log1p(exp(t));
}

static double sigmoid(double z)
{
    return 1 / (1 + exp(-z));
}

static double feature(const fit *f, int64_t j, int64_t i)
{
    return j < f->p->features ? (double)f->p->x[j * f->p->rows + i] : 1;
}

/* Computes the first and second derivatives of the loss along coordinate j. */
static void derivatives(const fit *f, int64_t j, double *first, double *second)
{
    double g = 0, h = 0;
    for (int64_t i = 0; i < f->p->rows; i++) {
        double x = feature(f, j, i), chance = f->chance[i];
        g += x * (chance - f->p->labels[i]);
        h += x * x * chance * (1 - chance);
    }
    *first = f->c * g;
    *second = f->c * h + 1e-12; /* 1e-12 avoids a division by zero if a feature is 0 in all rows */
}

/* Returns the step d that minimizes g d + h d^2 / 2 + |w + d|, where g and h are the first and second derivative of the
 * loss. */
static double newton_step(double g, double h, double w)
{
    if (g + 1 <= h * w)
        return -(g + 1) / h;
    if (g - 1 >= h * w)
        return -(g - 1) / h;
    return -w;
}

/* Returns by how much a coordinate with value w and derivative g misses its optimality condition. */
static double violation(double g, double w)
{
    if (w > 0)
        return fabs(g + 1);
    if (w < 0)
        return fabs(g - 1);
    return fmax(0, fabs(g) - 1);
}

/* Returns the change of the objective if coefficient w changes by `share` times d. `share` is in 0 to 1. */
static double change(const fit *f, double share, double w, double d)
{
    double loss = 0;
    for (int64_t i = 0; i < f->p->rows; i++) {
        double sign = f->p->labels[i] ? -1 : 1;
        loss += log1p_exp(sign * (f->z[i] + share * f->step[i])) - log1p_exp(sign * f->z[i]);
    }
    return f->c * loss + fabs(w + share * d) - fabs(w);
}

static void move(fit *f, double share)
{
    for (int64_t i = 0; i < f->p->rows; i++) {
        f->z[i] += share * f->step[i];
        f->chance[i] = sigmoid(f->z[i]);
    }
}

/* Improves coefficient *w. Returns by how much it missed its optimality condition before. */
static double improve(fit *f, int64_t j, double *w)
{
    double g, h;
    derivatives(f, j, &g, &h);
    double found = violation(g, *w), d = newton_step(g, h, *w);
    if (fabs(d) < 1e-12)
        return found;
    double promised = g * d + fabs(*w + d) - fabs(*w);
    for (int64_t i = 0; i < f->p->rows; i++)
        f->step[i] = d * feature(f, j, i);
    bool tiny = -promised < ROUNDING * (f->c * (double)f->p->rows + fabs(*w));
    double share = 1;
    for (int tries = 0; tries < 34; tries++, share *= SHORTER) {
        if (tiny || change(f, share, *w, d) <= SUFFICIENT * share * promised) {
            move(f, share);
            *w += share * d;
            break;
        }
    }
    return found;
}

static void begin(fit *f, const double *w, double b)
{
    for (int64_t i = 0; i < f->p->rows; i++) {
        f->z[i] = b;
        for (int64_t j = 0; j < f->p->features; j++)
            f->z[i] += w[j] * feature(f, j, i);
        f->chance[i] = sigmoid(f->z[i]);
    }
}

/* Returns the progress in hundredths. It is proportional to the logarithm of the violation, because each sweep reduces
 * the violation by about the same factor. */
static int64_t way(double first, double worst, double tolerance)
{
    double share = worst > 0 && first > worst ? log(first / worst) / log(1 / tolerance) : 0;
    return (int64_t)(100 * fmin(share, 1));
}

/* Minimizes the objective. *sweep becomes the number of sweeps. */
static attn_status solve(fit *f, double *w, double *b, int64_t *sweep)
{
    double tolerance = f->p->tolerance > 0 ? f->p->tolerance : 1e-4, first = 0;
    int64_t most = f->p->max_sweeps > 0 ? f->p->max_sweeps : 1000, done = 0;
    attn_status status = ATTN_OK;
    *sweep = 0;
    begin(f, w, *b);
    while (status == ATTN_OK && *sweep < most) {
        double worst = improve(f, f->p->features, b);
        for (int64_t j = 0; j < f->p->features; j++)
            worst = fmax(worst, improve(f, j, &w[j]));
        first = (*sweep)++ ? first : worst;
        done = done > way(first, worst, tolerance) ? done : way(first, worst, tolerance);
        status = attn__work(f->context, "hundredths of the regression", done, 100);
        if (worst <= tolerance * first)
            break;
    }
    return status;
}

static attn_status check(attn_context *context, const attn_logistic *p)
{
    if (p->rows < 1 || p->features < 1)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "logistic regression: there are %lld rows and %lld features; at least one of each is needed",
                          (long long)p->rows, (long long)p->features);
    int64_t ones = 0;
    for (int64_t i = 0; i < p->rows; i++) {
        if (p->labels[i] > 1)
            return attn__fail(context, ATTN_ERROR_ARGUMENT,
                              "logistic regression: label %d of row %lld is neither 0 nor 1", p->labels[i],
                              (long long)i);
        ones += p->labels[i];
    }
    if (ones == 0 || ones == p->rows)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "logistic regression: every label is %d; both labels, 0 and 1, are needed", ones != 0);
    for (int64_t i = 0; i < p->rows * p->features; i++) {
        if (!isfinite(p->x[i]))
            return attn__fail(context, ATTN_ERROR_ARGUMENT,
                              "logistic regression: feature %lld of row %lld is not finite", (long long)(i / p->rows),
                              (long long)(i % p->rows));
    }
    return ATTN_OK;
}

attn_status attn_logistic_fit(attn_context *context, const attn_logistic *problem, double *w, double *b,
                              int64_t *sweeps)
{
    ATTN__CALL(context);
    attn_status status = check(context, problem);
    if (status != ATTN_OK)
        return status;
    size_t bytes = attn__size_mul((size_t)problem->rows, sizeof(double));
    fit f = {.context = context, .p = problem, .c = problem->c > 0 ? problem->c : 1};
    f.z = attn__alloc(context, attn__size_mul(bytes, 3));
    if (!f.z)
        return ATTN_ERROR_MEMORY;
    f.step = f.z + problem->rows;
    f.chance = f.step + problem->rows;
    int64_t made;
    status = solve(&f, w, b, &made);
    if (sweeps)
        *sweeps = made;
    attn__free(context, f.z);
    return status;
}
