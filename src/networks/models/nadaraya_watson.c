/* SPDX-License-Identifier: MIT
 *
 * Defines kernel regression as attention (Nadaraya 1964, Watson 1964). The validation points are the queries, the
 * training points are the keys, and the labels of the training points are the values.
 */
#include "models/model_keys.h"

#include "base/context.h"
#include "tensor/number.h"
#include "tensor/tape_state.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const kernels[] = {"gaussian", "boxcar", "constant", "epanechnikov", NULL};
static const attn_score scores[] = {ATTN_SCORE_GAUSSIAN, ATTN_SCORE_BOXCAR, ATTN_SCORE_CONSTANT, ATTN_SCORE_TRIANGULAR};
static const char *const tasks[] = {"regression", "classification", NULL};
static const char *const empties[] = {"error", "nan", "zero", NULL};

static const attn_setting keys[] = {
    {"kernel", ATTN_CONFIG_TYPE_TEXT, "gaussian", 0, 0, kernels,
     "of the distance over sigma; epanechnikov is the triangle max(0, 1 - |u|), as the book has it"},
    {"sigma", ATTN_CONFIG_TYPE_REALS, "1", 1e-30, 1e30, NULL, "width of the kernel; a list: one for each coordinate"},
    {"empty", ATTN_CONFIG_TYPE_TEXT, "error", 0, 0, empties,
     "result of a query whose kernel reaches no training point: an error, NaN or zero"},
    {"task", ATTN_CONFIG_TYPE_TEXT, "regression", 0, 0, tasks,
     "classification: y_train holds numbers of classes, and y_hat the weight of each class (they sum to 1)"},
    ATTN__KEY_COUNT("num_classes", "", "with classification; default: the largest class, and one"),
};
static const attn_port inputs[] = {
    ATTN__PORT("x_train", "(n) or (n,d)", ""),
    ATTN__PORT("y_train", "(n) or (n,c)",
               "numbers of any type; with classification, (n) classes from 0 or (n,c) one-hot rows"),
    ATTN__PORT("x_val", "(m) or (m,d)", ""),
};
static const attn_port outputs[] = {
    ATTN__PORT("y_hat", "(m) or (m,c)", "estimates, or weights of classes"),
    ATTN__PORT_OPTIONAL("weights", "(n,m)", "attention weights; each column sums to 1"),
};

typedef struct regression {
    int kernel, empty;
    bool classify;
    int64_t classes;      /* number of classes; 0: it is determined from the labels */
    double sigma;         /* width of the kernel; it is 1 if each coordinate has its own width */
    attn_tensor *inverse; /* [d]: inverse of each coordinate's width; NULL: all coordinates have the width sigma */
} regression;

static void build(void *self, attn_nn_builder *builder, const attn_config *config)
{
    const attn_config_value *sigma = attn_config_get(config, "sigma");
    const bool list = sigma && (sigma->type == ATTN_CONFIG_TYPE_REALS || sigma->type == ATTN_CONFIG_TYPE_INTS);
    attn_tensor *inverse = list ? attn_nn_constant(builder, "inverse_sigma", 1, &sigma->n) : NULL;
    for (int64_t i = 0; inverse && i < sigma->n; i++) {
        attn__set_number(inverse, i,
                         1 / (sigma->type == ATTN_CONFIG_TYPE_INTS ? (double)sigma->integers[i] : sigma->reals[i]));
    }
    *(regression *)self = (regression){.kernel = attn__config_choice(config, "kernel", kernels),
                                       .empty = attn__config_choice(config, "empty", empties),
                                       .classify = attn__config_choice(config, "task", tasks) == 1,
                                       .classes = attn_config_int(config, "num_classes", 0),
                                       .sigma = attn_config_real(config, "sigma", 1),
                                       .inverse = inverse};
}

/* Returns the number of columns of x: 1 for a vector. If x is neither a vector nor a matrix, sets an error and
 * returns -1. */
static int64_t columns(const attn__call *call, const attn_tensor *x, const char *name)
{
    int rank = x ? attn_tensor_rank(x) : 0;
    if (x && (rank < 1 || rank > 2)) {
        attn__fail(attn_tape_context(call->tape), ATTN_ERROR_SHAPE, "%s: expected a vector or a matrix, found %d axes",
                   name, rank);
        return -1;
    }
    return !x ? -1 : rank == 1 ? 1 : attn_tensor_length(x, 1);
}

/* Describes the attention to the engine. The weights of the Gaussian kernel are the softmax of its logarithm. The
 * weights of the other kernels are the kernel's values divided by their sum. */
