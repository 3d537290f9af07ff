/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests generators of images: the loss of an untrained generator, the baseline, the average of the weights, seeds, and
 * the completion of images, which keeps the given rows.
 */
#include "support/fixture.h"
#include "support/scratch.h"
#include "support/tensors.h"

#include "attn/generate.h"
#include "apps/generator/generator.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { IMAGES = 8, WIDTH = 5, HEIGHT = 6, CHANNELS = 3, DIMS = WIDTH * HEIGHT * CHANNELS, LEVELS = 4, HEADS = 2 };

typedef struct world {
    attn_context *context;
    char data[128];
} world;

/* Writes eight pictures without class folders. All samples have level 1, except one sample, which is black in half
 * of the pictures and white in the others. */
static void write_data(world *w)
{
    attn_image image;
    assert_int_equal(attn_image_alloc(&image, w->context, WIDTH, HEIGHT, CHANNELS), ATTN_OK);
    memset(image.pixels, 70, DIMS);
    for (int i = 0; i < IMAGES; i++) {
        char path[160];
        image.pixels[7] = i % 2 ? 255 : 0;
        snprintf(path, sizeof path, "%s/%d.png", w->data, i);
        assert_int_equal(attn_image_write(w->context, &image, path), ATTN_OK);
    }
    attn_image_free(w->context, &image);
}

static void begin(world *w)
{
    *w = (world){.context = test_context()};
    scratch_open(w->data);
    write_data(w);
}

static void end(world *w)
{
    scratch_close(w->data);
    end_context(w->context);
}

static attn_status train(const world *w, const char *directory, int epochs, const char *more)
{
    char text[256];
    attn_config *settings;
    snprintf(
        text, sizeof text,
        "{\"levels\": 4, \"dim\": 8, \"heads\": 2, \"exterior_blocks\": 1, \"outer_blocks\": 2, \"inner_blocks\": 1, "
        "\"valid\": 0, \"test\": 0, \"batch\": 8, \"warmup\": 0, \"schedule\": \"constant\", \"rate\": 0.01, "
        "\"epochs\": %d%s}",
        epochs, more);
    assert_int_equal(attn_config_parse(&settings, w->context, text, strlen(text), "test"), ATTN_OK);
    attn_status status = attn_train(
        w->context,
        &(attn_trainer_job){.kind = "images", .data = w->data, .directory = directory, .settings = settings});
    attn_config_destroy(settings);
    return status;
}

static attn_generator *trained(const world *w, char directory[64], int epochs, const char *more)
{
    attn_generator *generator;
    scratch_open(directory);
    if (train(w, directory, epochs, more) != ATTN_OK ||
        attn_generator_load(&generator, w->context, directory, NULL) != ATTN_OK)
        fail_msg("%s", attn_context_error(w->context));
    return generator;
}

/* An untrained generator gives each of the 4 levels the same probability, so that a sample costs log2 4 bits. The
 * baseline is computed by hand, with add-one counts over 8 images and 4 levels: a level that all images have has the
 * probability 9/12, and each of the two levels of the other sample has 5/12. */
static void test_costs(void **state)
{
    world w;
    char directory[64];
    attn_generator_score score;
    begin(&w);
    attn_generator *g = trained(&w, directory, 0, "");
    progress_told told = {.things = "batches of images"};
    attn_context_set_progress(w.context, next_progress, &told);
    assert_int_equal(attn_generator_evaluate(g, w.data, ATTN_SPLIT_ALL, &score), ATTN_OK);
    attn_context_set_progress(w.context, NULL, NULL);
    assert_true(told.done > 0 && told.done == told.total);
    assert_int_equal(score.images, IMAGES);
    assert_int_equal(score.dims, DIMS);
    assert_true(fabs(score.bits - 2) < 1e-6);
    double baseline = ((DIMS - 1) * log2(12. / 9) + log2(12. / 5)) / DIMS;
    assert_true(fabs(score.baseline - baseline) < 1e-12);
    const attn_trainer *trainer;
    assert_int_equal(attn_trainer_of(&trainer, w.context, directory, NULL), ATTN_OK);
    assert_string_equal(trainer->kind, "images");
    assert_int_equal(attn_trainer_of(&trainer, w.context, w.data, NULL), ATTN_OK);
    assert_null(trainer);
    assert_int_equal(attn_generator_evaluate(g, w.data, ATTN_SPLIT_TEST, &score), ATTN_ERROR_ARGUMENT);
    attn_context_clear_error(w.context);
    attn_generator_destroy(g);
    scratch_close(directory);
    end(&w);
}

