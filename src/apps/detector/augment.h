/* SPDX-License-Identifier: MIT
 * augment.h - augments a picture and its boxes for training. */
#ifndef ATTN_APPS_DETECTOR_AUGMENT_H
#define ATTN_APPS_DETECTOR_AUGMENT_H

#include "apps/detector/detector.h"
#include "base/rng.h"

/* The steps of an augmentation, in the order in which they are done. Each size is the size of the picture after the
 * step. */
typedef struct attn__augmentation {
    /* true: the picture is resized and cropped first; false: the fields first_width to cut_height are not used */
    bool crop;
    int64_t first_width, first_height;   /* size to which the picture is resized before it is cropped */
    int64_t x, y, cut_width, cut_height; /* the rectangle that is cut out of the resized picture */
    int64_t width, height;               /* size to which the cropped picture is resized */
    bool flip;                           /* true: finally the picture is mirrored left to right */
} attn__augmentation;

/* Draws a random augmentation as in facebookresearch/detr. Lengths are scaled if the view's short side is not 800
 * pixels. If `flip` is true, a picture is mirrored with probability 1/2. If `crop` is true, a picture is resized to a
 * short side of 480 to 800, and with probability 1/2 it is cropped before that. */
attn__augmentation attn__augment_draw(const attn__picture_view *view, bool flip, bool crop, int64_t width,
                                      int64_t height, attn__rng *rng);
/* Returns the steps for a picture that is not augmented. It is only resized, as for detection. */
attn__augmentation attn__augment_none(const attn__picture_view *view, int64_t width, int64_t height);
/* Converts a box of the picture to (centre x, centre y, width, height), relative to the augmented picture. Returns
 * false if no part of the box is inside the augmented picture. */
bool attn__augment_box(const attn__augmentation *a, int64_t width, int64_t height, const attn__box *box, double to[4]);
/* Makes the augmented picture, which has three channels. The caller frees it, even on failure. */
attn_status attn__augment_image(const attn__augmentation *a, attn_context *context, const attn_image *image,
                                attn_image *to);

#endif
