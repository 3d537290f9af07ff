/* SPDX-License-Identifier: MIT
 *
 * Reads and writes COCO's annotations and results.
 */
#include "apps/detector/boxes_files.h"
#include "io/directory.h"
#include "io/file.h"
#include "io/json.h"
#include "io/json_writer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------------- members */

/* The list element that is read at the moment, for messages. */
typedef struct place {
    const attn__input *text;
    const char *list;
    int64_t index;
    const json_t *object;
} place;

static const char *kind_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "text";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number that is not a 64-bit integer";
    default:
        return "true, false or null";
    }
}

static attn_status fail_at(const place *at, const char *what, const char *more)
{
    return attn__fail(at->text->context, ATTN_ERROR_FORMAT, "%s: %s[%lld]: %s%s", at->text->name, at->list,
                      (long long)at->index, what, more);
}

static attn_status fail_member(const place *at, const char *key, const char *wanted, const json_t *value)
{
    char what[128];
    if (value)
        snprintf(what, sizeof what, "%s must be %s, not ", key, wanted);
    else
        snprintf(what, sizeof what, "%s is missing", key);
    return fail_at(at, what, value ? kind_of(value) : "");
}

/* Reads an integer. Some tools write one as 1.0. */
static attn_status get_int(const place *at, const char *key, int64_t *number)
{
    const double exact = 9007199254740992; /* integers up to 2^53 are exact as reals */
    const json_t *value = json_object_get(at->object, key);
    double real = json_real_value(value);
    bool whole = json_is_real(value) && fabs(real) <= exact && real == floor(real);
    if (!value || (!json_is_integer(value) && !whole))
        return fail_member(at, key, "an integer", value);
    *number = whole ? (int64_t)real : json_integer_value(value);
    return ATTN_OK;
}

static attn_status get_real(const place *at, const char *key, double *number)
{
    const json_t *value = json_object_get(at->object, key);
    if (!value || !json_is_number(value))
        return fail_member(at, key, "a number", value);
    *number = json_number_value(value);
    return ATTN_OK;
}

static attn_status get_box(const place *at, attn__box *box)
{
    const json_t *value = json_object_get(at->object, "bbox");
    double sides[4];
    if (!value || !json_is_array(value))
        return fail_member(at, "bbox", "a list of 4 numbers", value);
    char what[64];
    snprintf(what, sizeof what, "bbox has %zu elements; expected 4 numbers", json_array_size(value));
    if (json_array_size(value) != 4)
        return fail_at(at, what, "");
    for (size_t i = 0; i < 4; i++) {
        const json_t *side = json_array_get(value, i);
        snprintf(what, sizeof what, "bbox[%zu] must be a number, not ", i);
        if (!json_is_number(side))
            return fail_at(at, what, kind_of(side));
        sides[i] = json_number_value(side);
    }
    *box = (attn__box){sides[0], sides[1], sides[2], sides[3]};
    return ATTN_OK;
}

static attn_status check_object(const place *at)
{
    return json_is_object(at->object) ? ATTN_OK : fail_at(at, "must be an object, not ", kind_of(at->object));
}

/* ------------------------------------------------------------------------------------------ annotations */

enum { IMAGES, ANNOTATIONS, CATEGORIES, LISTS };
static const char *const lists[LISTS] = {"images", "annotations", "categories"};

typedef struct reader {
    const attn__input *text;
    attn__box_set *set;
    bool given[LISTS];
} reader;

/* If the value is missing, it is 0. CVAT writes 0 if it does not know it. */
static attn_status get_side(const place *at, const char *key, int64_t *side)
{
    *side = 0;
    if (!json_object_get(at->object, key))
        return ATTN_OK;
    attn_status status = get_int(at, key, side);
    char what[64];
    snprintf(what, sizeof what, "%s is %lld; it must not be negative", key, (long long)*side);
    return status != ATTN_OK || *side >= 0 ? status : fail_at(at, what, "");
}

