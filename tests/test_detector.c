/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests a detector: pictures and boxes are prepared and augmented, and the outputs are read.
 */
#include "support/faults.h"
#include "support/fixture.h"
#include "support/scratch.h"
#include "support/tensors.h"

#include "apps/detector/augment.h"
#include "apps/detector/boxes_files.h"
#include "apps/detector/data.h"
#include "apps/detector/detector.h"
#include "apps/detector/training.h"
#include "io/images/image.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The expected sizes come from get_size_with_aspect_ratio of facebookresearch/detr, with the limits 800 and 1333. */
static void sizes_are_detrs(void **state)
{
    static const int64_t cases[][4] = {
        {640, 480, 1066, 800},  {480, 640, 800, 1066},   {640, 427, 1199, 800}, {1, 1, 800, 800},
        {800, 1000, 800, 1000}, {1000, 800, 1000, 800},  {500, 375, 1066, 800}, {20000, 10, 2000, 1},
        {4000, 600, 1333, 200}, {333, 1000, 444, 1333},  {2666, 5, 1066, 2},    {612, 612, 800, 800},
        {1066, 800, 1066, 800}, {1000, 3001, 444, 1332}, {7, 2666, 4, 1523},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t width, height;
        attn__view_size(&attn__detr_view, cases[i][0], cases[i][1], &width, &height);
        assert_true(width == cases[i][2] && height == cases[i][3]);
    }
    int64_t width, height;
    attn__view_size(&attn__detr_view, 100000, 1, &width, &height); /* A side of less than 1 pixel becomes 1 pixel. */
    assert_true(width == 100000 && height == 1);
    attn__view_size(&(attn__picture_view){0}, 31, 17, &width, &height);
    assert_true(width == 31 && height == 17);
}

static attn_image picture(attn_context *context, int64_t width, int64_t height, const attn__box *box)
{
    attn_image image;
    assert_ok(context, attn_image_alloc(&image, context, width, height, 3));
    for (int64_t i = 0; i < width * height; i++) {
        int64_t row = i / width;
        double x = (double)(i % width), y = (double)row;
        bool in = x >= box->x && x < box->x + box->width && y >= box->y && y < box->y + box->height;
        memset(image.pixels + 3 * i, in ? 255 : 0, 3);
    }
    return image;
}

/* Finds the bounds of the bright pixels: left, top, right, bottom. Returns false if there are none. */
static bool bounds(const attn_image *image, double found[4])
{
    bool any = false;
    for (int64_t i = 0; i < image->width * image->height; i++) {
        int64_t row = i / image->width;
        double x = (double)(i % image->width), y = (double)row;
        if (image->pixels[3 * i] < 128)
            continue;
        found[0] = any ? fmin(found[0], x) : x;
        found[1] = any ? fmin(found[1], y) : y;
        found[2] = any ? fmax(found[2], x + 1) : x + 1;
        found[3] = any ? fmax(found[3], y + 1) : y + 1;
        any = true;
    }
    return any;
}

static void boxes_go_with_the_pixels(void **state)
{
    attn_context *context = *state;
    const attn__box box = {70, 20, 55, 33};
    const attn__picture_view view = {.size = 120, .longest = 200};
    attn_image image = picture(context, 200, 130, &box);
    int flipped = 0, cut = 0, lost = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        attn__rng rng = {.seed = seed};
        attn__augmentation a = attn__augment_draw(&view, true, true, image.width, image.height, &rng);
        attn_image seen;
        double to[4], found[4] = {0};
        assert_ok(context, attn__augment_image(&a, context, &image, &seen));
        assert_true(seen.width == a.width && seen.height == a.height && a.width <= 202);
        bool left = attn__augment_box(&a, image.width, image.height, &box, to);
        bool bright = bounds(&seen, found);
        if (left && bright) {
            double w = (double)a.width, h = (double)a.height, pixels = 2;
            const double own[4] = {(to[0] - to[2] / 2) * w, (to[1] - to[3] / 2) * h, (to[0] + to[2] / 2) * w,
                                   (to[1] + to[3] / 2) * h};
            for (int k = 0; k < 4; k++)
                assert_true(fabs(own[k] - found[k]) < pixels);
        } else {
            assert_true(!bright || to[2] * (double)a.width < 2 || to[3] * (double)a.height < 2);
        }
        flipped += a.flip;
        cut += a.crop;
        lost += !left;
        attn_image_free(context, &seen);
    }
    assert_true(flipped > 15 && flipped < 45 && cut > 15 && cut < 45 && lost < 30);
    attn_image_free(context, &image);
}

