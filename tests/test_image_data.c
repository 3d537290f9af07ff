/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests labelled images: files of MNIST and CIFAR, parts and statistics, and augmentation, which depends only on (seed,
 * epoch, index).
 */
#include "support/fixture.h"
#include "support/faults.h"
#include "support/scratch.h"

#include "apps/images/source.h"
#include "data/images.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIDE = 6, PIXELS = SIDE * SIDE, N = 40 };

/* No two neighbouring pixels are equal, and no pixel is black. */
static void picture(int i, unsigned char *pixels)
{
    for (int k = 0; k < PIXELS; k++)
        pixels[k] = (unsigned char)(1 + (i * 7 + k * 5) % 250);
}

static attn_image_set *some_images(attn_context *c)
{
    attn_image_set *set;
    unsigned char pixels[PIXELS];
    assert_int_equal(attn_image_set_create(&set, c, (attn_image_shape){SIDE, SIDE, 1, 1}), ATTN_OK);
    for (int i = 0; i < N; i++) {
        picture(i, pixels);
        assert_int_equal(attn_image_set_add(set, pixels, i % 3, (uint64_t)i), ATTN_OK);
    }
    return set;
}

/* ------------------------------------------------------------------------------------------------- files */

static void idx_files_are_read(void **state)
{
    static const unsigned char images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6};
    static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 7, 4};
    attn_named_bytes a = {images, sizeof images, "i"}, b = {labels, sizeof labels, "l"};
    attn_context *c = *state;
    attn_image_set *set;
    assert_int_equal(attn_image_set_of_idx(&set, c, &a, &b, 0), ATTN_OK);
    attn_image_shape shape = attn_image_set_shape(set);
    assert_int_equal(shape.width, 3);
    assert_int_equal(shape.height, 1);
    assert_int_equal(attn_image_set_classes(set), 8);
    assert_int_equal(attn_image_set_label(set, 1), 4);
    assert_memory_equal(attn_image_set_pixels(set, 1), "\4\5\6", 3);
    attn_image_set_destroy(set);
    assert_int_equal(attn_image_set_of_idx(&set, c, &a, &b, 7), ATTN_ERROR_FORMAT);
    assert_string_equal(attn_context_error(c),
                        "l: byte 8: the label is 7; it must be less than 7, the number of classes");
    assert_null(set);
    for (size_t size = 0; size < sizeof images; size++) {
        attn_context_clear_error(c);
        a.size = size;
        assert_int_equal(attn_image_set_of_idx(&set, c, &a, &b, 0), ATTN_ERROR_FORMAT);
    }
}

static void cifar_records_are_read(void **state)
{
    static unsigned char file[2 * 3073];
    attn_context *c = *state;
    attn_image_set *set;
    file[3073] = 9;
    for (int i = 0; i < 3072; i++)
        file[3074 + i] = (unsigned char)(i / 1024 * 50 + i % 1024 % 50);
    attn_named_bytes whole = {file, sizeof file, "f"}, cut = {file, 3074, "f"};
    assert_int_equal(attn_image_set_create(&set, c, (attn_image_shape){32, 32, 3, 1}), ATTN_OK);
    assert_int_equal(attn_image_set_add_cifar(set, c, &whole, 10), ATTN_OK);
    assert_int_equal(attn_image_set_size(set), 2);
    assert_int_equal(attn_image_set_label(set, 1), 9);
    /* The pixel in row 2, column 5 has index 69 in the image, and 69 % 50 = 19. */
    const unsigned char *pixel = attn_image_set_pixels(set, 1) + 3 * (2 * 32 + 5);
    assert_memory_equal(pixel, ((unsigned char[]){19, 69, 119}), 3);
    assert_int_equal(attn_image_set_add_cifar(set, c, &cut, 10), ATTN_ERROR_FORMAT);
    attn_context_clear_error(c);
    assert_int_equal(attn_image_set_add_cifar(set, c, &whole, 9), ATTN_ERROR_FORMAT);
    assert_string_equal(attn_context_error(c),
                        "f: byte 3073: the label is 9; it must be less than 9, the number of classes");
    attn_context_clear_error(c);
    file[0] = 255;
    assert_int_equal(attn_image_set_add_cifar(set, c, &whole, 0), ATTN_ERROR_FORMAT);
    assert_string_equal(attn_context_error(c),
                        "f: byte 0: the label is 255; it must be less than 10, the number of classes");
    attn_image_set_destroy(set);
}

