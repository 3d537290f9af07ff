/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests labelled boxes. COCO's evaluation is compared with pycocotools. Files of COCO and YOLO are read, and invalid
 * files are refused.
 */
#include "support/fixture.h"
#include "support/faults.h"
#include "support/scratch.h"

#include "apps/detector/boxes_files.h"
#include "attn/image.h"
#include "base/hash.h"
#include "data/average_precision.h"
#include "data/shapes.h"
#include "io/directory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------- evaluation */

/* The expected numbers come from pycocotools 2.0.11 (tests/parity/detections.py --fixture). */
static const struct {
    uint64_t seed;
    int64_t objects, detections;
    double measures[ATTN__AP_MEASURES], by_category[4];
} cases[] = {
    {1,
     34,
     186,
     {0.14039840888850788, 0.1881338133813381, 0.16998199819981996, 0.29119754832626116, 0.14439883117231583, 0.0,
      0.14333333333333328, 0.2870370370370369, 0.2870370370370369, 0.4222222222222222, 0.34092592592592585, 0.0},
     {0.06907476461931907, 0.19304455445544555, 0.15907590759075907, -1.0}},
    {2,
     37,
     224,
     {0.20015766125558143, 0.30620781535167096, 0.21443001164737402, 0.16544711614018542, 0.3830177082899378, 0.0,
      0.21805555555555553, 0.4486111111111111, 0.4597222222222222, 0.31111111111111106, 0.6322222222222224, 0.0},
     {0.18766218167813206, 0.27273455917020273, 0.14007624291840948, -1.0}},
    {3,
     34,
     199,
     {0.13705263018309022, 0.18126030035953788, 0.14573445439782073, 0.06732673267326732, 0.16542896594034268,
      0.26798679867986797, 0.22264550264550265, 0.264973544973545, 0.30571428571428566, 0.2, 0.27989417989417986,
      0.5333333333333333},
     {0.1850962843886546, 0.020792079207920793, 0.20526952695269526, -1.0}},
};

enum { IMAGES = 10, MOST_DETECTIONS = 400 };

static int64_t below(uint64_t *state, uint64_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((*state >> 33) % n);
}

static attn__box random_box(uint64_t *state, double offset)
{
    attn__box b;
    b.x = (double)below(state, 8) * 16 - offset;
    b.y = (double)below(state, 8) * 16 - offset;
    b.width = 8 + (double)below(state, 12) * 12;
    b.height = 8 + (double)below(state, 12) * 12;
    return b;
}

static int64_t image_id(int64_t i)
{
    return i * 37 % 101 - 20;
}

static void random_object(attn__box_set *set, uint64_t *state, int64_t image)
{
    attn__object object = {.box = random_box(state, 8), .id = set->nobjects + 1, .image = image};
    object.category = 5 + 3 * below(state, 3);
    object.area = object.box.width * object.box.height * (double)(1 + below(state, 4)) / 4;
    object.crowd = below(state, 7) == 0;
    assert_ok(set->context, attn__box_set_add_object(set, &object));
}

/* Returns a detection with the ids of an image and a category. Its box is near an object from number `first` on, or
 * anywhere. */
static attn__detection random_detection(const attn__box_set *set, uint64_t *state, int64_t first)
{
    attn__detection d = {.score = 0};
    if (set->nobjects > first && below(state, 3)) {
        const attn__object *near_to = set->objects + first + below(state, (uint64_t)(set->nobjects - first));
        d.box = near_to->box;
        d.category = near_to->category;
        d.box.x += (double)below(state, 9) - 4;
        d.box.y += (double)below(state, 9) - 4;
        d.box.width += (double)below(state, 5);
    } else {
        d.category = 5 + 3 * below(state, 4);
        d.box = random_box(state, 0);
    }
    return d;
}

/* Makes the same case as fixture_case in tests/parity/detections.py, from the same random numbers. */
static int64_t make_case(attn__box_set *set, uint64_t state, attn__detection *detections)
{
    static const char *const names[] = {"0", "1", "2", "3"};
    int64_t n = 0;
    for (int64_t i = 0; i < IMAGES; i++)
        assert_ok(set->context, attn__box_set_add_image(set, image_id(i), 0, 0, NULL));
    for (int64_t k = 0; k < 4; k++)
        assert_ok(set->context, attn__box_set_add_category(set, 5 + 3 * k, names[k]));
    for (int64_t i = 0; i < IMAGES; i++) {
        int64_t first = set->nobjects;
        for (int64_t k = below(&state, 8); k > 0; k--)
            random_object(set, &state, image_id(i));
        for (int64_t k = i == 3 ? 0 : i == 5 ? 130 : below(&state, 20); k > 0; k--) {
            attn__detection d = random_detection(set, &state, first);
            d.image = image_id(i);
            d.category = i == 5 ? 5 : d.category;
            d.score = (double)below(&state, 20) / 20;
            detections[n++] = d;
        }
    }
    assert_ok(set->context, attn__box_set_finish(set, "case"));
    for (int64_t i = 0; i < n; i++) {
        detections[i].image = attn__box_set_image(set, detections[i].image);
        detections[i].category = attn__box_set_category(set, detections[i].category);
    }
    return n;
}