static attn_status add_image(attn__box_set *set, const place *at)
{
    int64_t id = 0, width = 0, height = 0;
    const json_t *file = json_object_get(at->object, "file_name");
    attn_status status = get_int(at, "id", &id);
    if (status == ATTN_OK)
        status = get_side(at, "width", &width);
    if (status == ATTN_OK)
        status = get_side(at, "height", &height);
    if (status == ATTN_OK && file && !json_is_string(file))
        status = fail_member(at, "file_name", "text", file);
    if (status == ATTN_OK)
        status = attn__box_set_add_image(set, id, width, height, json_string_value(file));
    /* a path as Windows writes it */
    char *path = status == ATTN_OK ? set->images[set->nimages - 1].file : NULL;
    for (bool windows = path && !strchr(path, '/'); windows && (path = strchr(path, '\\')); path++)
        *path = '/';
    return status;
}

static attn_status add_category(attn__box_set *set, const place *at)
{
    int64_t id = 0;
    const json_t *name = json_object_get(at->object, "name");
    attn_status status = get_int(at, "id", &id);
    if (status == ATTN_OK && !json_is_string(name))
        status = fail_member(at, "name", "text", name);
    return status == ATTN_OK ? attn__box_set_add_category(set, id, json_string_value(name)) : status;
}

static attn_status get_crowd(const place *at, bool *crowd)
{
    const json_t *value = json_object_get(at->object, "iscrowd");
    int64_t number = json_is_true(value);
    attn_status status =
        !value || json_is_boolean(value) || json_is_null(value) ? ATTN_OK : get_int(at, "iscrowd", &number);
    *crowd = number == 1;
    char what[64];
    snprintf(what, sizeof what, "iscrowd is %lld; it must be 0 or 1", (long long)number);
    return status != ATTN_OK || number == 0 || number == 1 ? status : fail_at(at, what, "");
}

static attn_status add_annotation(attn__box_set *set, const place *at)
{
    attn__object object = {.id = 0};
    attn_status status = get_int(at, "id", &object.id);
    if (status == ATTN_OK)
        status = get_int(at, "image_id", &object.image);
    if (status == ATTN_OK)
        status = get_int(at, "category_id", &object.category);
    if (status == ATTN_OK)
        status = get_box(at, &object.box);
    if (status == ATTN_OK)
        status = get_crowd(at, &object.crowd);
    object.area = object.box.width * object.box.height;
    if (status == ATTN_OK && json_object_get(at->object, "area"))
        status = get_real(at, "area", &object.area);
    return status == ATTN_OK ? attn__box_set_add_object(set, &object) : status;
}

static attn_status visit_annotations(void *user, const char *key, int64_t index, const json_t *value)
{
    reader *r = user;
    static attn_status (*const add[LISTS])(attn__box_set * set, const place *at) = {add_image, add_annotation,
                                                                                    add_category};
    int list = 0;
    while (list < LISTS && strcmp(lists[list], key) != 0)
        list++;
    if (!key[0])
        return attn__fail(r->text->context, ATTN_ERROR_FORMAT,
                          "%s: found a list, as COCO's results are; expected annotations, an object with \"images\", "
                          "\"annotations\" and \"categories\"",
                          r->text->name);
    if (list == LISTS)
        return ATTN_OK;
    if (index < 0)
        return attn__fail(r->text->context, ATTN_ERROR_FORMAT, "%s: \"%s\" must be a list, not %s", r->text->name, key,
                          kind_of(value));
    if (!value && r->given[list])
        return attn__fail(r->text->context, ATTN_ERROR_FORMAT, "%s: \"%s\" is given twice", r->text->name, key);
    r->given[list] = true;
    if (!value)
        return ATTN_OK;
    place at = {r->text, key, index, value};
    attn_status status = check_object(&at);
    return status == ATTN_OK ? add[list](r->set, &at) : status;
}