static void describe(attn_problem *p, const regression *r, int64_t train, int64_t val, int64_t d, int64_t c)
{
    *p = (attn_problem){.ndims = 4,
                        .score = scores[r->kernel],
                        .width = r->sigma,
                        .normalization = r->kernel == 0 ? ATTN_NORMALIZATION_SOFTMAX : ATTN_NORMALIZATION_SUM};
    p->dims[0] = (attn_dim){.role = ATTN_ROLE_QUERY, .n = val, .q = d, .o = c, .lse = 1, .weights = 1};
    p->dims[1] = (attn_dim){.role = ATTN_ROLE_KEY, .n = train, .k = d, .v = c, .weights = val};
    p->dims[2] = (attn_dim){.role = ATTN_ROLE_CONTRACT, .n = d, .q = 1, .k = 1};
    p->dims[3] = (attn_dim){.role = ATTN_ROLE_VALUE, .n = c, .v = 1, .o = 1};
}

/* Appends a column of ones to the labels [n,c]. The estimate of this column is the sum of the query's weights: 1, or
 * 0 if no training point is within reach of the kernel. */
static attn_tensor *with_ones(attn_tape *tape, attn_tensor *y, int64_t c)
{
    int64_t n = attn_tensor_length(y, 0);
    attn_tensor *ones =
        attn_affine(tape, attn_tape_tensor(tape, attn_tensor_dtype(y), 2, (int64_t[]){n, 1}, NULL), 1, 1);
    return attn_concat(tape, (attn_tensor *[]){attn_reshape(tape, y, 2, (int64_t[]){n, c}), ones}, 2, 1);
}

static void set_nan(attn_tensor *y, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        attn__set_number(y, i, (double)NAN);
}

/* Handles queries that no training point reaches. As the setting `empty` requests, it fails or sets their estimates
 * y [m,c] to NaN. The last column of `all` [m,c+1] is the sum of a query's weights. If a coordinate is NaN, both the
 * sum and the estimate are NaN. */
static attn_tensor *treat_empty(const attn__call *call, const regression *r, attn_tensor *y, const attn_tensor *all)
{
    int64_t c = y ? attn_tensor_length(y, 1) : 0;
    char width[32];
    snprintf(width, sizeof width, r->inverse ? "of each coordinate" : "%g", r->sigma);
    for (int64_t i = 0; y && i < attn_tensor_length(y, 0); i++) {
        if (strcmp(empties[r->empty], "zero") == 0 || attn__number(all, i * (c + 1) + c) != 0)
            continue;
        if (strcmp(empties[r->empty], "error") == 0) {
            attn__fail(attn_tape_context(call->tape), ATTN_ERROR_ARGUMENT,
                       "no training point is within reach of x_val[%" PRId64 "] (kernel %s, sigma %s); set a larger "
                       "sigma, or set empty=nan or empty=zero",
                       i, kernels[r->kernel], width);
            return NULL;
        }
        set_nan(y, i * c, (i + 1) * c);
    }
    return y;
}

/* Returns labels [n,c] if each of their rows has one 1 and otherwise zeros. If not, sets an error and returns NULL. */
static attn_tensor *checked_one_hot(attn_context *context, const regression *r, attn_tensor *labels)
{
    const int64_t n = attn_tensor_length(labels, 0), classes = attn_tensor_length(labels, 1);
    if (r->classes && r->classes != classes) {
        attn__fail(context, ATTN_ERROR_SHAPE, "y_train has %" PRId64 " classes, but num_classes is %" PRId64, classes,
                   r->classes);
        return NULL;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t ones = 0, zeros = 0;
        for (int64_t c = 0; c < classes; c++) {
            double label = attn__number(labels, i * classes + c);
            ones += label == 1;
            zeros += label == 0;
        }
        if (ones != 1 || ones + zeros != classes) {
            attn__fail(context, ATTN_ERROR_ARGUMENT,
                       "y_train[%" PRId64 "] is not a one-hot row, which has one 1 and otherwise zeros", i);
            return NULL;
        }
    }
    return labels;
}

/* Converts class labels to values with one channel per class: 1 for the class of the point, otherwise 0. The
 * estimate for a query is then the share of each class in the weights. Labels have no gradient. */
