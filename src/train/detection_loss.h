/* SPDX-License-Identifier: MIT
 *
 * detection_loss.h - the loss of a set of boxes (DETR: Carion et al. 2020, arXiv:2005.12872, as in the code of its
 * authors).
 *
 * In each image, each object is assigned one query, so that this sum over the objects is minimal:
 *     -p(class) + l1 * |box - object's| - giou * GIoU
 * The class of all other queries is the last one, "no object". */
#ifndef ATTN_TRAIN_DETECTION_LOSS_H
#define ATTN_TRAIN_DETECTION_LOSS_H

#include "attn/tensor.h"

/* The objects of a batch of images. Image i has objects begin[i] to begin[i + 1] - 1. */
typedef struct attn__targets {
    int64_t images;
    const int64_t *begin;   /* [images + 1] */
    const int32_t *classes; /* class of each object */
    const double *boxes;    /* [objects,4]: centre x, centre y, width, height, of an image of size 1 x 1 */
} attn__targets;

/* Zero means the default. */
typedef struct attn__detection_loss_options {
    double no_object; /* weight of the class "no object"; other classes have weight 1; 0: 0.1 */
    double l1, giou;  /* factors of the terms; 0: 5 and 2 */
    /* The divisors of the terms, for several processes that share a batch. 0: the sum of the queries' weights, and the
     * number of objects, at least 1. */
    double weights, objects;
    /* query of each object, for each index of the leading axes; NULL: the assignment with the smallest sum */
    const int64_t *query;
} attn__detection_loss_options;

/* The three terms including their factors. The loss is the sum. */
typedef struct attn__detection_terms {
    attn_tensor *classes, *l1, *giou;
} attn__detection_terms;

/* Computes the loss from logits [...,B,Q,C+1] and boxes [...,B,Q,4] of B images. Each index of the leading axes (the
 * decoder's blocks) has its own assignment, and the terms are summed over these indices. The loss has one element. NULL
 * on error: ATTN_ERROR_SHAPE. ATTN_ERROR_ARGUMENT: an image with more objects than queries, a class out of range, an
 * object without area, logits or boxes that are not finite. ATTN_ERROR_MEMORY. `terms` and `options` may be NULL. */
attn_tensor *attn__detection_loss(attn_tape *tape, attn_tensor *logits, attn_tensor *boxes,
                                  const attn__targets *targets, const attn__detection_loss_options *options,
                                  attn__detection_terms *terms);
/* Sets the divisors for a whole batch with this number of queries and objects. */
void attn__detection_divisors(attn__detection_loss_options *options, int64_t queries, int64_t objects);

#endif
