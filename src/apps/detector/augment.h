/* SPDX-License-Identifier: MIT
 * augment.h - what is done to a picture and its boxes in training. */
#ifndef ATTN_APPS_DETECTOR_AUGMENT_H
#define ATTN_APPS_DETECTOR_AUGMENT_H

#include "apps/detector/detector.h"
#include "base/rng.h"

/* The steps, in their order; sizes are those after the step. */
typedef struct attn__augmentation {
    bool crop;                           /* the first two steps are there */
    int64_t first_width, first_height;   /* to which it is resized */
    int64_t x, y, cut_width, cut_height; /* the part that is cut out of that */
    int64_t width, height;               /* to which it is resized */
    bool flip;                           /* and mirrored left to right */
} attn__augmentation;

/* As facebookresearch/detr does it, with lengths in proportion to the view's size where they are for one of 800: mirrored
 * every other time; then, if `crop`, resized to a short side of 480 to 800, every other time of a part that is cut out
 * before. */
attn__augmentation attn__augment_draw(const attn__picture_view *view, bool flip, bool crop, int64_t width,
                                      int64_t height, attn__rng *rng);
/* None: resized as it is when detecting. */
attn__augmentation attn__augment_none(const attn__picture_view *view, int64_t width, int64_t height);
/* A box of the picture of that size, relative to the augmented one as centre x, centre y, width, height.  False: nothing
 * of it is left. */
bool attn__augment_box(const attn__augmentation *a, int64_t width, int64_t height, const attn__box *box, double to[4]);
/* The picture, of three channels, which the caller frees, on failure too. */
attn_status attn__augment_image(const attn__augmentation *a, attn_context *context, const attn_image *image,
                                attn_image *to);

#endif