static void measures_are_those_of_pycocotools(void **state)
{
    attn_context *c = *state;
    static attn__detection detections[MOST_DETECTIONS];
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        attn__box_set *set;
        double measures[ATTN__AP_MEASURES], by_category[4];
        assert_ok(c, attn__box_set_create(&set, c));
        assert_int_equal(make_case(set, cases[k].seed, detections), cases[k].detections);
        assert_int_equal(set->nobjects, cases[k].objects);
        assert_ok(c, attn__average_precision(c, set, detections, cases[k].detections, measures, by_category));
        for (int i = 0; i < ATTN__AP_MEASURES; i++)
            assert_true(fabs(measures[i] - cases[k].measures[i]) < 1e-12);
        for (int i = 0; i < 4; i++)
            assert_true(fabs(by_category[i] - cases[k].by_category[i]) < 1e-12);
        attn__box_set_destroy(set);
    }
}

/* Makes a set with one image, one category and one object of 10 x 10 pixels. The object has the given id. */
static attn__box_set *one_object(attn_context *c, int64_t id)
{
    attn__box_set *set;
    attn__object object = {.box = {0, 0, 10, 10}, .area = 100, .id = id, .image = 7, .category = 3};
    assert_ok(c, attn__box_set_create(&set, c));
    assert_ok(c, attn__box_set_add_image(set, 7, 20, 20, NULL));
    assert_ok(c, attn__box_set_add_category(set, 3, "thing"));
    assert_ok(c, attn__box_set_add_object(set, &object));
    assert_ok(c, attn__box_set_finish(set, "one"));
    return set;
}

static void detections_are_checked(void **state)
{
    attn_context *c = *state;
    attn__box_set *set = one_object(c, 1);
    double measures[ATTN__AP_MEASURES];
    attn__detection d = {.box = {0, 0, 10, 9}, .score = 0.5};
    assert_ok(c, attn__average_precision(c, set, &d, 1, measures, NULL));
    /* With an overlap of 0.9, the object is found at the thresholds 0.50 to 0.90. */
    assert_float_equal(measures[ATTN__AP], 0.9, 1e-12);
    assert_float_equal(measures[4], -1, 0);
    assert_ok(c, attn__average_precision(c, set, NULL, 0, measures, NULL));
    assert_float_equal(measures[ATTN__AP], 0, 0);
    d.score = NAN;
    assert_refused(c, attn__average_precision(c, set, &d, 1, measures, NULL), ATTN_ERROR_ARGUMENT,
                   "detection 0: its score is not a number");
    d = (attn__detection){.box = {0, INFINITY, 10, 9}};
    assert_refused(c, attn__average_precision(c, set, &d, 1, measures, NULL), ATTN_ERROR_ARGUMENT,
                   "detection 0: its box is not finite");
    d = (attn__detection){.category = 1};
    assert_refused(c, attn__average_precision(c, set, &d, 1, measures, NULL), ATTN_ERROR_ARGUMENT,
                   "detection 0: its category is 1; it must be at least 0 and less than 1, the number of categories");
    attn__box_set_destroy(set);
    set = one_object(c, 0); /* An object with id 0 is never found, as in pycocotools. */
    d = (attn__detection){.box = {0, 0, 10, 10}, .score = 1};
    assert_ok(c, attn__average_precision(c, set, &d, 1, measures, NULL));
    assert_float_equal(measures[ATTN__AP50], 0, 0);
    attn__box_set_destroy(set);
}

/* ----------------------------------------------------------------------------------------------- COCO */

#define IMAGE_LIST      "\"images\": [{\"id\": -5, \"file_name\": \"a.png\", \"width\": 9, \"height\": 8}, {\"id\": 3}]"
#define CATEGORY_LIST   "\"categories\": [{\"id\": 90, \"name\": \"toothbrush\"}, {\"id\": 2, \"name\": \"bicycle\"}]"
#define ANNOTATION(end) "{\"id\": 4, \"image_id\": 3, \"category_id\": 90, \"bbox\": [1, 2.5, 3, 4]" end "}"
#define ANNOTATIONS(of) "{" CATEGORY_LIST ", \"info\": {\"year\": 2017}, \"annotations\": [" of "], " IMAGE_LIST "}"

