/* SPDX-License-Identifier: MIT
 * augment.h - augments a picture and its boxes for training. */
#ifndef ATTN_APPS_DETECTOR_AUGMENT_H
#define ATTN_APPS_DETECTOR_AUGMENT_H

#include "apps/detector/detector.h"
#include "base/rng.h"

/* The steps in order; each size is the size after the step. */
typedef struct attn__augmentation {
    bool crop;                           /* the first two steps are used */
    int64_t first_width, first_height;   /* size to which the picture is resized first */
    int64_t x, y, cut_width, cut_height; /* the part that is cut out */
    int64_t width, height;               /* size to which the part is resized */
    bool flip;                           /* finally mirrored left to right */
} attn__augmentation;

/* Draws the steps of facebookresearch/detr, with lengths scaled if the view's short side is not 800. Pictures are
 * mirrored with probability 1/2. If `crop`, they are then resized to a short side of 480 to 800; half of them are
 * cropped before. */
attn__augmentation attn__augment_draw(const attn__picture_view *view, bool flip, bool crop, int64_t width,
                                      int64_t height, attn__rng *rng);
/* No augmentation: the picture is resized as for detection. */
attn__augmentation attn__augment_none(const attn__picture_view *view, int64_t width, int64_t height);
/* Converts a box of the picture to centre x, centre y, width, height relative to the augmented picture. False: nothing
 * of the box is left. */
bool attn__augment_box(const attn__augmentation *a, int64_t width, int64_t height, const attn__box *box, double to[4]);
/* The augmented picture with three channels, which the caller frees, on failure too. */
attn_status attn__augment_image(const attn__augmentation *a, attn_context *context, const attn_image *image,
                                attn_image *to);

#endif