/* After one step, the average of the weights is w0 + (1 - 2/11) (w1 - w0). 2/11 is the decay at step 1, unless the
 * setting is smaller. */
static void test_average(void **state)
{
    static const struct {
        const char *more;
        double keep;
    } cases[] = {{", \"ema\": 0.9995", 2. / 11}, {", \"ema\": 0.1", 0.1}, {", \"ema\": 0", 0}};
    world w;
    char start_at[64], end_at[64], average_at[64];
    begin(&w);
    attn_generator *start = trained(&w, start_at, 0, ""), *last = trained(&w, end_at, 1, ", \"ema\": 0");
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        attn_generator *average = trained(&w, average_at, 1, cases[c].more);
        const attn_named_list *a = attn_model_parameters(attn_generator_model(start));
        const attn_named_list *b = attn_model_parameters(attn_generator_model(last));
        const attn_named_list *m = attn_model_parameters(attn_generator_model(average));
        double moved = 0;
        for (int64_t i = 0; i < m->n; i++) {
            const float *from = attn_tensor_data(a->items[i].tensor), *to = attn_tensor_data(b->items[i].tensor);
            const float *got = attn_tensor_data(m->items[i].tensor);
            for (int64_t k = 0; k < attn_tensor_size(m->items[i].tensor); k++) {
                double want = cases[c].keep * (double)from[k] + (1 - cases[c].keep) * (double)to[k];
                assert_true(fabs((double)got[k] - want) <= 1e-6 * (fabs(want) + 1e-3));
                moved += fabs((double)to[k] - (double)from[k]);
            }
        }
        assert_true(moved > 0.01);
        attn_generator_destroy(average);
        scratch_close(average_at);
    }
    attn_generator_destroy(start);
    attn_generator_destroy(last);
    scratch_close(start_at);
    scratch_close(end_at);
    end(&w);
}

static int64_t apart(const attn_image *a, const attn_image *b)
{
    int64_t differ = 0;
    assert_true(a->width == b->width && a->height == b->height && a->channels == b->channels);
    for (int64_t i = 0; i < a->width * a->height * a->channels; i++)
        differ += a->pixels[i] != b->pixels[i];
    return differ;
}

static bool stop_at_once(void *user, const char *things, int64_t done, int64_t total)
{
    assert_string_equal(things, "rows");
    int64_t *rows = user;
    assert_int_equal(total, 2 * HEIGHT * CHANNELS);
    *rows = done;
    return false;
}

static void test_draw(void **state)
{
    enum { MANY = 18 };
    world w;
    char directory[64];
    attn_image first[2] = {{0}}, again[2] = {{0}}, other[1] = {{0}}, many[MANY] = {{0}}, slow[2] = {{0}};
    int64_t rows = 0;
    begin(&w);
    attn_generator *g = trained(&w, directory, 2, "");
    attn_generator_options seven = {.seed = 7}, eight = {.seed = 8};
    assert_int_equal(attn_generator_draw(g, 2, &seven, first), ATTN_OK);
    assert_int_equal(attn_generator_draw(g, 2, &seven, again), ATTN_OK);
    g->slow = true;
    assert_int_equal(attn_generator_draw(g, 2, &seven, slow), ATTN_OK);
    g->slow = false;
    assert_int_equal(attn_generator_draw(g, 1, &eight, other), ATTN_OK);
    progress_told told = {.things = "rows"};
    attn_context_set_progress(w.context, next_progress, &told);
    assert_int_equal(attn_generator_draw(g, MANY, &seven, many), ATTN_OK);
    assert_int_equal(told.done, 2 * HEIGHT * CHANNELS); /* the rows of both groups of images, each counted once */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(apart(&first[i], &again[i]), 0);
        assert_int_equal(apart(&first[i], &slow[i]), 0);
        assert_int_equal(apart(&first[i], &many[i]), 0);
    }
    assert_true(apart(&first[0], &first[1]) > DIMS / 4);
    assert_true(apart(&first[0], &other[0]) > DIMS / 4);
    assert_true(apart(&many[0], &many[16]) > DIMS / 4);
    for (int i = 0; i < DIMS; i++) /* Levels of pixels are multiples of 255 / 3 = 85. */
        assert_int_equal(first[0].pixels[i] % 85, 0);
    for (int i = 0; i < MANY; i++)
        attn_image_free(w.context, &many[i]);
    attn_context_set_progress(w.context, stop_at_once, &rows);
    assert_int_equal(attn_generator_draw(g, MANY, NULL, many), ATTN_ERROR_INTERRUPTED);
    attn_context_set_progress(w.context, NULL, NULL);
    assert_int_equal(rows, 1);
    attn_context_clear_error(w.context);
    assert_int_equal(attn_generator_draw(g, 0, NULL, many), ATTN_ERROR_ARGUMENT);
    attn_context_clear_error(w.context);
    assert_int_equal(attn_generator_draw(g, 1, &(attn_generator_options){.temperature = -1}, many),
                     ATTN_ERROR_ARGUMENT);
    attn_context_clear_error(w.context);
    for (int i = 0; i < 2; i++) {
        attn_image_free(w.context, &first[i]);
        attn_image_free(w.context, &again[i]);
        attn_image_free(w.context, &slow[i]);
    }
    attn_image_free(w.context, &other[0]);
    attn_generator_destroy(g);
    scratch_close(directory);
    end(&w);
}