static attn_status parse(attn_context *c, attn__box_set **set, const char *text)
{
    return attn__coco_parse(
        set, &(attn__input){.context = c, .name = "f", .data = (const uint8_t *)text, .size = strlen(text)});
}

static void annotations_are_read(void **state)
{
    attn_context *c = *state;
    attn__box_set *set;
    const char *text =
        ANNOTATIONS(ANNOTATION(", \"area\": 7, \"iscrowd\": 1, \"segmentation\": {\"size\": [9, 8], "
                               "\"counts\": [0, 72]}") ", {\"id\": 1, \"image_id\": -5, \"category_id\": "
                                                       "2, \"segmentation\": [[1, 2, 3, 4, 5, 6]], "
                                                       "\"bbox\": [0, 0, 2, 3]}");
    assert_ok(c, parse(c, &set, text));
    assert_int_equal(set->nimages, 2);
    assert_int_equal(set->images[0].id, -5);
    assert_string_equal(set->images[0].file, "a.png");
    assert_null(set->images[1].file);
    assert_string_equal(set->categories[0].name, "bicycle");
    assert_int_equal(set->categories[1].id, 90);
    assert_int_equal(set->nobjects, 2);
    const attn__object *first = set->objects + set->images[0].first, *second = set->objects + set->images[1].first;
    assert_float_equal(first->area, 6, 0);
    assert_int_equal(first->category, 0);
    assert_false(first->crowd);
    assert_int_equal(second->image, 1);
    assert_int_equal(second->category, 1);
    assert_true(second->crowd);
    assert_float_equal(second->area, 7, 0);
    assert_float_equal(second->box.y, 2.5, 0);
    attn__box_set_destroy(set);
}

/* What other tools write: no sizes, images that are gone, reals for integers, Windows' paths, numbers above 64 bits. */
static void annotations_of_other_tools_are_read(void **state)
{
    attn_context *c = *state;
    attn__box_set *set;
    assert_ok(
        c,
        parse(
            c, &set,
            "{\"info\": {\"n\": 100000000000000000000}, \"categories\": [{\"id\": 1.0, \"name\": \"a\"}], \"images\": ["
            "{\"id\": 3.0, \"width\": 0, \"height\": 0, \"file_name\": \"cam\\\\a.png\"}, "
            "{\"id\": 4, \"file_name\": \"x/b\\\\c.png\"}], \"annotations\": ["
            "{\"id\": 1, \"image_id\": 9, \"category_id\": 1, \"bbox\": [0, 0, 1, 1]}, "
            "{\"id\": 2.0, \"image_id\": 3, \"category_id\": 1, \"bbox\": [0, 0, 1, 1], \"iscrowd\": 0.0, "
            "\"hash\": 18446744073709551617}, "
            "{\"id\": 5, \"image_id\": 4, \"category_id\": 1, \"bbox\": [0, 0, 1, 1], \"iscrowd\": 1.0}]}"));
    assert_int_equal(set->left_out, 1);
    assert_int_equal(set->nobjects, 2);
    assert_string_equal(set->images[0].file, "cam/a.png");
    assert_int_equal(set->images[0].width, 0);
    assert_string_equal(set->images[1].file, "x/b\\c.png");
    assert_int_equal(set->objects[0].id, 2);
    assert_false(set->objects[0].crowd);
    assert_true(set->objects[1].crowd);
    attn__box_set_destroy(set);
}