/* -------------------------------------------------------------------------------------------------- sets */

static void parts_divide_and_stay(void **state)
{
    attn_context *c = *state;
    attn_image_set *all = some_images(c), *parts[3], *fewer, *held;
    assert_int_equal(attn_image_set_split(&parts[0], &parts[1], &parts[2], all, 3, 0.2, 0.3), ATTN_OK);
    int64_t total = 0;
    for (int p = 0; p < 3; p++) {
        total += attn_image_set_size(parts[p]);
        assert_true(attn_image_set_size(parts[p]) > 0);
    }
    assert_int_equal(total, N);
    unsigned char pixels[PIXELS];
    assert_int_equal(attn_image_set_create(&fewer, c, (attn_image_shape){SIDE, SIDE, 1, 1}), ATTN_OK);
    for (int i = 1; i < N; i++) {
        picture(i, pixels);
        assert_int_equal(attn_image_set_add(fewer, pixels, i % 3, (uint64_t)i), ATTN_OK);
    }
    assert_int_equal(attn_image_set_split(NULL, NULL, &held, fewer, 3, 0.2, 0.3), ATTN_OK);
    picture(0, pixels);
    bool had_first = memcmp(attn_image_set_pixels(parts[2], 0), pixels, PIXELS) == 0;
    assert_int_equal(attn_image_set_size(held) + had_first, attn_image_set_size(parts[2]));
    for (int64_t i = 0; i < attn_image_set_size(held); i++)
        assert_memory_equal(attn_image_set_pixels(held, i), attn_image_set_pixels(parts[2], i + had_first), PIXELS);
    attn_image_set_destroy(held);
    assert_int_equal(attn_image_set_split(&held, NULL, NULL, all, 3, 0.5, 0.5), ATTN_ERROR_ARGUMENT);
    assert_true(attn_image_set_fingerprint(all) != attn_image_set_fingerprint(fewer));
    assert_int_equal(attn_image_set_add(parts[0], pixels, 0, 0), ATTN_ERROR_ARGUMENT);
    for (int p = 0; p < 3; p++)
        attn_image_set_destroy(parts[p]);
    attn_image_set_destroy(fewer);
    attn_context_clear_error(c);
    attn_image_set_destroy(all);
}

static void statistics_are_mean_and_deviation(void **state)
{
    attn_context *c = *state;
    attn_image_set *set = some_images(c);
    float mean, std;
    double sum = 0, squares = 0;
    unsigned char pixels[PIXELS];
    for (int i = 0; i < N; i++) {
        picture(i, pixels);
        for (int k = 0; k < PIXELS; k++)
            sum += pixels[k] / 255.0;
    }
    double wanted = sum / (N * PIXELS);
    for (int i = 0; i < N; i++) {
        picture(i, pixels);
        for (int k = 0; k < PIXELS; k++)
            squares += (pixels[k] / 255.0 - wanted) * (pixels[k] / 255.0 - wanted);
    }
    attn_image_set_statistics(set, &mean, &std);
    assert_true(fabs((double)mean - wanted) < 1e-6);
    assert_true(fabs((double)std - sqrt(squares / (N * PIXELS))) < 1e-6);
    attn_image_set_destroy(set);
}

/* ----------------------------------------------------------------------------------------------- batches */

/* Copies every image of an epoch to its index in `out`, from batches of `size` images. Each image must come exactly
 * once. */