/* DETR uses 480 to 800 in steps of 32. It first resizes half of the pictures to 400, 500 or 600, and cuts them to 384
 * to 600 pixels. */
static void drawn_sizes_are_those_of_detr(void **state)
{
    const attn__picture_view view = {.size = 800};
    int firsts[3] = {0}, lasts[11] = {0};
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        attn__rng rng = {.seed = seed};
        attn__augmentation a = attn__augment_draw(&view, false, true, 900, 900, &rng);
        int64_t last = a.width < a.height ? a.width : a.height;
        assert_true(!a.flip && last >= 480 && last <= 800 && last % 32 == 0);
        lasts[(last - 480) / 32]++;
        if (!a.crop)
            continue;
        assert_true(a.first_width == 400 || a.first_width == 500 || a.first_width == 600);
        assert_true(a.cut_width >= 384 && a.cut_width <= a.first_width && a.x + a.cut_width <= a.first_width);
        assert_true(a.cut_height >= 384 && a.cut_height <= a.first_height && a.y + a.cut_height <= a.first_height);
        firsts[(a.first_width - 400) / 100]++;
    }
    for (int i = 0; i < 3; i++)
        assert_true(firsts[i] > 40);
    for (int i = 0; i < 11; i++)
        assert_true(lasts[i] > 15);
}

static void without_augmentation_boxes_are_clipped(void **state)
{
    const attn__augmentation none = attn__augment_none(&attn__detr_view, 100, 50);
    double to[4];
    (void)state;
    assert_true(none.width == 1332 && none.height == 666);
    assert_true(attn__augment_box(&none, 100, 50, &(attn__box){-10, 10, 30, 100}, to));
    assert_true(fabs(to[0] - 0.1) < 1e-12 && fabs(to[1] - 0.6) < 1e-12);
    assert_true(fabs(to[2] - 0.2) < 1e-12 && fabs(to[3] - 0.8) < 1e-12);
    assert_false(attn__augment_box(&none, 100, 50, &(attn__box){100, 10, 30, 10}, to));
    assert_false(attn__augment_box(&none, 100, 50, &(attn__box){10, 10, 0, 10}, to));
}

static void unlike_pictures_make_a_batch_with_a_mask(void **state)
{
    tape_fixture *f = *state;
    const attn__box all = {0, 0, 9, 9};
    attn_image images[2] = {picture(f->context, 4, 3, &all), picture(f->context, 2, 5, &all)};
    attn_tensor *mask, *x = attn__view_batch(&attn__detr_view, f->tape, images, 2, NULL, &mask);
    assert_true(attn_tensor_length(x, 2) == 5 && attn_tensor_length(x, 3) == 4);
    for (int64_t i = 0; i < 2 * 5 * 4; i++) {
        int64_t n = i / 20, y = i / 4 % 5, col = i % 4;
        bool padding = y >= images[n].height || col >= images[n].width;
        assert_true((test_at(mask, i) != 0) == padding);
        for (int64_t c = 0; c < 3; c++) {
            double mean = (double)attn__detr_view.mean[c], std = (double)attn__detr_view.std[c];
            double expected = padding ? 0 : (1 - mean) / std;
            assert_true(fabs(test_at(x, ((n * 3 + c) * 5 + y) * 4 + col) - expected) < 1e-6);
        }
    }
    assert_non_null(attn__view_batch(&attn__detr_view, f->tape, images, 1, NULL, &mask));
    assert_null(mask);
    x = attn__view_batch(&attn__detr_view, f->tape, images, 1, (const int64_t[]){3, 6}, &mask);
    assert_true(attn_tensor_length(x, 3) == 6 && test_at(mask, 3) == 0 && test_at(mask, 4) == 1);
    for (int i = 0; i < 2; i++)
        attn_image_free(f->context, &images[i]);
}

/* The outputs are for three queries, with two classes and "no object". */
static void outputs_are_boxes_by_falling_score(void **state)
{
    tape_fixture *f = *state;
    const double logits[] = {0, 1, 5, 2, 1, 0, 0, 1, 5},
                 boxes[] = {0.5, 0.5, 1, 1, 0.25, 0.5, 0.1, 0.4, 0, 0, 0.5, 0.5};
    attn_tensor *l = attn_tape_tensor(f->tape, ATTN_F32, 3, (int64_t[]){1, 3, 3}, NULL);
    attn_tensor *b = attn_tape_tensor(f->tape, ATTN_F32, 3, (int64_t[]){1, 3, 4}, NULL);
    for (int i = 0; i < 12; i++) {
        test_set(b, i, boxes[i]);
        if (i < 9)
            test_set(l, i, logits[i]);
    }
    attn_detection found[3];
    assert_ok(f->context, attn__found_of(f->context, l, b, 0, 200, 100, found));
    assert_true(found[0].label == 0 && fabs(found[0].score - 1 / (1 + exp(-1) + exp(-2))) < 1e-6);
    assert_true(fabs(found[0].left - 40) < 1e-4 && fabs(found[0].bottom - 70) < 1e-4);
    assert_true(found[1].label == 1 && found[1].right == 200 && found[2].left == -50);
    test_set(b, 3, NAN);
    assert_refused(f->context, attn__found_of(f->context, l, b, 0, 200, 100, found), ATTN_ERROR_UNSUPPORTED,
                   "not finite");
}

