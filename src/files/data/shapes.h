/* SPDX-License-Identifier: MIT
 *
 * shapes.h - images of coloured shapes on a textured background, with the boxes of the shapes. A detector can be
 * trained on them without downloading data.
 */
#ifndef ATTN_DATA_SHAPES_H
#define ATTN_DATA_SHAPES_H

#include "data/boxes.h"

/* The kinds are circle, square, triangle, star, ring and cross, which are categories 1 to 6. */
enum { ATTN__SHAPE_KINDS = 6, ATTN__SHAPE_MOST = 6, ATTN__SHAPE_LEAST_SIDE = 64, ATTN__SHAPE_MOST_SIDE = 128 };
extern const char *const attn__shape_names[ATTN__SHAPE_KINDS];

/* An image of 1 to 6 shapes, in which later shapes are drawn over earlier ones. A box encloses the visible pixels of a
 * shape. The area of a shape is the number of its visible pixels. At least half of the pixels of each shape are
 * visible. A pixel belongs to a shape that covers more than half of it. */
typedef struct attn__shapes_image {
    int64_t width, height; /* 64 to 128 */
    /* rows of pixels, each with red, green and blue */
    unsigned char pixels[ATTN__SHAPE_MOST_SIDE * ATTN__SHAPE_MOST_SIDE * 3];
    int64_t nobjects;
    attn__object objects[ATTN__SHAPE_MOST]; /* the objects have no ids; their categories are 1 to 6 */
} attn__shapes_image;

/* Draws an image that depends only on (seed, index), with the same bits on every machine. */
void attn__shapes_draw(attn__shapes_image *image, uint64_t seed, uint64_t index);

#endif