static const struct {
    const char *text, *error;
} refused[] = {
    {"", "f: byte 0: the file is empty"},
    {"[]", "f: found a list, as COCO's results are"},
    {"7", "f: byte 0: expected an object, { ... }, or a list, [ ... ]"},
    {"{\"images\": [], \"annotations\": []}", "f: not COCO's annotations: \"categories\" is missing"},
    {"{", "f: byte 1: expected a name in quotes"},
    {"{\"images\": 3}", "f: \"images\" must be a list, not an integer"},
    {"{\"images\": [], \"images\": []}", "f: \"images\" is given twice"},
    {"{\"images\": [", "f: byte 12: images: "},
    {"{\"images\": [{\"id\": 1} {\"id\": 2}]}", "f: byte 23: images: end of file expected near '{'"},
    {"{\"images\": [] 3}", "f: byte 14: images: expected ',' or '}', found '3'"},
    {"{\"images\": []} x", "f: byte 15: found text behind the end of the JSON"},
    {"{\"images\": [[[[[[[[[[[[[[[[[[[[1", "nested too deep"},
    {"{\"images\": [{\"id\": 1, \"width\": -1}]}", "f: images[0]: width is -1; it must not be negative"},
    {"{\"images\": [{\"id\": 1, \"file_name\": 0}]}", "f: images[0]: file_name must be text, not an integer"},
    {"{\"categories\": [{\"id\": 1}]}", "f: categories[0]: name is missing"},
    {"{\"images\": [{\"id\": 1}, {\"id\": 1}], \"annotations\": [], \"categories\": []}",
     "f: two images have the id 1"},
    {ANNOTATIONS("3"), "f: annotations[0]: must be an object, not an integer"},
    {ANNOTATIONS("{\"id\": \"4\"}"), "f: annotations[0]: id must be an integer, not text"},
    {ANNOTATIONS("{\"id\": 4, \"image_id\": 3.5}"),
     "f: annotations[0]: image_id must be an integer, not a number that is not a 64-bit integer"},
    {ANNOTATIONS(ANNOTATION(", \"iscrowd\": 2")), "f: annotations[0]: iscrowd is 2; it must be 0 or 1"},
    {ANNOTATIONS(ANNOTATION(", \"area\": NaN")), "invalid token near 'NaN'"},
    {ANNOTATIONS(ANNOTATION(", \"id\": 5")), "duplicate object key"},
    {ANNOTATIONS(ANNOTATION("") ", " ANNOTATION("")), "f: two annotations have the id 4"},
    {ANNOTATIONS("{\"id\": 1, \"image_id\": 3, \"category_id\": 1, \"bbox\": [0, 0, 1, 1]}"),
     "f: annotation 1: there is no category with the id 1"},
    {ANNOTATIONS("{\"id\": 1, \"image_id\": 3, \"category_id\": 1, \"bbox\": [0, 0, 1]}"),
     "f: annotations[0]: bbox has 3 elements; expected 4 numbers"},
    {ANNOTATIONS("{\"id\": 1, \"image_id\": 3, \"category_id\": 1, \"caption\": \"a dog\"}"),
     "f: annotations[0]: bbox is missing"},
    {ANNOTATIONS("{\"id\": 100000000000000000000}"),
     "f: annotations[0]: id must be an integer, not a number that is not"},
};

static void annotations_that_are_wrong_are_refused(void **state)
{
    attn_context *c = *state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        attn__box_set *set;
        assert_refused(c, parse(c, &set, refused[i].text), ATTN_ERROR_FORMAT, refused[i].error);
        assert_null(set);
    }
}

#define RESULT(image, category, score)                                                                                 \
    "{\"image_id\": " image ", \"category_id\": " category ", \"bbox\": [0, 0, 10, 10], \"score\": " score "}"

static void results_are_read(void **state)
{
    static const struct {
        const char *text, *error;
    } bad[] = {
        {"{}", ""},
        {"{\"a\": 1}", "f: found an object, as COCO's annotations are"},
        {"[" RESULT("7", "3", "NaN") "]", "f: byte 71: invalid token near 'NaN'"},
        {"[" RESULT("7", "3", "\"1\"") "]", "f: results[0]: score must be a number, not text"},
        {"[" RESULT("7", "3", "1") ", " RESULT("8", "3", "1") "]",
         "f: results[1]: image_id 8: the annotations have no such image"},
        {"[1]", "f: results[0]: must be an object, not an integer"},
    };
    attn_context *c = *state;
    attn__box_set *set = one_object(c, 1);
    attn__detections found;
    for (size_t i = 1; i < sizeof bad / sizeof *bad; i++) {
        attn__input text = {
            .context = c, .name = "f", .data = (const uint8_t *)bad[i].text, .size = strlen(bad[i].text)};
        assert_refused(c, attn__coco_results_parse(&found, set, &text), ATTN_ERROR_FORMAT, bad[i].error);
    }
    const char *good = "[" RESULT("7", "44", "1") ", " RESULT("7", "3", "0.25") "]";
    assert_ok(c, attn__coco_results_parse(
                     &found, set,
                     &(attn__input){.context = c, .name = "f", .data = (const uint8_t *)good, .size = strlen(good)}));
    assert_int_equal(found.n, 1);
    assert_int_equal(found.left_out, 1);
    assert_int_equal(found.unknown, 44);
    assert_float_equal(found.of[0].score, 0.25, 0);
    attn__detections_free(c, &found);
    attn__box_set_destroy(set);
}