/* --------------------------------------------------------------------------------------------- failing allocations */

static char folder[64];

static void write_file(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Makes two pictures with three objects, one of them a crowd, and a model of two blocks. */
static void lay(attn_context *context)
{
    attn_config *config;
    attn_model *model;
    static const char *const numbers[] = {"hidden_dim", "nheads",      "dim_feedforward", "enc_layers",
                                          "dec_layers", "num_queries", "num_classes",     "width"};
    static const int64_t values[] = {8, 2, 8, 1, 2, 4, 2, 4};
    scratch_open(folder);
    assert_ok(context, attn_config_create(&config, context));
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        assert_ok(context, attn_config_set_int(config, numbers[i], values[i]));
    assert_ok(context, attn_config_set_text(config, "backbone", "resnet18"));
    int64_t blocks[] = {1, 1}; /* a short backbone makes few allocations */
    assert_ok(context,
              attn_config_set(config, "stage_blocks",
                              &(attn_config_value){.type = ATTN_CONFIG_TYPE_INTS, .n = 2, .integers = blocks}));
    assert_ok(context, attn_model_create(&model, context, "detr", config, NULL));
    assert_ok(context, attn_model_save(model, folder));
    attn_model_destroy(model);
    attn_config_destroy(config);
    write_file("a.pgm", "P2 4 3 255 1 2 3 4 5 6 7 8 9 10 11 12\n");
    write_file("b.pgm", "P2 3 3 255 1 2 3 4 5 6 7 8 9\n");
    write_file("names.txt", "cup\nplate\n");
    write_file(
        "annotations.json",
        "{\"images\":[{\"id\":7,\"file_name\":\"a.pgm\",\"width\":4,\"height\":3},{\"id\":9,\"file_name\":\"b.pgm\"}],"
        "\"annotations\":[{\"id\":1,\"image_id\":7,\"category_id\":5,\"bbox\":[0,0,2,9]},"
        "{\"id\":2,\"image_id\":7,\"category_id\":8,\"bbox\":[0,0,2,2],\"iscrowd\":1},"
        "{\"id\":3,\"image_id\":9,\"category_id\":8,\"bbox\":[1,1,1,1]}],"
        "\"categories\":[{\"id\":8,\"name\":\"plate\"},{\"id\":5,\"name\":\"cup\"}]}");
}

static attn_status detect_with(attn_context *context, void *user)
{
    attn_detector *detector;
    attn_detection found[4];
    unsigned char pixels[12] = {0};
    const attn_image image = {4, 3, 1, pixels};
    attn_bytes drawn = {0};
    char path[128];
    (void)user;
    snprintf(path, sizeof path, "%s/names.txt", folder);
    attn_status status =
        attn_detector_load(&detector, context, folder, &(attn_detector_options){.class_names = path, .size = 8});
    if (status == ATTN_OK)
        status = attn_detector_detect(detector, &image, found);
    if (status == ATTN_OK)
        status = attn_detector_render_attention(detector, &image, &(attn_detector_view){0}, ATTN_PLOT_SVG, &drawn);
    attn_bytes_free(context, &drawn);
    attn_detector_destroy(detector);
    return status;
}

/* Files of other networks are refused, and the message names the network. Some of them have the parameter names of
 * DETR. */
static void others_are_refused_as_what_they_are(void **state)
{
    attn_context *context = *state;
    static const char *const cases[][2] = {
        {"detr.mask_head.lay1.weight", "this is DETR for panoptic segmentation"},
        {"linear_class.weight", "notebook"},
        {"transformer.encoder.layers.0.linear1.weight", "the tensors have the names of torch-"},
        {"a.weight", "the tensors do not have the names of DETR; a DETR with other names needs --names"},
    };
    char path[128];
    scratch_open(folder);
    snprintf(path, sizeof path, "%s/w.safetensors", folder);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_detector *detector;
        attn_tensor *x;
        attn_named_list list = {.context = context, .owns = true};
        assert_ok(context, attn_tensor_create(&x, context, ATTN_F32, 1, (int64_t[]){2}));
        assert_ok(context, attn_named_add(&list, cases[i][0], x));
        assert_ok(context, attn_safetensors_write(&list, path, NULL));
        attn_named_clear(&list);
        assert_refused(context, attn_detector_load(&detector, context, path, NULL), ATTN_ERROR_UNSUPPORTED,
                       cases[i][1]);
    }
    assert_int_equal(scratch_close(folder), 1);
}

