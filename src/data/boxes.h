/* SPDX-License-Identifier: MIT
 *
 * boxes.h - images with labelled boxes, and the detections of a detector.
 *
 * A set is filled in any order and finished once. After that it is not changed, and any number of threads may read it.
 * */
#ifndef ATTN_DATA_BOXES_H
#define ATTN_DATA_BOXES_H

#include "attn/attn.h"

/* A box in pixels; (x, y) is the upper left corner. */
typedef struct attn__box {
    double x, y, width, height;
} attn__box;

typedef struct attn__object {
    attn__box box;
    /* area of the segmentation, or of the box; decides whether the object is small, medium or large */
    double area;
    int64_t id;       /* unique id of the object in a set */
    int64_t image;    /* index of the image in the set; before the set is finished, the image's id */
    int64_t category; /* like `image`: index of the category, or its id */
    bool crowd;       /* the box is around a crowd of objects that were not labelled one by one */
} attn__object;

typedef struct attn__detection {
    attn__box box;
    double score;
    int64_t image, category; /* indices in a set, or ids, depending on the function */
} attn__detection;

typedef struct attn__boxed_image {
    int64_t id, width, height;
    char *file;             /* the path in the annotations, relative to a folder; NULL: not given */
    int64_t first, objects; /* range of the image's objects in the set, in the order in which they were added */
} attn__boxed_image;

typedef struct attn__category {
    int64_t id;
    char *name;
} attn__category;

/* Images and categories are sorted by their ids, which may be any numbers. An index is the number of lower ids. The
 * objects are sorted by image. */
typedef struct attn__box_set {
    attn_context *context;
    attn__boxed_image *images;
    attn__category *categories;
    attn__object *objects;
    int64_t nimages, ncategories, nobjects;
    char *folder; /* the folder of the images' files; NULL: unknown */
    bool finished;
} attn__box_set;

attn_status attn__box_set_create(attn__box_set **set, attn_context *context);
void attn__box_set_destroy(attn__box_set *set); /* NULL is allowed */
/* Adds an image. The text is copied; `file` may be NULL. All three functions may return ATTN_ERROR_MEMORY. */
attn_status attn__box_set_add_image(attn__box_set *set, int64_t id, int64_t width, int64_t height, const char *file);
attn_status attn__box_set_add_category(attn__box_set *set, int64_t id, const char *name);
attn_status attn__box_set_add_object(attn__box_set *set, const attn__object *object);
/* Sorts the set and replaces the objects' ids of images and categories by indices. `name` is used in messages.
 * ATTN_ERROR_FORMAT: two images, categories or objects with the same id, or an object whose image or category is not in
 * the set. */
attn_status attn__box_set_finish(attn__box_set *set, const char *name);
/* Returns the index of an id in a finished set, or -1 if the set does not have the id. */
int64_t attn__box_set_image(const attn__box_set *set, int64_t id);
int64_t attn__box_set_category(const attn__box_set *set, int64_t id);

/* Clips a box to the image. Returns false if no area is left. */
bool attn__box_clip(attn__box *box, int64_t width, int64_t height);

/* COCO's 80 categories, in the order of their ids, which are 1 to 90 with holes. */
enum { ATTN__COCO_CATEGORIES = 80 };
typedef struct attn__coco_category {
    int32_t id;
    const char *name;
} attn__coco_category;
extern const attn__coco_category attn__coco_categories[ATTN__COCO_CATEGORIES];
const char *attn__coco_name(int64_t id); /* NULL: COCO has no such category */

#endif
