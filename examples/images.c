/* SPDX-License-Identifier: MIT
 * A distribution over images (Ho et al. 2019, the axial transformer): what an image costs in bits, learning stripes in a
 * few steps, drawing one, and completing one of which the upper half is given. */
#include "example.h"

#include <attn/axial_transformer.h>
#include <attn/train.h>

enum { SIDE = 8, LEVELS = 4, BATCH = 4, STEPS = 50 };

/* Diagonal stripes, each image shifted by a number of its own. */
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

static double train(attn_model *model, attn_tensor *x)
{
    attn_context *context = attn_model_context(model);
    attn_optimizer *optimizer;
    attn_tape *tape;
    double bits = 0, first = 0;
    must(context, attn_tape_create(&tape, context));
    must(context, attn_optimizer_create(&optimizer, context, attn_model_parameters(model),
                                        &(attn_optimizer_options){.kind = ATTN_OPTIMIZER_ADAM, .clip_norm = 1}));
    for (int step = 0; step < STEPS; step++) {
        stripes(attn_tensor_data(x), BATCH, (uint32_t)step);
        attn_tape_reset(tape, &(attn_tape_options){.record = true, .train = true, .seed = (uint64_t)step});
        attn_tensor *loss = attn_axial_transformer_bits(model, tape, x, NULL);
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

static void show(const int32_t *x)
{
    for (int p = 0; p < SIDE * SIDE; p++)
        printf("%c%s", " .o#"[x[p]], p % SIDE == SIDE - 1 ? "|\n" : "");
}

int main(void)
{
    attn_context *context = begin();
    attn_model *model = build(context);
    attn_tensor *x, *known;
    must(context, attn_tensor_create(&x, context, ATTN_I32, 4, (int64_t[]){BATCH, 1, SIDE, SIDE}));
    must(context, attn_tensor_create(&known, context, ATTN_U8, 4, (int64_t[]){BATCH, 1, SIDE, SIDE}));
    claim(train(model, x) < 1, "stripes were learnt");

    must(context,
         attn_axial_transformer_sample(model, x, &(attn_axial_transformer_options){.seed = 5, .temperature = 0.5}));
    puts("drawn:");
    show(attn_tensor_data(x));

    int32_t given[BATCH * SIDE * SIDE];
    int right = 0, half = SIDE * SIDE / 2;
    stripes(given, BATCH, 12345);
    for (int i = 0; i < BATCH * SIDE * SIDE; i++) {
        ((int32_t *)attn_tensor_data(x))[i] = given[i];
        ((uint8_t *)attn_tensor_data(known))[i] = i % (2 * half) < half;
    }
    must(context, attn_axial_transformer_sample(model, x,
                                                &(attn_axial_transformer_options){.temperature = 0.1, .known = known}));
    for (int i = 0; i < BATCH * SIDE * SIDE; i++)
        right += ((const int32_t *)attn_tensor_data(x))[i] == given[i];
    puts("completed from its upper half:");
    show(attn_tensor_data(x));
    claim(right > BATCH * SIDE * SIDE * 9 / 10, "the stripes go on");
    attn_tensor_destroy(known);
    attn_tensor_destroy(x);
    attn_model_destroy(model);
    attn_context_destroy(context);
    return 0;
}
