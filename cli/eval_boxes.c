/* SPDX-License-Identifier: MIT
 *
 * Implements COCO's evaluation of a file of results: average precision and recall.
 */
#include "eval_images.h"

#include "apps/detector/boxes_files.h"
#include "data/average_precision.h"

#include <stdlib.h>

typedef struct evaluated {
    const attn__box_set *set;
    const attn__detections *found;
    double measures[ATTN__AP_MEASURES];
    double *by_category;
    double seconds;
} evaluated;

static void print_measures(const evaluated *e)
{
    for (int i = 0; i < ATTN__AP_MEASURES; i++) {
        const attn__ap_measure *m = attn__ap_measures + i;
        char iou[16] = "0.50:0.95";
        if (m->iou > 0)
            snprintf(iou, sizeof iou, "%.2f", m->iou);
        printf(" %-18s (%s) @[ IoU=%-9s | area=%6s | maxDets=%3d ] = %0.3f\n",
               m->recall ? "Average Recall" : "Average Precision", m->recall ? "AR" : "AP", iou, m->area, m->detections,
               e->measures[i]);
    }
}

static void count_objects(const evaluated *e, int64_t *objects)
{
    for (int64_t i = 0; i < e->set->nobjects; i++)
        objects[e->set->objects[i].category] += !e->set->objects[i].crowd;
}

static void print_categories(const evaluated *e, const int64_t *objects)
{
    puts("\ncategory                    id  objects      AP");
    for (int64_t k = 0; k < e->set->ncategories; k++) {
        cli_print_cell(stdout, e->set->categories[k].name, 20);
        printf(" %9lld %8lld %7.3f\n", (long long)e->set->categories[k].id, (long long)objects[k], e->by_category[k]);
    }
}

static int print_json(const cli_call *cli, const evaluated *e, const int64_t *objects)
{
    attn_json json;
    attn_json_begin(&json, cli->context, true);
    attn_json_object(&json, NULL);
    attn_json_int(&json, "images", e->set->nimages);
    attn_json_int(&json, "objects", e->set->nobjects);
    attn_json_int(&json, "detections", e->found->n);
    attn_json_int(&json, "left_out", e->found->left_out);
    for (int i = 0; i < ATTN__AP_MEASURES; i++)
        attn_json_real(&json, attn__ap_measures[i].name, e->measures[i]);
    attn_json_real(&json, "seconds", e->seconds);
    attn_json_array(&json, "categories");
    for (int64_t k = 0; k < e->set->ncategories; k++) {
        attn_json_object(&json, NULL);
        attn_json_int(&json, "id", e->set->categories[k].id);
        attn_json_text(&json, "name", e->set->categories[k].name);
        attn_json_int(&json, "objects", objects[k]);
        attn_json_real(&json, "AP", e->by_category[k]);
        attn_json_end(&json);
    }
    attn_json_end(&json);
    attn_json_end(&json);
    return cli_print_json(cli, &json);
}

/* Warns about data that can be evaluated, but may be a mistake. */
static void tell_odd(const evaluated *e)
{
    int64_t outside = 0, flat = 0, nought = 0;
    for (int64_t i = 0; i < e->set->nobjects; i++) {
        const attn__object *object = e->set->objects + i;
        const attn__boxed_image *image = e->set->images + object->image;
        const attn__box *b = &object->box;
        outside += b->x < 0 || b->y < 0 || (image->width > 0 && b->x + b->width > (double)image->width + 1) ||
                   (image->height > 0 && b->y + b->height > (double)image->height + 1);
        flat += !(b->width > 0 && b->height > 0);
        nought += object->id == 0;
    }
    if (e->found->left_out > 0)
        cli_warn("%lld detections are of categories that the annotations lack, such as %lld: they are left out",
                 (long long)e->found->left_out, (long long)e->found->unknown);
    if (e->set->left_out > 0)
        cli_warn("%lld annotation%s left out: the annotations do not list the image", (long long)e->set->left_out,
                 e->set->left_out == 1 ? " is" : "s are");
    if (outside > 0)
        cli_warn("%lld boxes of the annotations reach beyond their images", (long long)outside);
    if (flat > 0)
        cli_warn("%lld boxes of the annotations have no area: no detection matches them", (long long)flat);
    if (nought > 0)
        cli_warn("the annotation with the id 0 counts as one that is never found, as in pycocotools");
}

static int evaluate(const cli_call *cli, evaluated *e)
{
    int64_t *objects = calloc((size_t)e->set->ncategories + 1, sizeof *objects);
    e->by_category = calloc((size_t)e->set->ncategories + 1, sizeof *e->by_category);
    int code = CLI_OK;
    double begin = cli_seconds();
    if (!objects || !e->by_category)
        code = cli_fail(CLI_FAILED, "out of memory");
    else if (attn__average_precision(cli->context, e->set, e->found->of, e->found->n, e->measures, e->by_category) !=
             ATTN_OK)
        code = cli_failed(cli, NULL);
    e->seconds = cli_seconds() - begin;
    if (code == CLI_OK) {
        tell_odd(e);
        count_objects(e, objects);
        if (cli->json) {
            code = print_json(cli, e, objects);
        } else {
            print_measures(e);
            print_categories(e, objects);
        }
    }
    free(objects);
    free(e->by_category);
    return code;
}

int cli_eval_boxes(const cli_call *cli, const char *results, const char *annotations)
{
    attn__box_set *set = NULL;
    attn__detections found = {0};
    attn_status status = attn__boxes_read(&set, cli->context, annotations, "val", NULL);
    if (status == ATTN_OK)
        status = attn__coco_results_read(&found, set, results);
    evaluated e = {.set = set, .found = &found};
    int code = status == ATTN_OK ? evaluate(cli, &e) : cli_failed(cli, NULL);
    attn__detections_free(cli->context, &found);
    attn__box_set_destroy(set);
    return code;
}