static void collect(attn_context *c, const attn_image_set *set, int64_t size, int64_t epoch, float out[N][PIXELS],
                    int64_t order[N])
{
    attn_image_batches_options options = {
        .size = size, .seed = 11, .flip = true, .shift = 2, .mean = {0.25f}, .std = {0.5f}};
    attn_image_batches *batches;
    attn_image_batch batch;
    int seen[N] = {0}, n = 0;
    assert_int_equal(attn_image_batches_create(&batches, c, set, &options), ATTN_OK);
    attn_image_batches_seek(batches, epoch, 0);
    while (attn_image_batches_next(batches, &batch)) {
        for (int64_t i = 0; i < batch.size; i++) {
            seen[batch.indices[i]]++;
            order[n++] = batch.indices[i];
            assert_int_equal(batch.labels[i], batch.indices[i] % 3);
            memcpy(out[batch.indices[i]], batch.x + i * PIXELS, sizeof out[0]);
        }
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[i], 1);
    attn_image_batches_seek(batches, epoch, INT64_MAX);
    assert_false(attn_image_batches_next(batches, &batch));
    attn_image_batches_seek(batches, epoch, -1);
    assert_true(attn_image_batches_next(batches, &batch));
    assert_int_equal(batch.indices[0], order[0]);
    attn_image_batches_destroy(batches);
}

/* Returns true if x is image i, moved by at most 2 pixels, perhaps mirrored, with black borders. */
static bool is_augmented(const float *x, int i, bool *mirrored)
{
    unsigned char p[PIXELS];
    picture(i, p);
    for (int way = 0; way < 50; way++) {
        int dx = way % 5 - 2, dy = way / 5 % 5 - 2, flip = way / 25;
        bool same = true;
        for (int k = 0; k < PIXELS && same; k++) {
            int row = k / SIDE + dy, col = (flip ? SIDE - 1 - k % SIDE : k % SIDE) + dx;
            bool inside = row >= 0 && row < SIDE && col >= 0 && col < SIDE;
            float wanted = ((float)(inside ? p[row * SIDE + col] : 0) / 255 - 0.25f) / 0.5f;
            same = fabsf(x[k] - wanted) < 1e-6f;
        }
        *mirrored = flip;
        if (same)
            return true;
    }
    return false;
}

static void augmentation_depends_on_seed_epoch_and_index(void **state)
{
    static float a[N][PIXELS], b[N][PIXELS], later[N][PIXELS];
    int64_t order[N], same_order[N], later_order[N];
    attn_context *c = *state;
    attn_image_set *set = some_images(c);
    collect(c, set, 7, 4, a, order);
    collect(c, set, 16, 4, b, same_order);
    collect(c, set, 7, 5, later, later_order);
    assert_memory_equal(a, b, sizeof a);
    assert_memory_equal(order, same_order, sizeof order);
    assert_memory_not_equal(order, later_order, sizeof order);
    int mirrored = 0, moved = 0;
    for (int i = 0; i < N; i++) {
        bool flip;
        assert_true(is_augmented(a[i], i, &flip));
        mirrored += flip;
        moved += memcmp(a[i], later[i], sizeof a[i]) != 0;
    }
    assert_true(mirrored > N / 4 && mirrored < 3 * N / 4);
    assert_true(moved > N / 2);
    attn_image_set_destroy(set);
}

static attn_status all_of_it(attn_context *c, void *user)
{
    attn_image_set *set = NULL, *train = NULL, *test = NULL;
    attn_image_batches *batches = NULL;
    unsigned char pixels[PIXELS] = {0};
    (void)user;
    attn_status status = attn_image_set_create(&set, c, (attn_image_shape){SIDE, SIDE, 1, 1});
    for (int i = 0; i < 9 && status == ATTN_OK; i++)
        status = attn_image_set_add(set, pixels, i % 2, (uint64_t)i);
    if (status == ATTN_OK)
        status = attn_image_set_split(&train, NULL, &test, set, 1, 0, 0.4);
    if (status == ATTN_OK)
        status = attn_image_batches_create(&batches, c, train, NULL);
    attn_image_batches_destroy(batches);
    attn_image_set_destroy(train);
    attn_image_set_destroy(test);
    attn_image_set_destroy(set);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    assert_true(faults_try_all(all_of_it, NULL) > 5);
}

