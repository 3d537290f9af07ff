/* SPDX-License-Identifier: MIT
 * augment.h - augments a picture and its boxes for training. */
#ifndef ATTN_APPS_DETECTOR_AUGMENT_H
#define ATTN_APPS_DETECTOR_AUGMENT_H

#include "apps/detector/detector.h"
#include "base/rng.h"

/* The steps of an augmentation, in order. Each size is the size after the step. */
typedef struct attn__augmentation {
    /* whether the picture is resized and cut first; otherwise first_width to cut_height are not used */
    bool crop;
    int64_t first_width, first_height;   /* size to which the picture is resized first */
    int64_t x, y, cut_width, cut_height; /* the part that is cut out of the resized picture */
    int64_t width, height;               /* size to which the part is resized */
    bool flip;                           /* the picture is finally mirrored left to right */
} attn__augmentation;

/* Draws the random steps of facebookresearch/detr. Lengths are scaled if the view's short side is not 800 pixels.
 * With `flip`, pictures are mirrored with probability 1/2. With `crop`, pictures are resized to a short side of 480
 * to 800, and half of them are cropped before. */
attn__augmentation attn__augment_draw(const attn__picture_view *view, bool flip, bool crop, int64_t width,
                                      int64_t height, attn__rng *rng);
/* Returns the steps without augmentation: the picture is only resized, as for detection. */
attn__augmentation attn__augment_none(const attn__picture_view *view, int64_t width, int64_t height);
/* Converts a box of the picture to centre x, centre y, width and height, relative to the augmented picture. Returns
 * false if nothing of the box is left. */
bool attn__augment_box(const attn__augmentation *a, int64_t width, int64_t height, const attn__box *box, double to[4]);
/* Makes the augmented picture with three channels. The caller frees it, on failure too. */
attn_status attn__augment_image(const attn__augmentation *a, attn_context *context, const attn_image *image,
                                attn_image *to);

#endif
