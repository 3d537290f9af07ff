/* SPDX-License-Identifier: MIT
 *
 * Tests annotations and results of COCO, text files of YOLO, and the evaluation of boxes. The first byte selects which
 * of them is tested.
 */
#include "fuzz.h"
#include "apps/detector/boxes_files.h"
#include "data/average_precision.h"

/* Checks that a detection with the box of an object finds this object. */
static void judge_itself(attn_context *context, const attn__box_set *set)
{
    double measures[ATTN__AP_MEASURES];
    attn__detection *detections = calloc((size_t)set->nobjects + 1, sizeof *detections);
    for (int64_t i = 0; detections && i < set->nobjects; i++)
        detections[i] = (attn__detection){.box = set->objects[i].box,
                                          .score = set->objects[i].area,
                                          .image = set->objects[i].image,
                                          .category = set->objects[i].category};
    if (!detections || attn__average_precision(context, set, detections, set->nobjects, measures, NULL) != ATTN_OK)
        abort();
    for (int i = 0; i < ATTN__AP_MEASURES; i++)
        if (!(measures[i] >= -1 && measures[i] <= 1))
            abort();
    free(detections);
}

static attn__box_set *small_set(attn_context *context)
{
    attn__box_set *set;
    if (attn__box_set_create(&set, context) != ATTN_OK || attn__box_set_add_image(set, 1, 100, 100, NULL) != ATTN_OK ||
        attn__box_set_add_category(set, 2, "x") != ATTN_OK ||
        attn__box_set_add_object(set, &(attn__object){{0, 0, 10, 10}, 100, 1, 1, 2, false}) != ATTN_OK)
        abort();
    return set;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    attn_context *context = fuzz_context();
    int which = size > 0 ? data[0] % 3 : 0;
    attn__input text = {.context = context, .name = "fuzz", .data = data + (size > 0), .size = size - (size > 0)};
    attn__box_set *set = NULL;
    attn__detections found = {0};
    double measures[ATTN__AP_MEASURES];
    if (which == 0 && attn__coco_parse(&set, &text) == ATTN_OK)
        judge_itself(context, set);
    if (which > 0)
        set = small_set(context);
    if (which == 1 && attn__box_set_finish(set, "set") != ATTN_OK)
        abort();
    if (which == 1 && attn__coco_results_parse(&found, set, &text) == ATTN_OK &&
        attn__average_precision(context, set, found.of, found.n, measures, NULL) != ATTN_OK)
        abort();
    if (which == 2 && attn__yolo_parse(set, &text, 1, 100, 100) == ATTN_OK &&
        attn__box_set_finish(set, "set") == ATTN_OK)
        judge_itself(context, set);
    attn__detections_free(context, &found);
    attn__box_set_destroy(set);
    return fuzz_end(context);
}