static attn_status check_given(const reader *r)
{
    for (int i = 0; i < LISTS; i++) {
        if (!r->given[i])
            return attn__fail(r->text->context, ATTN_ERROR_FORMAT, "%s: not COCO's annotations: \"%s\" is missing",
                              r->text->name, lists[i]);
    }
    return ATTN_OK;
}

attn_status attn__coco_parse(attn__box_set **set, const attn__input *text)
{
    reader r = {.text = text};
    attn_status status = attn__box_set_create(&r.set, text->context);
    if (status == ATTN_OK)
        status = attn__json_stream(text, "segmentation", visit_annotations, &r);
    if (status == ATTN_OK)
        status = check_given(&r);
    /* Annotations of images that were removed from the list are left out, as by pycocotools. */
    if (r.set)
        r.set->leaves_out = true;
    if (status == ATTN_OK)
        status = attn__box_set_finish(r.set, text->name);
    if (status != ATTN_OK) {
        attn__box_set_destroy(r.set);
        r.set = NULL;
    }
    *set = r.set;
    return status;
}

attn_status attn__coco_read(attn__box_set **set, attn_context *context, const char *path)
{
    attn__input text;
    *set = NULL;
    attn_status status = attn__file_map(&text, context, path);
    if (status != ATTN_OK)
        return status;
    status = attn__coco_parse(set, &text);
    attn_status kept = status == ATTN_OK ? attn__file_unchanged(&text) : status;
    attn__file_unmap(&text);
    if (kept == ATTN_OK && !((*set)->folder = attn__path_parent(context, path)))
        kept = ATTN_ERROR_MEMORY;
    if (status == ATTN_OK && kept != ATTN_OK) {
        attn__box_set_destroy(*set);
        *set = NULL;
        return kept;
    }
    return status;
}

/* ---------------------------------------------------------------------------------------------- results */

typedef struct results_reader {
    const attn__input *text;
    const attn__box_set *set;
    attn__detections *to;
} results_reader;

static attn_status get_detection(const place *at, attn__detection *d)
{
    attn_status status = check_object(at);
    if (status == ATTN_OK)
        status = get_int(at, "image_id", &d->image);
    if (status == ATTN_OK)
        status = get_int(at, "category_id", &d->category);
    if (status == ATTN_OK)
        status = get_box(at, &d->box);
    return status == ATTN_OK ? get_real(at, "score", &d->score) : status;
}

static attn_status visit_result(void *user, const char *key, int64_t index, const json_t *value)
{
    results_reader *r = user;
    attn_context *context = r->text->context;
    attn__detection d = {0};
    if (key[0])
        return attn__fail(
            context, ATTN_ERROR_FORMAT,
            "%s: found an object, as COCO's annotations are; expected results, a list of {image_id, category_id, "
            "bbox, score}",
            r->text->name);
    if (!value)
        return ATTN_OK;
    place at = {r->text, "results", index, value};
    attn_status status = get_detection(&at, &d);
    if (status != ATTN_OK)
        return status;
    int64_t image = attn__box_set_image(r->set, d.image), category = attn__box_set_category(r->set, d.category);
    if (image < 0)
        return attn__fail(context, ATTN_ERROR_FORMAT,
                          "%s: results[%lld]: image_id %lld: the annotations have no such image", r->text->name,
                          (long long)index, (long long)d.image);
    if (category < 0) {
        if (r->to->left_out++ == 0)
            r->to->unknown = d.category;
        return ATTN_OK;
    }
    attn__detection *all = attn__grow(context, r->to->of, r->to->n, sizeof *all);
    if (!all)
        return ATTN_ERROR_MEMORY;
    d.image = image;
    d.category = category;
    all[r->to->n++] = d;
    r->to->of = all;
    return ATTN_OK;
}

void attn__detections_free(attn_context *context, attn__detections *detections)
{
    attn__free(context, detections->of);
    *detections = (attn__detections){0};
}

