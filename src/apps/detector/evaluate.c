/* SPDX-License-Identifier: MIT
 * COCO's evaluation for programs: reads annotations and results, and names what was measured. */
#include "attn/detect.h"

#include "apps/detector/boxes_files.h"
#include "base/context.h"
#include "data/average_precision.h"

#include <string.h>

_Static_assert(ATTN_COCO_MEASURES == (int)ATTN__AP_MEASURES, "detect.h has as many measures as average_precision.h");

const char *attn_coco_measure_name(int i)
{
    return i >= 0 && i < ATTN_COCO_MEASURES ? attn__ap_measures[i].name : NULL;
}

void attn_coco_result_free(attn_context *context, attn_coco_result *result)
{
    for (int64_t i = 0; i < result->n; i++)
        attn__free(context, (void *)result->categories[i].name);
    attn__free(context, result->categories);
    *result = (attn_coco_result){0};
}

/* Replaces ids by indices in the set. Detections of categories that the set lacks are left out, as in a file. */
static attn_status find_all(attn__detections *found, const attn__box_set *set, const attn_coco_detection *detections,
                            int64_t n)
{
    found->of = attn__alloc(set->context, attn__size_mul((size_t)n + 1, sizeof *found->of));
    if (!found->of)
        return ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        const attn_coco_detection *d = &detections[i];
        int64_t image = attn__box_set_image(set, d->image), category = attn__box_set_category(set, d->category);
        if (image < 0)
            return attn__fail(set->context, ATTN_ERROR_ARGUMENT,
                              "detection %lld is of image %lld, which is not in the annotations", (long long)i,
                              (long long)d->image);
        if (category < 0) {
            found->unknown = found->left_out++ ? found->unknown : d->category;
            continue;
        }
        found->of[found->n++] = (attn__detection){
            .box = {d->left, d->top, d->width, d->height}, .score = d->score, .image = image, .category = category};
    }
    return ATTN_OK;
}

static attn_status name_categories(attn_coco_result *result, const attn__box_set *set, const double *ap)
{
    result->categories =
        attn__alloc_zero(set->context, attn__size_mul((size_t)set->ncategories + 1, sizeof *result->categories));
    if (!result->categories)
        return ATTN_ERROR_MEMORY;
    for (int64_t k = 0; k < set->ncategories; k++) {
        char *name = attn__strdup(set->context, set->categories[k].name);
        if (!name)
            return ATTN_ERROR_MEMORY;
        result->categories[result->n++] = (attn_coco_category){.id = set->categories[k].id, .name = name, .ap = ap[k]};
    }
    for (int64_t i = 0; i < set->nobjects; i++)
        result->categories[set->objects[i].category].objects += !set->objects[i].crowd;
    return ATTN_OK;
}

static attn_status evaluate(attn_coco_result *result, const attn__box_set *set, const attn__detections *found)
{
    attn_context *context = set->context;
    double *ap = attn__alloc(context, attn__size_mul((size_t)set->ncategories + 1, sizeof *ap));
    attn_status status =
        ap ? attn__average_precision(context, set, found->of, found->n, result->measures, ap) : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK) {
        result->images = set->nimages;
        result->objects = set->nobjects;
        result->detections = found->n;
        result->left_out = found->left_out;
        status = name_categories(result, set, ap);
    }
    attn__free(context, ap);
    return status;
}

attn_status attn_coco_evaluate(attn_coco_result *result, attn_context *context, const char *annotations,
                               const char *results, const attn_coco_detection *detections, int64_t n)
{
    ATTN__CALL(context);
    attn__box_set *set = NULL;
    attn__detections found = {0};
    *result = (attn_coco_result){0};
    if (n < 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "n is %lld; the number of detections must not be negative",
                          (long long)n);
    if (results && (n > 0 || detections))
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "a file of results and an array of detections are both given; give one of them");
    if (!results && !detections && n > 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "n is %lld, but the array of detections is NULL", (long long)n);
    attn_status status = attn__boxes_read(&set, context, annotations, "val", NULL);
    if (status == ATTN_OK)
        status = results ? attn__coco_results_read(&found, set, results) : find_all(&found, set, detections, n);
    if (status == ATTN_OK)
        status = evaluate(result, set, &found);
    attn__detections_free(context, &found);
    attn__box_set_destroy(set);
    if (status != ATTN_OK)
        attn_coco_result_free(context, result);
    return status;
}