static attn_status read_folders(attn_context *c, void *folder)
{
    attn__image_source source;
    attn_status status = attn__image_source_read(&source, c, folder, &(attn__image_wish){0});
    if (status != ATTN_OK)
        return status;
    bool whole = source.nclasses == 2 && strcmp(source.classes[0], "one") == 0 &&
                 strcmp(source.classes[1], "two") == 0 && attn_image_set_size(source.train) == 3 && !source.test &&
                 attn_image_set_label(source.train, 0) == 0 && attn_image_set_label(source.train, 2) == 1;
    attn__image_source_free(&source);
    return whole ? ATTN_OK : ATTN_ERROR_FORMAT;
}

static void folders_are_read_whole_or_not_at_all(void **state)
{
    static const char *const folders[] = {"one", "two"}, *const files[] = {"one/0.pgm", "one/1.pgm", "two/0.pgm"};
    static const unsigned char pixels[] = {1, 2, 3, 4, 5, 6};
    attn_context *c = *state;
    char folder[64], path[2][128], file[128];
    scratch_open(folder);
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s", folder, folders[i]);
        assert_int_equal(mkdir(path[i], 0700), 0);
    }
    for (int i = 0; i < 3; i++) {
        snprintf(file, sizeof file, "%s/%s", folder, files[i]);
        attn_image image = {3, 2, 1, (unsigned char *)pixels};
        assert_ok(c, attn_image_write(c, &image, file));
    }
    long allocations = faults_try_all(read_folders, folder);
    int removed = scratch_close(path[0]) + scratch_close(path[1]);
    scratch_close(folder);
    assert_true(allocations > 10 && removed == 3);
}

/* The pixel of the i-th frame is i. Numbers in file names are compared as numbers, whatever is before and after
 * them. */
static void frames_come_in_the_order_of_their_numbers(void **state)
{
    static const char *const names[] = {"a2.pgm", "a10.pgm",  "a10b.pgm", "a10c9.pgm", "a10c010.pgm",
                                        "b.pgm",  "b1-9.pgm", "b1_8.pgm", "b007.pgm",  "b07.pgm",
                                        "b7.pgm", "b8.pgm",   "c.pgm",    "c0.pgm"};
    enum { N_FRAMES = sizeof names / sizeof *names };
    attn_context *c = *state;
    attn__clip clip;
    char folder[64], path[128];
    scratch_open(folder);
    for (int i = 0; i < N_FRAMES; i++) {
        int at = (i * 5 + 3) % N_FRAMES;
        unsigned char pixel = (unsigned char)at;
        snprintf(path, sizeof path, "%s/%s", folder, names[at]);
        assert_ok(c, attn_image_write(c, &(attn_image){1, 1, 1, &pixel}, path));
    }
    assert_ok(c, attn__clip_of_folder(&clip, c, folder, 1, false));
    assert_int_equal(clip.n, N_FRAMES);
    for (int i = 0; i < N_FRAMES; i++)
        if (clip.frames[i].pixels[0] != i)
            fail_msg("frame %d is %s, not %s", i, names[clip.frames[i].pixels[0]], names[i]);
    attn__clip_free(&clip);
    assert_int_equal(scratch_close(folder), N_FRAMES);
}

RUN_TESTS(TEST_WITH_CONTEXT(idx_files_are_read), TEST_WITH_CONTEXT(cifar_records_are_read),
          TEST_WITH_CONTEXT(parts_divide_and_stay), TEST_WITH_CONTEXT(statistics_are_mean_and_deviation),
          TEST_WITH_CONTEXT(augmentation_depends_on_seed_epoch_and_index), TEST(every_allocation_may_fail),
          TEST_WITH_CONTEXT(folders_are_read_whole_or_not_at_all),
          TEST_WITH_CONTEXT(frames_come_in_the_order_of_their_numbers))
