/* SPDX-License-Identifier: MIT
 *
 * detect.h: a detector with random weights finds its boxes in a picture, and boxes are evaluated as COCO does it. The
 * argument is the folder of the model.
 *
 * trainer.h trains a detector; here models.h, which detect.h includes, makes one. */
#include <attn/detect.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_context *context;
#define CHECK(condition)                                                                                               \
    ((condition) ? (void)0 : (printf("line %d: %s: %s\n", __LINE__, #condition, attn_context_error(context)), exit(1)))

enum { QUERIES = 6, CLASSES = 3, WIDTH = 48, HEIGHT = 32 };

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    CHECK(attn_context_create(&context, NULL) == ATTN_OK);
    static const struct {
        const char *key;
        int64_t value;
    } settings[] = {{"width", 8},  {"num_classes", CLASSES}, {"num_queries", QUERIES}, {"hidden_dim", 16},
                    {"nheads", 2}, {"dim_feedforward", 32},  {"enc_layers", 1},        {"dec_layers", 1}};
    attn_config *config;
    attn_model *model;
    CHECK(attn_config_create(&config, context) == ATTN_OK);
    CHECK(attn_config_set_text(config, "backbone", "resnet18") == ATTN_OK);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        CHECK(attn_config_set_int(config, settings[i].key, settings[i].value) == ATTN_OK);
    CHECK(attn_model_create(&model, context, "detr", config, NULL) == ATTN_OK);
    CHECK(attn_model_save(model, folder) == ATTN_OK);

    attn_detector *detector;
    CHECK(attn_detector_load(&detector, context, folder, &(attn_detector_options){.size = HEIGHT}) == ATTN_OK);
    CHECK(attn_detector_queries(detector) == QUERIES);
    CHECK(attn_detector_class_name(detector, CLASSES - 1) && !attn_detector_class_name(detector, CLASSES));
    CHECK(attn_detector_class_id(detector, CLASSES) == -1);
    unsigned char pixels[HEIGHT * WIDTH * 3];
    for (int i = 0; i < HEIGHT * WIDTH * 3; i++)
        pixels[i] = (unsigned char)(i / 3 % WIDTH * 5);
    attn_image image = {.width = WIDTH, .height = HEIGHT, .channels = 3, .pixels = pixels};
    attn_detection found[QUERIES];
    CHECK(attn_detector_detect(detector, &image, found) == ATTN_OK);
    int64_t queries = 0;
    for (int i = 0; i < QUERIES; i++) {
        CHECK(found[i].score > 0 && found[i].score < 1 && (i == 0 || found[i].score <= found[i - 1].score));
        CHECK(found[i].label >= 0 && found[i].label < CLASSES && found[i].left < found[i].right);
        queries |= (int64_t)1 << found[i].query;
    }
    CHECK(queries == (1 << QUERIES) - 1); /* one box of each query */
    attn_bytes picture = {0};
    attn_status drawn = attn_detector_render_attention(detector, &image, NULL, ATTN_PLOT_PNG, &picture);
    CHECK(drawn == ATTN_OK || drawn == ATTN_ERROR_UNSUPPORTED); /* a library without cairo draws no pictures */
    attn_detector_view strict = {.threshold = 1};
    CHECK(attn_detector_render_attention(detector, &image, &strict, ATTN_PLOT_PNG, &picture) == ATTN_ERROR_ARGUMENT);
    printf("detect: %.3f; %s\n", found[0].score, attn_context_error(context));

    /* Two cats and a dog; one cat is found exactly, the other by a box that covers 4 / 6 of the union, the dog is not. */
    static const char annotations[] =
        "{\"images\": [{\"id\": 7, \"width\": 100, \"height\": 100}],"
        " \"categories\": [{\"id\": 1, \"name\": \"cat\"}, {\"id\": 2, \"name\": \"dog\"}], \"annotations\": ["
        "{\"id\": 1, \"image_id\": 7, \"category_id\": 1, \"bbox\": [0, 0, 40, 40], \"area\": 1600, \"iscrowd\": 0},"
        "{\"id\": 2, \"image_id\": 7, \"category_id\": 1, \"bbox\": [50, 50, 50, 40], \"area\": 2000, \"iscrowd\": 0},"
        "{\"id\": 3, \"image_id\": 7, \"category_id\": 2, \"bbox\": [0, 60, 30, 30], \"area\": 900, \"iscrowd\": 0}]}";
    attn_coco_detection boxes[] = {
        {.image = 7, .category = 1, .left = 0, .top = 0, .width = 40, .height = 40, .score = 0.9},
        {.image = 7, .category = 1, .left = 60, .top = 50, .width = 50, .height = 40, .score = 0.8}};
    char path[4096];
    snprintf(path, sizeof path, "%s/annotations.json", folder);
    CHECK(attn_file_write(context, path, annotations, strlen(annotations)) == ATTN_OK);
    attn_coco_result result;
    CHECK(attn_coco_evaluate(&result, context, path, NULL, boxes, 2) == ATTN_OK);
    CHECK(result.images == 1 && result.objects == 3 && result.detections == 2 && result.n == 2);
    CHECK(strcmp(attn_coco_measure_name(1), "AP50") == 0);
    CHECK(fabs(result.measures[1] - 0.5) < 1e-9); /* cats 1, dogs 0 */
    CHECK(strcmp(result.categories[0].name, "cat") == 0 && result.categories[0].objects == 2);
    CHECK(result.categories[1].ap == 0);
    attn_coco_result_free(context, &result);
    boxes[0].image = 8;
    CHECK(attn_coco_evaluate(&result, context, path, NULL, boxes, 2) == ATTN_ERROR_ARGUMENT);

    attn_bytes_free(context, &picture);
    attn_detector_destroy(detector);
    attn_model_destroy(model);
    attn_config_destroy(config);
    attn_context_destroy(context);
    return 0;
}
