/* SPDX-License-Identifier: MIT */
#include "data/boxes.h"

#include "base/context.h"

#include <stdlib.h>
#include <string.h>

attn_status attn__box_set_create(attn__box_set **set, attn_context *context)
{
    *set = attn__alloc_zero(context, sizeof **set);
    if (!*set)
        return ATTN_ERROR_MEMORY;
    (*set)->context = context;
    return ATTN_OK;
}

void attn__box_set_destroy(attn__box_set *set)
{
    if (!set)
        return;
    for (int64_t i = 0; i < set->nimages; i++)
        attn__free(set->context, set->images[i].file);
    for (int64_t i = 0; i < set->ncategories; i++)
        attn__free(set->context, set->categories[i].name);
    attn__free(set->context, set->images);
    attn__free(set->context, set->categories);
    attn__free(set->context, set->objects);
    attn__free(set->context, set->folder);
    attn__free(set->context, set);
}

/* ---------------------------------------------------------------------------------------------- filling */

attn_status attn__box_set_add_image(attn__box_set *set, int64_t id, int64_t width, int64_t height, const char *file)
{
    attn__boxed_image *images = attn__grow(set->context, set->images, set->nimages, sizeof *images);
    char *own = NULL;
    if (!images)
        return ATTN_ERROR_MEMORY;
    set->images = images;
    if (file && !(own = attn__strdup(set->context, file)))
        return ATTN_ERROR_MEMORY;
    images[set->nimages++] = (attn__boxed_image){.id = id, .width = width, .height = height, .file = own};
    return ATTN_OK;
}

attn_status attn__box_set_add_category(attn__box_set *set, int64_t id, const char *name)
{
    attn__category *categories = attn__grow(set->context, set->categories, set->ncategories, sizeof *categories);
    if (!categories)
        return ATTN_ERROR_MEMORY;
    set->categories = categories;
    char *own = attn__strdup(set->context, name);
    if (!own)
        return ATTN_ERROR_MEMORY;
    categories[set->ncategories++] = (attn__category){.id = id, .name = own};
    return ATTN_OK;
}