/* Given rows keep samples between two levels. Pixels below the given rows have no effect. */
static void test_complete(void **state)
{
    enum { ROWS = 2, KEPT = ROWS * WIDTH * CHANNELS };
    world w;
    char directory[64];
    attn_image given, whole = {0}, same = {0}, other = {0};
    begin(&w);
    attn_generator *g = trained(&w, directory, 2, "");
    assert_int_equal(attn_image_alloc(&given, w.context, WIDTH, HEIGHT, CHANNELS), ATTN_OK);
    for (int i = 0; i < DIMS; i++)
        given.pixels[i] = (unsigned char)(i * 37);
    assert_int_equal(attn_generator_complete(g, &given, ROWS, &(attn_generator_options){.seed = 1}, &whole), ATTN_OK);
    assert_int_equal(attn_generator_complete(g, &given, ROWS, &(attn_generator_options){.seed = 2}, &other), ATTN_OK);
    memset(given.pixels + KEPT, 0, DIMS - KEPT);
    assert_int_equal(attn_generator_complete(g, &given, ROWS, &(attn_generator_options){.seed = 1}, &same), ATTN_OK);
    assert_memory_equal(whole.pixels, given.pixels, KEPT);
    assert_memory_equal(other.pixels, given.pixels, KEPT);
    assert_int_equal(apart(&whole, &same), 0);
    assert_true(apart(&whole, &other) > (DIMS - KEPT) / 4);
    attn_image_free(w.context, &same);
    assert_int_equal(attn_generator_complete(g, &given, HEIGHT, NULL, &same), ATTN_OK);
    assert_int_equal(apart(&same, &given), 0);
    attn_image_free(w.context, &same);
    assert_refused(w.context, attn_generator_complete(g, &given, HEIGHT + 1, NULL, &same), ATTN_ERROR_ARGUMENT,
                   "rows is 7; it must be between 0 and 6");
    attn_image_free(w.context, &given);
    attn_image_free(w.context, &whole);
    attn_image_free(w.context, &other);
    attn_generator_destroy(g);
    scratch_close(directory);
    end(&w);
}

