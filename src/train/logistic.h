/* SPDX-License-Identifier: MIT
 *
 * logistic.h - L1-regularized logistic regression.
 */
#ifndef ATTN_TRAIN_LOGISTIC_H
#define ATTN_TRAIN_LOGISTIC_H

#include "attn/attn.h"

/* An L1-regularized logistic regression as in liblinear, where the intercept is penalized too. It finds w[features] and
 * b that minimize |w|_1 + |b| + C * sum_i log(1 + exp(-s_i (w.x_i + b))), where s_i = 1 for label 1, else -1. The
 * method is Newton steps along one coordinate at a time (Yuan, Ho and Lin 2010, JMLR 11:3183). */
typedef struct attn_logistic {
    int64_t rows, features;
    const float *x;        /* [features, rows]: each feature is contiguous */
    const uint8_t *labels; /* [rows], 0 or 1 */
    double c;              /* C; 0: 1 */
    double tolerance;      /* stop at this ratio of the largest violation of optimality to the initial one; 0: 1e-4 */
    int64_t max_sweeps;    /* maximum number of sweeps over the coordinates; 0: 1000 */
} attn_logistic;
/* Fits w and b. `w` [features] and `b` [1] hold the initial values and get the result. *sweeps (may be NULL) gets the
 * number of sweeps. ATTN_ERROR_ARGUMENT: sizes, labels that are all equal or not 0 and 1, features that are not finite.
 * ATTN_ERROR_MEMORY. */
attn_status attn_logistic_fit(attn_context *context, const attn_logistic *problem, double *w, double *b,
                              int64_t *sweeps);

#endif
