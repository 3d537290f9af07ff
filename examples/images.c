/* SPDX-License-Identifier: MIT
 *
 * Uses the axial transformer (Ho et al. 2019), which is a distribution over images. The program computes the bits of an
 * image, learns stripes in a few steps, draws an image, and completes an image from its upper half. It saves the model
 * in a directory (example-images), from which a generator draws. `attn generate example-images` also draws from it.
 */
#include "example.h"

#include <attn/generate.h>
#include <attn/models.h>
#include <attn/train.h>

enum { SIDE = 8, LEVELS = 4, BATCH = 4, STEPS = 50 };

/* Makes images of diagonal stripes, each with its own shift. */
static void stripes(int32_t *x, int images, uint32_t seed)
{
    for (int i = 0; i < images; i++) {
        seed = seed * 1664525u + 1013904223u;
        for (int p = 0; p < SIDE * SIDE; p++)
            *x++ = (int32_t)((uint32_t)(p / SIDE + p % SIDE) + (seed >> 28)) % LEVELS;
    }
}

static attn_model *build(attn_context *context)
{
    const struct {
        const char *key;
        int64_t value;
    } keys[] = {{"height", SIDE}, {"width", SIDE},        {"channels", 1},     {"levels", LEVELS}, {"dim", 32},
                {"heads", 4},     {"exterior_blocks", 2}, {"outer_blocks", 2}, {"inner_blocks", 2}};
    attn_config *config;
    attn_model *model;
    must(context, attn_config_create(&config, context));
    for (size_t i = 0; i < COUNT(keys); i++)
        must(context, attn_config_set_int(config, keys[i].key, keys[i].value));
    must(context, attn_model_create(&model, context, "axial-transformer", config, &(attn_model_options){.seed = 1}));
    attn_config_destroy(config);
    return model;
}

/* Returns the bits per sample of the images. This is the mean of -log2 of the probability of each sample. */
static attn_tensor *bits_of(attn_model *model, attn_tape *tape, attn_tensor *x)
{
    attn_context *context = attn_model_context(model);
    attn_named_list inputs = {.context = context}, outputs = {.context = context};
    must(context, attn_named_add(&inputs, "image", x));
    must(context, attn_model_forward(model, tape, &inputs, &outputs));
    attn_tensor *loss = attn_cross_entropy(tape, attn_named_find(&outputs, "logits"), x, NULL);
    attn_named_clear(&inputs);
    attn_named_clear(&outputs);
    must(context, attn_context_status(context));
    return attn_affine(tape, loss, 1 / log(2.0), 0);
}

static double train(attn_model *model)
{
    attn_context *context = attn_model_context(model);
    attn_optimizer *optimizer;
    attn_tape *tape;
    int32_t x[BATCH * SIDE * SIDE];
    double bits = 0, first = 0;
    must(context, attn_tape_create(&tape, context));
    must(context, attn_optimizer_create(&optimizer, context, attn_model_parameters(model),
                                        &(attn_optimizer_options){.kind = ATTN_OPTIMIZER_ADAM, .clip_norm = 1}));
    for (int step = 0; step < STEPS; step++) {
        stripes(x, BATCH, (uint32_t)step);
        attn_tape_reset(tape, &(attn_tape_options){.record = true, .train = true, .seed = (uint64_t)step});
        attn_tensor *loss =
            bits_of(model, tape, attn_tape_tensor(tape, ATTN_I32, 4, (int64_t[]){BATCH, 1, SIDE, SIDE}, x));
        must(context, attn_context_status(context));
        bits = (double)*(const float *)attn_tensor_data(loss);
        first = step == 0 ? bits : first;
        must(context, attn_backward(tape, loss));
        must(context, attn_optimizer_step(optimizer, 3e-3, NULL));
    }
    printf("bits a pixel: %.3f before, %.3f after %d steps\n", first, bits, STEPS);
    claim(fabs(first - 2) < 1e-6, "an untrained model gives every one of 4 levels 2 bits");
    attn_optimizer_destroy(optimizer);
    attn_tape_destroy(tape);
    return bits;
}

/* Returns the level of a grey sample of 8 bits. Level 0 is the sample 0, and the last level is the sample 255. */
static int level_of(const attn_image *image, int p)
{
    return image->pixels[p] * LEVELS / 256;
}

static void show(const attn_image *image)
{
    for (int p = 0; p < SIDE * SIDE; p++)
        printf("%c%s", " .o#"[level_of(image, p)], p % SIDE == SIDE - 1 ? "|\n" : "");
}

int main(void)
{
    static const char directory[] = "example-images";
    attn_context *context = begin();
    attn_model *model = build(context);
    attn_generator *generator;
    attn_image drawn, completed;
    claim(train(model) < 1, "stripes were learnt");
    must(context, attn_model_save(model, directory));
    must(context, attn_generator_load(&generator, context, directory, NULL));

    must(context, attn_generator_draw(generator, 1, &(attn_generator_options){.seed = 5, .temperature = 0.5}, &drawn));
    puts("drawn:");
    show(&drawn);

    int32_t levels[SIDE * SIDE];
    unsigned char pixels[SIDE * SIDE];
    int right = 0;
    stripes(levels, 1, 12345);
    for (int p = 0; p < SIDE * SIDE; p++)
        pixels[p] = (unsigned char)(255 * levels[p] / (LEVELS - 1));
    attn_image given = {.width = SIDE, .height = SIDE, .channels = 1, .pixels = pixels};
    must(context, attn_generator_complete(generator, &given, SIDE / 2, &(attn_generator_options){.temperature = 0.1},
                                          &completed));
    for (int p = 0; p < SIDE * SIDE; p++)
        right += level_of(&completed, p) == levels[p];
    puts("completed from its upper half:");
    show(&completed);
    claim(right > SIDE * SIDE * 9 / 10, "the stripes go on");
    attn_image_free(context, &drawn);
    attn_image_free(context, &completed);
    attn_generator_destroy(generator);
    attn_model_destroy(model);
    attn_context_destroy(context);
    return 0;
}