static attn_status batch_with(attn_context *context, void *user)
{
    static const int64_t ids[] = {5, 8};
    attn__boxed_data data = {0};
    attn__boxed_batch batch;
    attn_config *settings = NULL;
    attn_tape *tape = NULL;
    attn_status status = attn_config_create(&settings, context);
    (void)user;
    if (status == ATTN_OK)
        status = attn_config_set_text(settings, "valid_data", folder);
    if (status == ATTN_OK)
        status = attn__boxed_data_read(&data, context, folder, settings);
    data.queries = data.batch = 2;
    data.crop = data.flip = true;
    data.classes = (attn__classes){2, ids, NULL};
    data.view = attn__detr_view;
    data.view.size = 4;
    if (status == ATTN_OK)
        status = attn__boxed_data_begin(&data);
    if (status == ATTN_OK)
        status = attn_tape_create(&tape, context);
    if (status == ATTN_OK)
        status = attn__boxed_data_train(&data, tape, 0, 0, &batch);
    if (status == ATTN_OK)
        assert_true(batch.targets.images == 2 && batch.objects <= 2 && data.set->images[1].width == 3);
    if (status == ATTN_OK)
        status = attn__boxed_data_valid(&data, tape, 0, &batch);
    if (status == ATTN_OK)
        assert_true(batch.targets.images == 1 && batch.sides[0] == 4 && batch.sides[1] == 5);
    attn_tape_destroy(tape);
    attn__boxed_data_free(&data);
    attn_config_destroy(settings);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    lay(*state);
    assert_true(faults_try_all(detect_with, NULL) > 50);
    assert_true(faults_try_all(batch_with, NULL) > 20);
    assert_int_equal(scratch_close(folder), 6);
}

enum { DRAWN = 152, DRAWN_BATCH = 5 };

/* The order of an epoch: for each picture, the batch that has it. `area` is the sum of the areas of all batches after
 * padding, in pixels per picture. */
typedef struct epoch_order {
    int64_t batch[DRAWN];
    int64_t area;
} epoch_order;

static epoch_order order_of(attn__boxed_data *data, attn_tape *tape, int64_t epoch)
{
    epoch_order order = {{0}, 0};
    int seen[DRAWN] = {0};
    for (int64_t step = 0; step < attn__boxed_data_steps(data); step++) {
        attn__boxed_batch batch;
        attn_tape_reset(tape, NULL);
        assert_int_equal(attn__boxed_data_train(data, tape, epoch, step, &batch), ATTN_OK);
        for (int64_t i = 0; i < batch.targets.images; i++) {
            seen[batch.images[i]]++;
            order.batch[batch.images[i]] = step;
            order.area += batch.sides[0] * batch.sides[1];
        }
    }
    for (int i = 0; i < DRAWN; i++)
        assert_int_equal(seen[i], 1);
    return order;
}

/* Returns the area after padding if each batch has pictures that follow each other in the file, which have unrelated
 * sizes. */
static int64_t area_in_file_order(const attn__box_set *set)
{
    int64_t area = 0;
    for (int64_t begin = 0; begin < DRAWN; begin += DRAWN_BATCH) {
        int64_t n = begin + DRAWN_BATCH < DRAWN ? DRAWN_BATCH : DRAWN - begin, width = 0, height = 0;
        for (int64_t i = begin; i < begin + n; i++) {
            width = set->images[i].width > width ? set->images[i].width : width;
            height = set->images[i].height > height ? set->images[i].height : height;
        }
        area += n * width * height;
    }
    return area;
}

/* Batches have pictures of similar sizes. Each epoch has every picture once, in an order of its own that depends on the
 * epoch alone. */
/* A precision below 0.01 is noise: among such epochs the loss decides, and each other epoch is better. */
static void epochs_are_judged_by_loss_while_the_precision_is_noise(void **state)
{
    (void)state;
    assert_true(attn__detector_judge(0.0001, 2) > attn__detector_judge(0.008, 3));
    assert_true(attn__detector_judge(0.01, 9e9) > attn__detector_judge(0.0099, 0));
    assert_true(attn__detector_judge(0.3, 2) > attn__detector_judge(0.2, 1));
    assert_true(attn__detector_judge(0.3, 1) > attn__detector_judge(0.3, 2));
    assert_true(isnan(attn__detector_judge(-1, 2)));
}