/* Compares the weights of a layer in the model, [L,1,H,Y,X,Y+X], with those in the view. */
static void check_weights(const attn__generator_look *look, int64_t layer)
{
    const attn_tensor *weights = attn_named_find(&look->attention.outputs, "weights");
    const attn__block_attention *b = &look->attention.blocks[layer];
    const float *model = (const float *)attn_tensor_data(weights) + layer * HEADS * HEIGHT * WIDTH * (HEIGHT + WIDTH);
    assert_int_equal(attn__block_keys(b), HEIGHT + WIDTH);
    for (int64_t i = 0; i < (int64_t)HEADS * HEIGHT * WIDTH; i++) {
        const float *shown = b->weights + i * (HEIGHT + WIDTH), *want = model + i * (HEIGHT + WIDTH);
        int64_t y = i / WIDTH % HEIGHT, x = i % WIDTH, row, col;
        double sums[2] = {0, 0};
        for (int64_t key = 0; key < HEIGHT + WIDTH; key++) {
            assert_true(attn__block_place(b, y, x, key, &row, &col));
            assert_true(shown[key] == want[key < WIDTH ? HEIGHT + col : row]);
            sums[key >= WIDTH] += (double)shown[key];
            bool seen = strcmp(b->stack, "inner") == 0 ? col <= x : strcmp(b->stack, "exterior") == 0 || row <= y;
            assert_true(seen || shown[key] == 0);
        }
        bool along = strcmp(b->axis, "row") == 0;
        assert_true(fabs(sums[0] - along) < 1e-5 && fabs(sums[1] - !along) < 1e-5);
    }
}

/* Checks the layers for the i-th number of a picture. Returns -log2 of the number's probability. */
static double look_at(attn_generator *g, const attn_image *image, int i)
{
    static const char *const stacks[] = {"exterior", "outer", "outer", "inner"};
    attn__generator_look look;
    attn_generator_view view = {.channel = i % 3 + 1, .view = {.query_row = i / 15 + 1, .query_col = i / 3 % 5 + 1}};
    assert_int_equal(attn__generator_look_at(&look, g, image, 1, &view), ATTN_OK);
    double bits = -log2(look.found.probability);
    assert_int_equal(look.found.level, image->pixels[i] / 64);
    assert_true(look.found.probability <= look.found.of_likeliest);
    assert_int_equal(look.attention.n, 4);
    for (int64_t layer = 0; layer < 4; layer++) {
        const attn__block_attention *b = &look.attention.blocks[layer];
        assert_string_equal(b->stack, stacks[layer]);
        assert_int_equal(b->above, layer == 1 || layer == 2);
        assert_int_equal(b->blind != NULL, (layer == 0 && i % 3 == 0) || (b->above == 1 && i < 15));
        assert_int_equal(b->under != NULL, layer == 0 && i % 3 > 0);
        assert_true(!b->under || b->under->pixels[i / 3] == attn__sample_of(image->pixels[i - 1] / 64, LEVELS));
        if (i == 52)
            check_weights(&look, layer);
    }
    attn__generator_look_free(&look);
    return bits;
}

/* The probabilities of an image's numbers must agree with the bits that the generator reports. */
static void test_show(void **state)
{
    world w;
    char directory[64];
    attn_image image;
    attn_bytes page;
    attn_tape *tape;
    double bits = 0;
    begin(&w);
    attn_generator *g = trained(&w, directory, 3, "");
    assert_int_equal(attn_image_alloc(&image, w.context, WIDTH, HEIGHT, CHANNELS), ATTN_OK);
    for (int i = 0; i < DIMS; i++)
        image.pixels[i] = (unsigned char)(37 * i);
    for (int i = 0; i < DIMS; i++)
        bits += look_at(g, &image, i) / DIMS;
    assert_int_equal(attn_tape_create(&tape, w.context), ATTN_OK);
    attn_tensor *x = attn_tape_tensor(tape, ATTN_I32, 4, (int64_t[]){1, CHANNELS, HEIGHT, WIDTH}, NULL);
    attn__generator_put_rows(g, &image, HEIGHT, attn_tensor_data(x));
    assert_true(fabs(test_at(attn_axial_transformer_bits(attn_generator_model(g), tape, x, NULL), 0) - bits) < 1e-5);
    attn_tape_destroy(tape);
    attn_generator_view view = {0}, other = {.channel = 4};
    assert_int_equal(attn_generator_render_attention(g, &image, 1, &view, ATTN_PLOT_HTML, &page, NULL), ATTN_OK);
    assert_non_null(strstr(page.data, "\"inner blocks, 6 x 5\""));
    attn_bytes_free(w.context, &page);
    assert_refused(w.context, attn_generator_render_attention(g, &image, 1, &other, ATTN_PLOT_HTML, &page, NULL),
                   ATTN_ERROR_ARGUMENT, "channel 4 does not exist: there are 3");
    attn_image_free(w.context, &image);
    attn_generator_destroy(g);
    scratch_close(directory);
    end(&w);
}

/* ---- videos: an array of eight videos, whose second frame is the first frame rotated by 180 degrees */

