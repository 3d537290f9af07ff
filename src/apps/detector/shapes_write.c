/* SPDX-License-Identifier: MIT
 *
 * Writes a data set of drawn shapes.
 */
#include "apps/detector/boxes_files.h"
#include "apps/images/source.h"
#include "data/shapes.h"
#include "io/directory.h"

#include <stdio.h>

static attn_status add_objects(attn__box_set *set, const attn__shapes_image *image)
{
    attn_status status = ATTN_OK;
    for (int64_t k = 0; status == ATTN_OK && k < image->nobjects; k++) {
        attn__object object = image->objects[k];
        object.id = set->nobjects + 1;
        object.image = set->nimages;
        status = attn__box_set_add_object(set, &object);
    }
    return status;
}

static attn_status write_image(attn__box_set *set, const char *folder, attn__shapes_image *image)
{
    char name[32];
    snprintf(name, sizeof name, "%06lld.png", (long long)set->nimages);
    attn_status status = attn__box_set_add_image(set, set->nimages + 1, image->width, image->height, name);
    if (status == ATTN_OK)
        status = add_objects(set, image);
    char *path = status == ATTN_OK ? attn__join(set->context, folder, name) : NULL;
    if (status != ATTN_OK)
        return status;
    attn_image pixels = {image->width, image->height, 3, image->pixels};
    status = path ? attn_image_write(set->context, &pixels, path) : ATTN_ERROR_MEMORY;
    attn__free(set->context, path);
    return status;
}

static attn_status write_annotations(attn__box_set *set, const char *folder)
{
    attn_status status = ATTN_OK;
    for (int k = 0; status == ATTN_OK && k < ATTN__SHAPE_KINDS; k++)
        status = attn__box_set_add_category(set, k + 1, attn__shape_names[k]);
    if (status == ATTN_OK)
        status = attn__box_set_finish(set, folder);
    char *path = status == ATTN_OK ? attn__join(set->context, folder, "annotations.json") : NULL;
    if (status == ATTN_OK)
        status = path ? attn__coco_write(set, path) : ATTN_ERROR_MEMORY;
    attn__free(set->context, path);
    return status;
}

attn_status attn__shapes_write(attn_context *context, const char *folder, uint64_t seed, uint64_t first, int64_t n)
{
    attn__box_set *set = NULL;
    attn__shapes_image *image = attn__alloc(context, sizeof *image);
    attn_status status = image ? attn_directory_create(context, folder) : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK)
        status = attn__box_set_create(&set, context);
    for (int64_t i = 0; status == ATTN_OK && i < n; i++) {
        attn__shapes_draw(image, seed, first + (uint64_t)i);
        status = write_image(set, folder, image);
        if (status == ATTN_OK)
            status = attn__work(context, "images", i + 1, n);
    }
    if (status == ATTN_OK)
        status = write_annotations(set, folder);
    attn__box_set_destroy(set);
    attn__free(context, image);
    return status;
}
