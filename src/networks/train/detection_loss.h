/* SPDX-License-Identifier: MIT
 *
 * detection_loss.h - the loss of a set of boxes (DETR: Carion et al. 2020, arXiv:2005.12872, as in the code of its
 * authors).
 *
 * In each image, each object is assigned one query, so that the sum of these costs over the objects is minimal:
 * -p(class) + l1 * |box - box of the object| - giou * GIoU. All other queries get the last class, "no object".
 */
#ifndef ATTN_TRAIN_DETECTION_LOSS_H
#define ATTN_TRAIN_DETECTION_LOSS_H

#include "attn/tensor.h"

/* The objects of a batch of images. Image i has objects begin[i] to begin[i + 1] - 1. */
typedef struct attn__targets {
    int64_t images;
    const int64_t *begin; /* [images + 1] */
    const int32_t *classes;
    const double *boxes; /* [objects,4]: centre x, centre y, width, height, of an image of size 1 x 1 */
} attn__targets;

/* Options of the loss. A field that is zero has its default. */
typedef struct attn__detection_loss_options {
    double no_object; /* weight of the class "no object" (0 means 0.1); the weight of each other class is 1 */
    double l1, giou;  /* l1: factor of the L1 distance (0 means 5); giou: factor of the GIoU term (0 means 2) */
    /* Divisors of the terms of the loss. They are set if several processes share a batch. If `weights` is 0, the
     * divisor is the sum of the queries' weights. If `objects` is 0, the divisor is the number of objects, at least
     * 1. */
    double weights, objects;
    /* [blocks][objects]: the query that is assigned to each object; NULL: the assignment is computed */
    const int64_t *query;
} attn__detection_loss_options;

/* The three terms of the loss, which are multiplied by their factors. The loss is their sum. */
typedef struct attn__detection_terms {
    attn_tensor *classes, *l1, *giou;
} attn__detection_terms;

/* Computes the loss from logits [...,B,Q,C+1] and boxes [...,B,Q,4] of B images. Leading axes (...) are the decoder's
 * blocks. Each of these has its own assignment, and the terms are summed over them. The loss has one element. Returns
 * NULL on error. ATTN_ERROR_SHAPE: the shapes do not match. ATTN_ERROR_ARGUMENT: an image has more objects than
 * queries, a class is out of range, an object has no area, or logits or boxes are not finite. ATTN_ERROR_MEMORY: there
 * is no memory. `terms` and `options` may be NULL. */
attn_tensor *attn__detection_loss(attn_tape *tape, attn_tensor *logits, attn_tensor *boxes,
                                  const attn__targets *targets, const attn__detection_loss_options *options,
                                  attn__detection_terms *terms);
/* Sets the divisors for a batch that several processes share. `queries` and `objects` are the numbers of queries and
 * objects of the whole batch. */
void attn__detection_divisors(attn__detection_loss_options *options, int64_t queries, int64_t objects);

#endif