enum { SIDE = 4, PIXELS = SIDE * SIDE };

static void write_videos(world *w)
{
    attn_tensor *array;
    memcpy(w->data + strlen(w->data), "/videos.npy", sizeof "/videos.npy");
    assert_int_equal(attn_tensor_create(&array, w->context, ATTN_U8, 5, (int64_t[]){IMAGES, 2, 1, SIDE, SIDE}),
                     ATTN_OK);
    unsigned char *to = attn_tensor_data(array);
    for (int i = 0; i < IMAGES * 2 * PIXELS; i++)
        to[i] = i % (2 * PIXELS) == i / (2 * PIXELS) || i % (2 * PIXELS) == 31 - i / (2 * PIXELS) ? 255 : 0;
    assert_int_equal(attn_npy_write(array, w->context, w->data), ATTN_OK);
    attn_tensor_destroy(array);
}

/* The given frames and rows must stay, and the rest must not depend on what it contained before. */
static void check_completing(const world *w, attn_generator *g)
{
    attn__clip clip;
    attn_image done[2], again[2];
    assert_int_equal(attn__clip_read(&clip, w->context, w->data, 2), ATTN_OK);
    assert_int_equal(clip.n, 2);
    assert_int_equal(clip.frames[0].pixels[2], 255);
    assert_int_equal(clip.frames[1].pixels[13], 255);
    attn_generator_options one = {.frames = 1}, two = {.frames = 2}, three = {.frames = 3};
    for (int all = 0; all < 2; all++) {
        int64_t kept = all ? PIXELS : 2 * SIDE;
        assert_int_equal(attn_generator_complete(g, clip.frames, kept / SIDE, &one, done), ATTN_OK);
        memset(clip.frames[1].pixels, 77, PIXELS);
        assert_int_equal(attn_generator_complete(g, clip.frames, kept / SIDE, &one, again), ATTN_OK);
        assert_memory_equal(done[0].pixels, clip.frames[0].pixels, (size_t)kept);
        for (int f = 0; f < 2; f++) {
            assert_int_equal(apart(&done[f], &again[f]), 0);
            attn_image_free(w->context, &done[f]);
            attn_image_free(w->context, &again[f]);
        }
    }
    assert_int_equal(attn_generator_complete(g, clip.frames, SIDE, &two, done), ATTN_OK);
    for (int f = 0; f < 2; f++) {
        assert_int_equal(apart(&done[f], &clip.frames[f]), 0);
        attn_image_free(w->context, &done[f]);
    }
    assert_refused(w->context, attn_generator_complete(g, clip.frames, SIDE, NULL, done), ATTN_ERROR_ARGUMENT,
                   "0 frames are given; expected 1 to 2");
    assert_refused(w->context, attn_generator_complete(g, clip.frames, SIDE, &three, done), ATTN_ERROR_ARGUMENT,
                   "3 frames are given; expected 1 to 2");
    attn__clip_free(&clip);
}

static void test_videos(void **state)
{
    world w;
    char directory[64];
    attn_generator_score score;
    attn_image drawn[6] = {{0}}, slow[6] = {{0}};
    begin(&w);
    write_videos(&w);
    attn_generator *g = trained(&w, directory, 2, "");
    assert_int_equal(attn_generator_shape(g).frames, 2);
    assert_int_equal(attn_generator_evaluate(g, w.data, ATTN_SPLIT_ALL, &score), ATTN_OK);
    assert_int_equal(score.images, IMAGES);
    assert_int_equal(score.dims, 2 * PIXELS);
    assert_int_equal(attn_generator_draw(g, 3, NULL, drawn), ATTN_OK);
    g->slow = true;
    assert_int_equal(attn_generator_draw(g, 3, NULL, slow), ATTN_OK);
    g->slow = false;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(apart(&drawn[i], &slow[i]), 0);
        attn_image_free(w.context, &drawn[i]);
        attn_image_free(w.context, &slow[i]);
    }
    check_completing(&w, g);
    attn_generator_destroy(g);
    scratch_close(directory);
    *strrchr(w.data, '/') = 0;
    end(&w);
}

RUN_TESTS(TEST(test_costs), TEST(test_average), TEST(test_draw), TEST(test_complete), TEST(test_show),
          TEST(test_videos))