attn_status attn__box_set_add_object(attn__box_set *set, const attn__object *object)
{
    attn__object *objects = attn__grow(set->context, set->objects, set->nobjects, sizeof *objects);
    if (!objects)
        return ATTN_ERROR_MEMORY;
    set->objects = objects;
    objects[set->nobjects++] = *object;
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------- ids */

static int compare_ids(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static int by_image_id(const void *a, const void *b)
{
    return compare_ids(((const attn__boxed_image *)a)->id, ((const attn__boxed_image *)b)->id);
}

static int by_category_id(const void *a, const void *b)
{
    return compare_ids(((const attn__category *)a)->id, ((const attn__category *)b)->id);
}

static int by_value(const void *a, const void *b)
{
    return compare_ids(*(const int64_t *)a, *(const int64_t *)b);
}

int64_t attn__box_set_image(const attn__box_set *set, int64_t id)
{
    attn__boxed_image key = {.id = id}, *found = NULL;
    if (set->nimages > 0)
        found = bsearch(&key, set->images, (size_t)set->nimages, sizeof key, by_image_id);
    return found ? found - set->images : -1;
}

int64_t attn__box_set_category(const attn__box_set *set, int64_t id)
{
    attn__category key = {.id = id}, *found = NULL;
    if (set->ncategories > 0)
        found = bsearch(&key, set->categories, (size_t)set->ncategories, sizeof key, by_category_id);
    return found ? found - set->categories : -1;
}

static attn_status fail_twice(const attn__box_set *set, const char *name, const char *things, int64_t id)
{
    return attn__fail(set->context, ATTN_ERROR_FORMAT, "%s: two %s have the id %lld", name, things, (long long)id);
}

/* `ids` is scratch memory with room for all ids. */
static attn_status check_object_ids(const attn__box_set *set, const char *name, int64_t *ids)
{
    for (int64_t i = 0; i < set->nobjects; i++)
        ids[i] = set->objects[i].id;
    qsort(ids, (size_t)set->nobjects, sizeof *ids, by_value);
    for (int64_t i = 1; i < set->nobjects; i++)
        if (ids[i] == ids[i - 1])
            return fail_twice(set, name, "annotations", ids[i]);
    return ATTN_OK;
}

static attn_status sort_images(attn__box_set *set, const char *name)
{
    if (set->nimages > 0)
        qsort(set->images, (size_t)set->nimages, sizeof *set->images, by_image_id);
    for (int64_t i = 1; i < set->nimages; i++)
        if (set->images[i].id == set->images[i - 1].id)
            return fail_twice(set, name, "images", set->images[i].id);
    return ATTN_OK;
}

static attn_status sort_categories(attn__box_set *set, const char *name)
{
    if (set->ncategories > 0)
        qsort(set->categories, (size_t)set->ncategories, sizeof *set->categories, by_category_id);
    for (int64_t i = 1; i < set->ncategories; i++)
        if (set->categories[i].id == set->categories[i - 1].id)
            return fail_twice(set, name, "categories", set->categories[i].id);
    return ATTN_OK;
}

static attn_status index_objects(attn__box_set *set, const char *name)
{
    int64_t n = 0;
    for (int64_t i = 0; i < set->nobjects; i++) {
        attn__object *object = set->objects + i;
        int64_t image = attn__box_set_image(set, object->image);
        int64_t category = attn__box_set_category(set, object->category);
        if (image < 0 && set->leaves_out)
            continue;
        if (image < 0)
            return attn__fail(set->context, ATTN_ERROR_FORMAT,
                              "%s: annotation %lld: there is no image with the id %lld", name, (long long)object->id,
                              (long long)object->image);
        if (category < 0)
            return attn__fail(set->context, ATTN_ERROR_FORMAT,
                              "%s: annotation %lld: there is no category with the id %lld", name, (long long)object->id,
                              (long long)object->category);
        object->image = image;
        object->category = category;
        set->objects[n++] = *object;
    }
    set->left_out = set->nobjects - n;
    set->nobjects = n;
    return ATTN_OK;
}

/* Sorts the objects by image. The objects of an image stay in the order in which they were added. */
static void sort_objects(attn__box_set *set, attn__object *sorted)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < set->nobjects; i++)
        set->images[set->objects[i].image].objects++;
    for (int64_t i = 0; i < set->nimages; i++) {
        set->images[i].first = sum;
        sum += set->images[i].objects;
        set->images[i].objects = 0;
    }
    for (int64_t i = 0; i < set->nobjects; i++) {
        attn__boxed_image *image = set->images + set->objects[i].image;
        sorted[image->first + image->objects++] = set->objects[i];
    }
}

attn_status attn__box_set_finish(attn__box_set *set, const char *name)
{
    attn_status status = sort_images(set, name);
    if (status == ATTN_OK)
        status = sort_categories(set, name);
    if (status == ATTN_OK)
        status = index_objects(set, name);
    attn__object *sorted = NULL;
    if (status == ATTN_OK && set->nobjects > 0) {
        sorted = attn__alloc(set->context, attn__size_mul((size_t)set->nobjects, sizeof *sorted));
        status = sorted ? check_object_ids(set, name, (int64_t *)sorted) : ATTN_ERROR_MEMORY;
    }
    if (status == ATTN_OK && set->nobjects > 0) {
        sort_objects(set, sorted);
        attn__object *unsorted = set->objects;
        set->objects = sorted;
        sorted = unsorted;
    }
    attn__free(set->context, sorted);
    set->finished = status == ATTN_OK;
    return status;
}

/* ----------------------------------------------------------------------------------------------- boxes */

bool attn__box_clip(attn__box *box, int64_t width, int64_t height)
{
    double left = box->x > 0 ? box->x : 0, top = box->y > 0 ? box->y : 0;
    double right = box->x + box->width, bottom = box->y + box->height;
    right = right < (double)width ? right : (double)width;
    bottom = bottom < (double)height ? bottom : (double)height;
    *box = (attn__box){left, top, right - left, bottom - top};
    return box->width > 0 && box->height > 0;
}
