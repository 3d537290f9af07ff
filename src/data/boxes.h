/* SPDX-License-Identifier: MIT
 *
 * boxes.h - images with labelled boxes, and what a detector found in them.
 *
 * A set is filled in any order and finished once; after that it is not changed, and any number of threads may read it.
 */
#ifndef ATTN_DATA_BOXES_H
#define ATTN_DATA_BOXES_H

#include "attn/attn.h"

/* In pixels; x and y are those of the upper left corner. */
typedef struct attn__box {
    double x, y, width, height;
} attn__box;

typedef struct attn__object {
    attn__box box;
    double area;      /* decides whether it is small, medium or large: of its segmentation, or of the box */
    int64_t id;       /* each object of a set has its own */
    int64_t image;    /* index in the set; until the set is finished the image's id */
    int64_t category; /* the same */
    bool crowd;       /* the box is around many, which were not told apart */
} attn__object;

typedef struct attn__detection {
    attn__box box;
    double score;
    int64_t image, category; /* indices in a set, or ids, as the function has it */
} attn__detection;

typedef struct attn__boxed_image {
    int64_t id, width, height;
    char *file;             /* as the annotations have it, relative to a folder; NULL: they have none */
    int64_t first, objects; /* its objects are these of the set's, in the order in which they were added */
} attn__boxed_image;

typedef struct attn__category {
    int64_t id;
    char *name;
} attn__category;

/* Images and categories are in the order of their ids, which may be any: an index is the number of lower ids.  The
 * objects are in the order of their images. */
typedef struct attn__box_set {
    attn_context *context;
    attn__boxed_image *images;
    attn__category *categories;
    attn__object *objects;
    int64_t nimages, ncategories, nobjects;
    char *folder; /* contains the images' files; NULL: this is not known */
    bool finished;
} attn__box_set;

attn_status attn__box_set_create(attn__box_set **set, attn_context *context);
void attn__box_set_destroy(attn__box_set *set); /* NULL is allowed */
/* Texts are copied; `file` may be NULL.  ATTN_ERROR_MEMORY. */
attn_status attn__box_set_add_image(attn__box_set *set, int64_t id, int64_t width, int64_t height, const char *file);
attn_status attn__box_set_add_category(attn__box_set *set, int64_t id, const char *name);
attn_status attn__box_set_add_object(attn__box_set *set, const attn__object *object);
/* Sorts, and replaces the objects' ids of images and categories by indices.  `name` is used in messages.
 * ATTN_ERROR_FORMAT: an id that two images, categories or objects have; an object of an image or a category that the set
 * lacks. */
attn_status attn__box_set_finish(attn__box_set *set, const char *name);
/* The index of an id in a finished set; -1: the set lacks it. */
int64_t attn__box_set_image(const attn__box_set *set, int64_t id);
int64_t attn__box_set_category(const attn__box_set *set, int64_t id);

/* The part of a box that is inside the image; false if it has no area. */
bool attn__box_clip(attn__box *box, int64_t width, int64_t height);

/* COCO's 80 categories, in the order of their ids, which have holes: 1 to 90. */
enum { ATTN__COCO_CATEGORIES = 80 };
typedef struct attn__coco_category {
    int32_t id;
    const char *name;
} attn__coco_category;
extern const attn__coco_category attn__coco_categories[ATTN__COCO_CATEGORIES];
const char *attn__coco_name(int64_t id); /* NULL: COCO has no such category */

#endif