static attn_tensor *one_hot(const attn__call *call, const regression *r, attn_tensor *labels)
{
    attn_context *context = attn_tape_context(call->tape);
    if (attn_tensor_rank(labels) == 2)
        return checked_one_hot(context, r, labels);
    if (attn_tensor_rank(labels) != 1) {
        attn__fail(context, ATTN_ERROR_SHAPE, "y_train: expected (n) classes or (n,c) one-hot rows, found %d axes",
                   attn_tensor_rank(labels));
        return NULL;
    }
    const int64_t n = attn_tensor_length(labels, 0), limit = r->classes ? r->classes : 1 << 20;
    int64_t classes = r->classes ? r->classes : 1;
    for (int64_t i = 0; i < n; i++) {
        double label = attn__number(labels, i);
        if (!(label >= 0 && label < (double)limit) || label != floor(label)) {
            attn__fail(context, ATTN_ERROR_ARGUMENT, "y_train[%" PRId64 "] is %g; expected a class from 0 to %" PRId64,
                       i, label, limit - 1);
            return NULL;
        }
        classes = (int64_t)label >= classes ? (int64_t)label + 1 : classes;
    }
    attn_tensor *hot = attn_tape_tensor(call->tape, attn_tensor_dtype(labels), 2, (int64_t[]){n, classes}, NULL);
    for (int64_t i = 0; hot && i < n; i++)
        attn__set_number(hot, i * classes + (int64_t)attn__number(labels, i), 1);
    return hot;
}

/* Divides each coordinate by its own width. */
static attn_tensor *in_widths(attn_tape *tape, const regression *r, attn_tensor *x)
{
    return r->inverse ? attn_mul(tape, x, r->inverse) : x;
}

static void forward(const void *self, const attn__call *call)
{
    const regression *r = self;
    attn_tensor *x = attn__call_input(call, "x_train"), *y = attn__call_numbers(call, "y_train"),
                *at = attn__call_input(call, "x_val");
    y = y && r->classify ? one_hot(call, r, y) : y;
    attn_tensor *weights = NULL;
    int64_t d = columns(call, x, "x_train"), c = columns(call, y, "y_train"), d_val = columns(call, at, "x_val");
    if (d < 0 || c < 0 || d_val < 0)
        return;
    int64_t train = attn_tensor_length(x, 0), val = attn_tensor_length(at, 0);
    if (attn_tensor_length(y, 0) != train) {
        attn__fail(attn_tape_context(call->tape), ATTN_ERROR_SHAPE,
                   "y_train has %" PRId64 " labels, but x_train has %" PRId64 " points; each point needs one label",
                   attn_tensor_length(y, 0), train);
        return;
    }
    if (d != d_val) {
        attn__fail(attn_tape_context(call->tape), ATTN_ERROR_SHAPE,
                   "the points of x_val have %" PRId64 " numbers, but the points of x_train have %" PRId64, d_val, d);
        return;
    }
    if (r->inverse && attn_tensor_length(r->inverse, 0) != d) {
        attn__fail(attn_tape_context(call->tape), ATTN_ERROR_SHAPE,
                   "sigma has %" PRId64 " numbers, but the points of x_train have %" PRId64,
                   attn_tensor_length(r->inverse, 0), d);
        return;
    }
    attn_tensor *places = in_widths(call->tape, r, x), *asked = in_widths(call->tape, r, at);
    attn_attention a = {.q = {asked, 0},
                        .k = {places, 0},
                        .v = {with_ones(call->tape, y, c), 0},
                        .rank = 2,
                        .shape = {val, c + 1},
                        .weights = attn__wanted(call, "weights", &weights),
                        .weights_rank = 2,
                        .weights_shape = {train, val}};
    describe(&a.problem, r, train, val, d, c + 1);
    a.problem.dtype = attn_tensor_dtype(at);
    attn_tensor *all = a.v.tensor && places && asked ? attn_attend(call->tape, &a) : NULL;
    attn_tensor *estimate = treat_empty(call, r, all ? attn_slice(call->tape, all, 1, 0, c) : NULL, all);
    attn__call_output(call, "y_hat", attn_tensor_rank(y) == 1 ? attn_reshape(call->tape, estimate, 1, &val) : estimate);
    attn__call_output(call, "weights", weights);
}

const attn__kind attn__kind_nadaraya_watson = {
    .about = {.name = "nadaraya-watson",
              .summary = "kernel regression and classification: means of labels weighted by distance",
              .source = "Nadaraya 1964; Watson 1964; Dive into Deep Learning, 11.2",
              ATTN__PORTS(keys, inputs, outputs)},
    .size = sizeof(regression),
    .build = build,
    .forward = forward,
};