static void what_is_written_is_read_again(void **state)
{
    attn_context *c = *state;
    char folder[64], path[128];
    scratch_open(folder);
    attn__box_set *set = one_object(c, 1), *again;
    attn__detections found;
    attn__detection d = {.box = {0.1, 0, 1e-3, 10}, .score = 1.0 / 3, .image = 7, .category = 3};
    snprintf(path, sizeof path, "%s/annotations.json", folder);
    assert_ok(c, attn__coco_write(set, path));
    assert_ok(c, attn__boxes_read(&again, c, folder, "train", NULL));
    assert_string_equal(again->folder, folder);
    assert_memory_equal(&again->objects->box, &set->objects->box, sizeof set->objects->box);
    assert_float_equal(again->objects->area, 100, 0);
    assert_int_equal(again->objects->id, 1);
    assert_int_equal(again->images[0].width, 20);
    assert_string_equal(again->categories[0].name, "thing");
    assert_ok(c, attn__coco_results_write(c, path, &d, 1));
    assert_ok(c, attn__coco_results_read(&found, set, path));
    d.image = d.category = 0;
    assert_memory_equal(found.of, &d, sizeof d);
    attn__detections_free(c, &found);
    attn__box_set_destroy(again);
    attn__box_set_destroy(set);
    assert_int_equal(scratch_close(folder), 1);
}

static void boxes_are_clipped(void **state)
{
    (void)state;
    attn__box inside = {1, 2, 3, 4}, over = {-2, 6, 5, 9}, outside = {20, 0, 3, 3}, flat = {1, 1, 0, 3};
    assert_true(attn__box_clip(&inside, 10, 10));
    assert_memory_equal(&inside, &((attn__box){1, 2, 3, 4}), sizeof inside);
    assert_true(attn__box_clip(&over, 10, 10));
    assert_memory_equal(&over, &((attn__box){0, 6, 3, 4}), sizeof over);
    assert_false(attn__box_clip(&outside, 10, 10));
    assert_false(attn__box_clip(&flat, 10, 10));
    assert_string_equal(attn__coco_name(90), "toothbrush");
    assert_string_equal(attn__coco_name(13), "stop sign");
    assert_null(attn__coco_name(12));
}

static attn_status read_and_judge(attn_context *c, void *user)
{
    attn__box_set *set = NULL;
    double measures[ATTN__AP_MEASURES];
    attn__detection d = {.box = {1, 2.5, 3, 4}, .score = 1, .image = 1, .category = 1};
    (void)user;
    attn_status status = parse(c, &set, ANNOTATIONS(ANNOTATION("")));
    if (status == ATTN_OK)
        status = attn__average_precision(c, set, &d, 1, measures, NULL);
    attn__box_set_destroy(set);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_true(faults_try_all(read_and_judge, NULL) > 10);
}

/* ----------------------------------------------------------------------------------------------- YOLO */

static void put_file(attn_context *c, const char *folder, const char *name, const char *text)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_ok(c, attn_file_write(c, path, text, strlen(text)));
}

static attn_status read_folder(attn_context *c, void *user)
{
    attn__box_set *set = NULL;
    attn_status status = attn__boxes_read(&set, c, user, "train", NULL);
    attn__box_set_destroy(set);
    return status;
}

