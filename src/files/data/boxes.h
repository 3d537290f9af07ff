/* SPDX-License-Identifier: MIT
 *
 * boxes.h - images with labelled boxes, and the detections of a detector.
 *
 * A set is filled in any order and finished once. After that it is not changed, and any number of threads may read it.
 * */
#ifndef ATTN_DATA_BOXES_H
#define ATTN_DATA_BOXES_H

#include "attn/attn.h"

/* A box in pixels. (x, y) is its upper left corner. */
typedef struct attn__box {
    double x, y, width, height;
} attn__box;

typedef struct attn__object {
    attn__box box;
    /* area of the segmentation, or of the box if there is none; it decides whether the object counts as small,
     * medium or large */
    double area;
    int64_t id;
    int64_t image;    /* index of the object's image in the set; until the set is finished: the id of the image */
    int64_t category; /* index of the object's category in the set; until the set is finished: the id of the category */
    bool crowd;       /* true: the box contains a crowd of objects that were not labelled individually */
} attn__object;

typedef struct attn__detection {
    attn__box box;
    double score;
    int64_t image, category; /* image and category of a detection: indices in a set or ids, depending on the function */
} attn__detection;

typedef struct attn__boxed_image {
    int64_t id, width, height;
    char *file; /* the image's path in the annotations, relative to a folder; NULL: not given */
    /* range of the image's objects in the set; they are in the order in which they were added */
    int64_t first, objects;
} attn__boxed_image;

typedef struct attn__category {
    int64_t id;
    char *name;
} attn__category;

/* Images and categories are sorted by id. Ids may be any integers. An image or category is referred to by its index
 * in this order. Objects are sorted by image. */
typedef struct attn__box_set {
    attn_context *context;
    attn__boxed_image *images;
    attn__category *categories;
    attn__object *objects;
    int64_t nimages, ncategories, nobjects;
    char *folder; /* folder that contains the image files; NULL: unknown */
    /* true: finishing leaves out objects whose image is not in the set, and counts them in left_out; false: such an
     * object is an error */
    bool leaves_out;
    int64_t left_out;
    bool finished;
} attn__box_set;

attn_status attn__box_set_create(attn__box_set **set, attn_context *context);
void attn__box_set_destroy(attn__box_set *set); /* NULL is allowed */
/* Texts are copied, and `file` may be NULL. The functions may return ATTN_ERROR_MEMORY. */
attn_status attn__box_set_add_image(attn__box_set *set, int64_t id, int64_t width, int64_t height, const char *file);
attn_status attn__box_set_add_category(attn__box_set *set, int64_t id, const char *name);
attn_status attn__box_set_add_object(attn__box_set *set, const attn__object *object);
/* Sorts the set and replaces the objects' ids of images and categories by indices. `name` is used in messages.
 * ATTN_ERROR_FORMAT: two images, categories or objects have the same id, or the set lacks the category of an object, or
 * its image (see leaves_out). */
attn_status attn__box_set_finish(attn__box_set *set, const char *name);
/* Returns the index of an id in a finished set, or -1 if the set does not have the id. */
int64_t attn__box_set_image(const attn__box_set *set, int64_t id);
int64_t attn__box_set_category(const attn__box_set *set, int64_t id);

/* Returns false if no area is left. */
bool attn__box_clip(attn__box *box, int64_t width, int64_t height);

/* number of COCO's categories; their ids are 1 to 90, but not all of these ids are used */
enum { ATTN__COCO_CATEGORIES = 80 };
typedef struct attn__coco_category {
    int32_t id;
    const char *name;
} attn__coco_category;
extern const attn__coco_category attn__coco_categories[ATTN__COCO_CATEGORIES];
const char *attn__coco_name(int64_t id); /* returns NULL if COCO has no category with this id */

#endif
