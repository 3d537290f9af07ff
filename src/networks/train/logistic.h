/* SPDX-License-Identifier: MIT
 *
 * logistic.h - L1-regularized logistic regression.
 */
#ifndef ATTN_TRAIN_LOGISTIC_H
#define ATTN_TRAIN_LOGISTIC_H

#include "attn/attn.h"

/* An L1-regularized logistic regression as in liblinear. It finds w [features] and b that minimize |w|_1 + |b| + C *
 * sum_i log(1 + exp(-s_i (w.x_i + b))). x_i are the features of row i. s_i is 1 if the label of row i is 1, otherwise
 * -1. As in liblinear, the intercept b is also penalized. The method takes Newton steps along one coordinate at a time
 * (Yuan, Ho and Lin 2010, JMLR 11:3183). */
typedef struct attn_logistic {
    int64_t rows, features;
    const float *x;        /* [features, rows]: each feature is contiguous */
    const uint8_t *labels; /* [rows], 0 or 1 */
    double c;              /* C; 0: 1 */
    /* the fit stops when the largest violation of optimality is at most this fraction of the initial one (0 means
     * 1e-4) */
    double tolerance;
    int64_t max_sweeps; /* maximum number of sweeps over the coordinates (0 means 1000) */
} attn_logistic;
/* Fits w [features] and b [1], which hold the initial values and get the result. *sweeps gets the number of sweeps;
 * `sweeps` may be NULL. ATTN_ERROR_ARGUMENT: a size is out of range, all labels are equal, a label is neither 0 nor 1,
 * or a feature is not finite. ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn_logistic_fit(attn_context *context, const attn_logistic *problem, double *w, double *b,
                              int64_t *sweeps);

#endif