static void folders_of_yolo_are_read(void **state)
{
    attn_context *c = *state;
    char base[64], images[96], labels[96], path[160];
    unsigned char pixels[4 * 8] = {0};
    attn__box_set *set;
    scratch_open(base);
    snprintf(images, sizeof images, "%s/images", base);
    snprintf(labels, sizeof labels, "%s/labels", base);
    assert_ok(c, attn_directory_create(c, images));
    snprintf(path, sizeof path, "%s/b.png", images);
    assert_ok(c, attn_image_write(c, &(attn_image){8, 4, 1, pixels}, path));
    assert_refused(c, attn__boxes_read(&set, c, base, "train", NULL), ATTN_ERROR_NOT_FOUND,
                   "the folder has no boxes: neither annotations.json");
    assert_ok(c, attn_directory_create(c, labels));
    snprintf(path, sizeof path, "%s/a.png", images);
    assert_ok(c, attn_image_write(c, &(attn_image){8, 4, 1, pixels}, path));
    put_file(c, labels, "b.txt", "1 0.5 0.5 0.25 0.5\n\n0 0.9 0.5 0.4 1\r\n");
    assert_ok(c, attn__boxes_read(&set, c, base, "train", NULL));
    assert_string_equal(set->folder, images);
    assert_string_equal(set->images[1].file, "b.png");
    assert_int_equal(set->images[0].objects, 0);
    assert_int_equal(set->images[1].objects, 2);
    assert_memory_equal(&set->objects[0].box, &((attn__box){3, 1, 2, 2}), sizeof(attn__box));
    /* The box in the file reaches beyond the right edge of the image. Cutting it must not change its x. */
    assert_float_equal(set->objects[1].box.x, 5.6, 1e-12);
    assert_string_equal(set->categories[1].name, "1");
    attn__box_set_destroy(set);
    put_file(c, base, "classes.txt", "cat\ndog\n");
    progress_told told = {.things = "images"};
    attn_context_set_progress(c, next_progress, &told);
    assert_ok(c, attn__boxes_read(&set, c, images, "train", NULL));
    attn_context_set_progress(c, NULL, NULL);
    assert_int_equal(told.done, 2);
    assert_string_equal(set->categories[1].name, "dog");
    attn__box_set_destroy(set);
    assert_true(faults_try_all(read_folder, images) > 20);
    static const char *const bad[][2] = {
        {"1 0.5 0.5 0.25",
         "b.txt:1: \"1 0.5 0.5 0.25\": the line must be \"class cx cy width height\", or a class and the points of a polygon"},
        {"0 1 1 1 1\n0 200 100 20 20", "b.txt:2: \"0 200 100 20 20\": the box must lie in the image"},
        {"0.5 0 0 1 1", "b.txt:1: \"0.5 0 0 1 1\": the class must be an integer from 0"},
        {"0 nan 0 1 1", "b.txt:1: \"0 nan 0 1 1\": the line must be \"class"},
        {"0 0 0 1 1\n2 0.5 0.5 1 1",
         "b.txt:2: \"2 0.5 0.5 1 1\": the class must be less than 2, the number of classes"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_file(c, labels, "b.txt", bad[i][0]);
        assert_refused(c, attn__boxes_read(&set, c, base, "train", NULL), ATTN_ERROR_FORMAT, bad[i][1]);
    }
    assert_int_equal(scratch_close(labels), 1);
    assert_int_equal(scratch_close(images), 2);
    assert_int_equal(scratch_close(base), 1);
}

/* Layouts of data sets: files as "name", text (NULL: a picture), the path to read and its part, and what is found. */
static void layouts_of_data_sets_are_read(void **state)
{
    static const struct {
        const char *files[6][2];
        const char *path, *part, *names, *error;
        int images, objects;
    } layouts[] = {
        {{{"images/a.png"}, {"labels/a.txt", "2 .5 .5 1 1"}, {"classes.txt", "cat\n\ndog\n\n"}},
         "",
         "train",
         "cat,1,dog",
         NULL,
         1,
         1},
        {{{"images/a.png"},
          {"labels/a.txt", "0 -0.0001 .5 .1 .1\n0 .1 .2 .3 .2 .3 .6\n"},
          {"data.yaml", "names: [007]"}},
         "",
         "train",
         "007",
         NULL,
         1,
         2},
        {{{"images/a.png"}, {"labels/a.txt", "0 .5 .5 .1 .1"}, {"data.yaml", "x: &n [1.50, yes]\nnames: *n\n"}},
         "images",
         "train",
         "1.50,yes",
         NULL,
         1,
         1},
        {{{"images/a.png"}, {"labels/a.txt", ""}, {"data.yaml", "a: &n {names: *n}"}},
         "",
         "train",
         NULL,
         "the anchor of this alias is missing, or does not end before",
         0,
         0},
        {{{"images/a.png"}, {"labels/b.txt", "0 .5 .5 1 1"}},
         "",
         "train",
         NULL,
         "named like any of the 1 images of",
         0,
         0},
        /* a folder above is called images */
        {{{"images/set/a.png"}, {"images/set/labels/a.txt", "0 .5 .5 1 1"}}, "images/set", "train", "0", NULL, 1, 1},
        {{{"images/set/images/a.png"}, {"images/set/labels/a.txt", "0 .5 .5 1 1"}},
         "images/set",
         "train",
         "0",
         NULL,
         1,
         1},
        /* Roboflow's exports: the names are one folder higher, the paths in data.yaml are wrong by one level */
        {{{"train/images/a.png"},
          {"train/labels/a.txt", "1 .5 .5 1 1"},
          {"data.yaml", "train: ../train/images\nval: ../valid/images\nnames: [p, q]"},
          {"valid/images/b.png"},
          {"valid/labels/b.txt", "0 .5 .5 1 1\n1 .5 .5 1 1"}},
         "train",
         "train",
         "p,q",
         NULL,
         1,
         1},
        {{{"train/images/a.png"},
          {"train/labels/a.txt", "1 .5 .5 1 1"},
          {"data.yaml", "train: ../train/images\nval: ../valid/images\nnames: [p, q]"},
          {"valid/images/b.png"},
          {"valid/labels/b.txt", "0 .5 .5 1 1\n1 .5 .5 1 1"}},
         "",
         "val",
         "p,q",
         NULL,
         1,
         2},
        {{{"train/images/a.png"},
          {"train/labels/a.txt", "1 .5 .5 1 1"},
          {"data.yaml", "train: ../train/images\nval: ../valid/images\nnames: [p, q]"},
          {"valid/images/b.png"},
          {"valid/labels/b.txt", "0 .5 .5 1 1\n1 .5 .5 1 1"}},
         "data.yaml",
         "val",
         "p,q",
         NULL,
         1,
         2},
        {{{"pics/images/a.png"},
          {"pics/labels/a.txt", "0 .5 .5 1 1"},
          {"data.yaml", "names: [other]\ntrain: elsewhere"}},
         "pics",
         "train",
         "0",
         NULL,
         1,
         1},
        {{{"d/images/t/a.png"},
          {"d/labels/t/a.txt", "0 .5 .5 1 1"},
          {"c.yaml", "path: d\ntrain: images/t\nval: images/t\nnames: {0: z}"}},
         "c.yaml",
         "train",
         "z",
         NULL,
         1,
         1},
        /* Ultralytics: the folder has a data.yaml that names its parts, whose path leaves the folder */
        {{{"d/images/t/a.png"},
          {"d/labels/t/a.txt", "0 .5 .5 1 1"},
          {"d/data.yaml", "path: ../d\ntrain: images/t\nval: images/t\nnames: {0: z}"}},
         "d",
         "val",
         "z",
         NULL,
         1,
         1},
        {{{"d/images/t/a.png"},
          {"d/labels/t/a.txt", "0 .5 .5 1 1"},
          {"d/data.yaml", "path: ../d\ntrain: images/t\nval: images/t\nnames: {0: z}"}},
         "d/data.yaml",
         "train",
         "z",
         NULL,
         1,
         1},
        {{{"images/a.png"}, {"labels/a.txt", "0 .5 .5 1 1"}, {"data.yaml", "train: images\nval: images\nnames: [z]"}},
         "",
         "train",
         "z",
         NULL,
         1,
         1},
        /* folders inside images/ */
        {{{"images/a.png"}, {"images/s/b.png"}, {"labels/s/b.txt", "0 .5 .5 1 1"}, {"data.yaml", "names: [z]"}},
         "",
         "train",
         "z",
         NULL,
         2,
         1},
        {{{"images/train/a.png"}, {"labels/train/a.txt", "0 .5 .5 1 1"}},
         "",
         "train",
         NULL,
         "looks like a part of a data set",
         0,
         0},
        /* labelImg, CVAT, darknet: text files beside the images */
        {{{"a.png"}, {"a.txt", "1 .5 .5 1 1"}, {"classes.txt", "p\nq"}}, "", "train", "p,q", NULL, 1, 1},
        {{{"a.png"}, {"a.txt", "1 .5 .5 1 1"}, {"_darknet.labels", "p\nq"}}, "", "train", "p,q", NULL, 1, 1},
        {{{"obj_train_data/a.png"}, {"obj_train_data/a.txt", "1 .5 .5 1 1"}, {"obj.names", "p\nq"}},
         "",
         "train",
         "p,q",
         NULL,
         1,
         1},
        {{{"a.png"}, {"b.txt", "1 .5 .5 1 1"}}, "", "train", NULL, "no text file beside an image", 0, 0},
        {{{"train/a.png"},
          {"train/_annotations.coco.json", "{\"images\": [{\"id\": 1, \"file_name\": \"a.png\"}], \"annotations\": [], "
                                           "\"categories\": [{\"id\": 0, \"name\": \"k\"}]}"}},
         "",
         "train",
         "k",
         NULL,
         1,
         0},
        {{{"train/images/a.png"}, {"train/labels/a.txt", "0 .5 .5 1 1"}}, "", "val", NULL, "has no part \"val\"", 0, 0},
        {{{"c.yaml", "train: [a, b]\nnames: [x]"}}, "c.yaml", "train", NULL, "lists are not supported", 0, 0},
    };
    unsigned char pixels[4 * 8] = {0};
    attn_context *c = *state;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        char base[64], path[256], names[64] = "";
        attn__box_set *set;
        scratch_open(base);
        for (int k = 0; k < 6 && layouts[i].files[k][0]; k++) {
            snprintf(path, sizeof path, "%s/%s", base, layouts[i].files[k][0]);
            *strrchr(path, '/') = '\0';
            assert_ok(c, attn_directory_create(c, path));
            if (layouts[i].files[k][1]) {
                put_file(c, base, layouts[i].files[k][0], layouts[i].files[k][1]);
            } else {
                snprintf(path, sizeof path, "%s/%s", base, layouts[i].files[k][0]);
                assert_ok(c, attn_image_write(c, &(attn_image){8, 4, 1, pixels}, path));
            }
        }
        snprintf(path, sizeof path, "%s%s%s", base, *layouts[i].path ? "/" : "", layouts[i].path);
        attn_status status = attn__boxes_read(&set, c, path, layouts[i].part, NULL);
        if (layouts[i].error) {
            assert_non_null(strstr(attn_context_error(c), layouts[i].error));
            assert_true(status != ATTN_OK);
            attn_context_clear_error(c);
        } else {
            assert_ok(c, status);
            for (int64_t k = 0; k < set->ncategories; k++)
                snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", k ? "," : "",
                         set->categories[k].name);
            assert_string_equal(names, layouts[i].names);
            assert_int_equal(set->nimages, layouts[i].images);
            assert_int_equal(set->nobjects, layouts[i].objects);
        }
        attn__box_set_destroy(set);
        assert_true(scratch_close(base) > 0);
    }
}