static void batches_have_similar_sizes(void **state)
{
    static const int64_t ids[] = {1, 2, 3, 4, 5, 6};
    attn_context *context = *state;
    attn_config *settings;
    attn_tape *tape;
    attn__boxed_data data = {0};
    char path[sizeof folder + 8];
    scratch_open(folder);
    snprintf(path, sizeof path, "%s/drawn", folder);
    assert_ok(context, attn__shapes_write(context, path, 3, 0, DRAWN));
    assert_ok(context, attn_config_create(&settings, context));
    assert_ok(context, attn_tape_create(&tape, context));
    assert_ok(context, attn__boxed_data_read(&data, context, path, settings));
    data.queries = 10;
    data.batch = DRAWN_BATCH;
    data.classes = (attn__classes){6, ids, NULL};
    assert_ok(context, attn__boxed_data_begin(&data));
    epoch_order first = order_of(&data, tape, 0), second = order_of(&data, tape, 1), again = order_of(&data, tape, 0);
    int together = 0, again_together = 0, last[2] = {0};
    for (int i = 0; i < DRAWN; i++) {
        assert_int_equal(first.batch[i], again.batch[i]);
        for (int j = 0; j < i; j++) {
            together += first.batch[i] == first.batch[j];
            again_together += first.batch[i] == first.batch[j] && second.batch[i] == second.batch[j];
        }
        last[0] += first.batch[i] == DRAWN / DRAWN_BATCH;
        last[1] += first.batch[i] == DRAWN / DRAWN_BATCH && second.batch[i] == DRAWN / DRAWN_BATCH;
    }
    assert_true(first.area < 0.9 * (double)area_in_file_order(data.set));
    assert_true(again_together < together / 3);
    assert_true(last[0] == DRAWN % DRAWN_BATCH && last[1] < last[0]); /* not always the largest pictures */
    attn__boxed_data_free(&data);
    attn_tape_destroy(tape);
    attn_config_destroy(settings);
    scratch_close(folder);
}

/* Each picture fills the upper left corner of its planes, and the mask marks the rest. */
static void pictures_are_placed_in_a_batch_by_channel_row_and_column(void **state)
{
    tape_fixture *f = *state;
    enum { ROWS = 3, COLS = 4 };
    unsigned char pixels[2][2 * 3 * 3];
    const attn_image images[2] = {{.width = 3, .height = 2, .channels = 3, .pixels = pixels[0]},
                                  {.width = 2, .height = 3, .channels = 3, .pixels = pixels[1]}};
    const attn__picture_view view = {.mean = {0.5f, 0.25f, 0}, .std = {0.5f, 2, 1}};
    attn_tensor *mask;
    for (int i = 0; i < 2 * 18; i++)
        pixels[i / 18][i % 18] = (unsigned char)(7 * i);
    attn_tensor *x = attn__view_batch(&view, f->tape, images, 2, (int64_t[]){ROWS, COLS}, &mask);
    assert_true(x && mask);
    for (int i = 0; i < 2; i++)
        for (int c = 0; c < 3; c++)
            for (int at = 0; at < ROWS * COLS; at++) {
                int row = at / COLS, col = at % COLS;
                bool inside = row < images[i].height && col < images[i].width;
                assert_int_equal((int)test_at(mask, i * ROWS * COLS + at), !inside);
                if (!inside)
                    continue;
                float value = (float)pixels[i][(row * images[i].width + col) * 3 + c] / 255;
                assert_true(fabs(test_at(x, (i * 3 + c) * ROWS * COLS + at) -
                                 (double)((value - view.mean[c]) / view.std[c])) < 1e-6);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_detrs),
        TEST_WITH_CONTEXT(boxes_go_with_the_pixels),
        cmocka_unit_test(drawn_sizes_are_those_of_detr),
        cmocka_unit_test(without_augmentation_boxes_are_clipped),
        TEST_WITH_TAPE(unlike_pictures_make_a_batch_with_a_mask),
        TEST_WITH_TAPE(outputs_are_boxes_by_falling_score),
        TEST_WITH_CONTEXT(others_are_refused_as_what_they_are),
        TEST_WITH_CONTEXT(every_allocation_may_fail),
        TEST_WITH_CONTEXT(batches_have_similar_sizes),
        TEST_WITH_TAPE(pictures_are_placed_in_a_batch_by_channel_row_and_column),
        TEST(epochs_are_judged_by_loss_while_the_precision_is_noise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