attn_status attn__coco_results_parse(attn__detections *detections, const attn__box_set *set, const attn__input *text)
{
    results_reader r = {text, set, detections};
    *detections = (attn__detections){0};
    attn_status status = attn__json_stream(text, "segmentation", visit_result, &r);
    if (status != ATTN_OK)
        attn__detections_free(text->context, detections);
    return status;
}

attn_status attn__coco_results_read(attn__detections *detections, const attn__box_set *set, const char *path)
{
    attn__input text;
    *detections = (attn__detections){0};
    attn_status status = attn__file_map(&text, set->context, path);
    if (status == ATTN_OK)
        status = attn__coco_results_parse(detections, set, &text);
    if (status == ATTN_OK && (status = attn__file_unchanged(&text)) != ATTN_OK)
        attn__detections_free(set->context, detections);
    attn__file_unmap(&text);
    return status;
}

/* ---------------------------------------------------------------------------------------------- writing */

static void put_box(attn_json *json, const attn__box *box)
{
    attn_json_array(json, "bbox");
    attn_json_real(json, NULL, box->x);
    attn_json_real(json, NULL, box->y);
    attn_json_real(json, NULL, box->width);
    attn_json_real(json, NULL, box->height);
    attn_json_end(json);
}

static attn_status write_and_free(attn_json *json, const char *path)
{
    const char *text = NULL;
    attn_status status = attn_json_finish(json, &text);
    if (status == ATTN_OK)
        status = attn_file_write(json->context, path, text, strlen(text));
    attn_json_free(json);
    return status;
}

attn_status attn__coco_results_write(attn_context *context, const char *path, const attn__detection *detections,
                                     int64_t n)
{
    attn_json json;
    attn_json_begin(&json, context, false);
    attn_json_array(&json, NULL);
    for (int64_t i = 0; i < n; i++) {
        attn_json_object(&json, NULL);
        attn_json_int(&json, "image_id", detections[i].image);
        attn_json_int(&json, "category_id", detections[i].category);
        put_box(&json, &detections[i].box);
        attn_json_real(&json, "score", detections[i].score);
        attn_json_end(&json);
    }
    attn_json_end(&json);
    return write_and_free(&json, path);
}

static void put_images(attn_json *json, const attn__box_set *set)
{
    attn_json_array(json, "images");
    for (int64_t i = 0; i < set->nimages; i++) {
        const attn__boxed_image *image = set->images + i;
        attn_json_object(json, NULL);
        attn_json_int(json, "id", image->id);
        if (image->file)
            attn_json_text(json, "file_name", image->file);
        if (image->width > 0)
            attn_json_int(json, "width", image->width);
        if (image->height > 0)
            attn_json_int(json, "height", image->height);
        attn_json_end(json);
    }
    attn_json_end(json);
}

static void put_annotations(attn_json *json, const attn__box_set *set)
{
    attn_json_array(json, "annotations");
    for (int64_t i = 0; i < set->nobjects; i++) {
        const attn__object *object = set->objects + i;
        attn_json_object(json, NULL);
        attn_json_int(json, "id", object->id);
        attn_json_int(json, "image_id", set->images[object->image].id);
        attn_json_int(json, "category_id", set->categories[object->category].id);
        put_box(json, &object->box);
        attn_json_real(json, "area", object->area);
        attn_json_int(json, "iscrowd", object->crowd);
        attn_json_end(json);
    }
    attn_json_end(json);
}

attn_status attn__coco_write(const attn__box_set *set, const char *path)
{
    attn_json json;
    attn_json_begin(&json, set->context, false);
    attn_json_object(&json, NULL);
    put_images(&json, set);
    put_annotations(&json, set);
    attn_json_array(&json, "categories");
    for (int64_t i = 0; i < set->ncategories; i++) {
        attn_json_object(&json, NULL);
        attn_json_int(&json, "id", set->categories[i].id);
        attn_json_text(&json, "name", set->categories[i].name);
        attn_json_end(&json);
    }
    attn_json_end(&json);
    attn_json_end(&json);
    return write_and_free(&json, path);
}