/* ---------------------------------------------------------------------------------------------- shapes */

/* Least and largest share of its box that a shape covers, over all rotations. */
static const double least_share[ATTN__SHAPE_KINDS] = {0.70, 0.45, 0.40, 0.25, 0.40, 0.35},
                    most_share[ATTN__SHAPE_KINDS] = {0.85, 1.00, 0.62, 0.42, 0.62, 0.62};

static void check_object(const attn__shapes_image *image, const attn__object *object)
{
    const attn__box *b = &object->box;
    double share = object->area / (b->width * b->height);
    assert_true(object->category >= 1 && object->category <= ATTN__SHAPE_KINDS);
    assert_true(b->x >= 0 && b->y >= 0 && b->width > 0 && b->height > 0);
    assert_true(b->x + b->width <= (double)image->width && b->y + b->height <= (double)image->height);
    assert_true(share > 0 && share <= 1);
    bool whole = b->x > 0 && b->y > 0 && b->x + b->width < (double)image->width &&
                 b->y + b->height < (double)image->height && image->nobjects == 1 && b->width > 15;
    if (whole) {
        assert_true(share > least_share[object->category - 1]);
        assert_true(share < most_share[object->category - 1]);
    }
}

static void drawn_shapes_are_inside_their_boxes(void **state)
{
    enum { DRAWN = 120 };
    static attn__shapes_image image, again;
    int64_t found[ATTN__SHAPE_KINDS] = {0}, alone = 0;
    (void)state;
    for (uint64_t i = 0; i < DRAWN; i++) {
        attn__shapes_draw(&image, 1, i);
        assert_true(image.width >= ATTN__SHAPE_LEAST_SIDE && image.width <= ATTN__SHAPE_MOST_SIDE);
        assert_true(image.height >= ATTN__SHAPE_LEAST_SIDE && image.height <= ATTN__SHAPE_MOST_SIDE);
        assert_true(image.nobjects >= 1 && image.nobjects <= ATTN__SHAPE_MOST);
        for (int64_t k = 0; k < image.nobjects; k++) {
            check_object(&image, image.objects + k);
            found[image.objects[k].category - 1]++;
        }
        alone += image.nobjects == 1;
    }
    for (int k = 0; k < ATTN__SHAPE_KINDS; k++)
        assert_true(found[k] > DRAWN / 4);
    assert_true(alone > DRAWN / 10);
    attn__shapes_draw(&again, 1, DRAWN - 1);
    assert_memory_equal(&again, &image, sizeof image);
    attn__shapes_draw(&again, 2, DRAWN - 1);
    assert_true(memcmp(again.pixels, image.pixels, sizeof image.pixels) != 0);
    uint64_t hash = attn__hash_bytes(ATTN__HASH_BEGIN, image.pixels, sizeof image.pixels);
    assert_true(hash == UINT64_C(0xcfeb9e5f14edfe44)); /* The hash must be the same on every machine. */
}

RUN_TESTS(TEST_WITH_CONTEXT(measures_are_those_of_pycocotools), TEST_WITH_CONTEXT(detections_are_checked),
          TEST_WITH_CONTEXT(annotations_are_read), TEST_WITH_CONTEXT(annotations_of_other_tools_are_read),
          TEST_WITH_CONTEXT(layouts_of_data_sets_are_read), TEST_WITH_CONTEXT(annotations_that_are_wrong_are_refused),
          TEST_WITH_CONTEXT(results_are_read), TEST_WITH_CONTEXT(what_is_written_is_read_again),
          TEST(boxes_are_clipped), TEST(every_allocation_may_fail), TEST_WITH_CONTEXT(folders_of_yolo_are_read),
          TEST(drawn_shapes_are_inside_their_boxes))
