/* SPDX-License-Identifier: MIT
 *
 * generate.h: a generator with random weights draws images and completes one. The argument is the folder of the model.
 *
 * trainer.h trains a generator; here models.h, which generate.h includes, makes one. */
#include <attn/generate.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_context *context;
#define CHECK(condition)                                                                                               \
    ((condition) ? (void)0 : (printf("line %d: %s: %s\n", __LINE__, #condition, attn_context_error(context)), exit(1)))

enum { SIZE = 6, LEVELS = 4 };

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    CHECK(attn_context_create(&context, NULL) == ATTN_OK);
    static const struct {
        const char *key;
        int64_t value;
    } settings[] = {{"height", SIZE}, {"width", SIZE},        {"channels", 1},     {"levels", LEVELS}, {"dim", 8},
                    {"heads", 2},     {"exterior_blocks", 2}, {"outer_blocks", 2}, {"inner_blocks", 2}};
    attn_config *config;
    attn_model *model;
    CHECK(attn_config_create(&config, context) == ATTN_OK);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        CHECK(attn_config_set_int(config, settings[i].key, settings[i].value) == ATTN_OK);
    CHECK(attn_model_create(&model, context, "axial-transformer", config, NULL) == ATTN_OK);
    CHECK(attn_model_save(model, folder) == ATTN_OK);

    attn_generator *generator;
    CHECK(attn_generator_load(&generator, context, folder, NULL) == ATTN_OK);
    CHECK(attn_generator_frames(generator) == 1);
    attn_image images[3] = {{0}}, again[2] = {{0}}, done = {0};
    attn_generator_options options = {.seed = 1};
    CHECK(attn_generator_draw(generator, 3, &options, images) == ATTN_OK);
    int counts[LEVELS] = {0};
    for (int i = 0; i < 3; i++) {
        CHECK(images[i].width == SIZE && images[i].height == SIZE && images[i].channels == 1);
        for (int p = 0; p < SIZE * SIZE; p++) {
            CHECK(images[i].pixels[p] % 85 == 0); /* the levels 0, 85, 170 and 255 */
            counts[images[i].pixels[p] / 85]++;
        }
    }
    for (int level = 0; level < LEVELS; level++)
        CHECK(counts[level] > 0 && counts[level] < 3 * SIZE * SIZE / 2);

    /* Image i is the same for any number of images, and another one for another seed. */
    CHECK(attn_generator_draw(generator, 2, &options, again) == ATTN_OK);
    CHECK(memcmp(images[1].pixels, again[1].pixels, SIZE * SIZE) == 0);
    attn_image_free(context, &again[0]);
    options.seed = 2;
    CHECK(attn_generator_draw(generator, 1, &options, again) == ATTN_OK);
    CHECK(memcmp(images[0].pixels, again[0].pixels, SIZE * SIZE) != 0);

    /* The given rows stay as they are, with samples that are no levels. */
    unsigned char pixels[SIZE * SIZE];
    for (int i = 0; i < SIZE * SIZE; i++)
        pixels[i] = (unsigned char)(7 * i);
    attn_image given = {.width = SIZE, .height = SIZE, .channels = 1, .pixels = pixels};
    CHECK(attn_generator_complete(generator, &given, 4, NULL, &done) == ATTN_OK);
    CHECK(memcmp(done.pixels, pixels, 4 * SIZE) == 0);
    for (int p = 4 * SIZE; p < SIZE * SIZE; p++)
        CHECK(done.pixels[p] % 85 == 0);

    attn_image none = {0};
    CHECK(attn_generator_complete(generator, &given, SIZE + 1, NULL, &none) == ATTN_ERROR_ARGUMENT && !none.pixels);
    printf("generate: %s\n", attn_context_error(context));
    for (int i = 0; i < 3; i++)
        attn_image_free(context, &images[i]);
    for (int i = 0; i < 2; i++)
        attn_image_free(context, &again[i]);
    attn_image_free(context, &done);
    attn_generator_destroy(generator);
    attn_model_destroy(model);
    attn_config_destroy(config);
    attn_context_destroy(context);
    return 0;
}
