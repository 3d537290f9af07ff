/* SPDX-License-Identifier: MIT
 *
 * Uses a layer by its name (attn/models.h), which is stand-alone self-attention in windows. If a window covers the
 * whole image and taps outside of the image are masked, the result equals full attention of every pixel to every pixel.
 */
#include "example.h"

#include <attn/models.h>

enum { C = 3, Y = 4, X = 6, SIDE = 6, HEADS = 2, MID = 4, OUT = 5 };

/* Makes a layer. A window of 0 means the whole image. Two layers with the same seed have the same parameters,
 * because parameters depend only on seeds and names. */
static attn_model *layer(attn_context *context, int64_t window)
{
    attn_config *config;
    attn_model *model;
    must(context, attn_config_create(&config, context));
    must(context, attn_config_set_int(config, "in_channels", C));
    must(context, attn_config_set_int(config, "mid_channels", MID));
    must(context, attn_config_set_int(config, "out_channels", OUT));
    must(context, attn_config_set_int(config, "num_heads", HEADS));
    if (window == 0)
        must(context, attn_config_set_int(config, "max_pos_embedding", SIDE));
    else {
        must(context, attn_config_set_int(config, "kernel_size", window));
        must(context, attn_config_set_text(config, "padding", "mask"));
    }
    must(context, attn_model_create(&model, context, window ? "local-self-attention" : "stand-alone-self-attention",
                                    config, &(attn_model_options){.seed = 7}));
    attn_config_destroy(config);
    return model;
}

static const attn_tensor *forward(attn_model *model, attn_tape *tape, attn_tensor *image)
{
    attn_context *context = attn_model_context(model);
    attn_named_list inputs = {.context = context}, outputs = {.context = context};
    must(context, attn_named_add(&inputs, "x", image));
    must(context, attn_model_forward(model, tape, &inputs, &outputs));
    const attn_tensor *y = attn_named_find(&outputs, "out");
    attn_named_clear(&inputs);
    attn_named_clear(&outputs);
    return y;
}

int main(void)
{
    static float pixels[C * Y * X];
    fill(pixels, COUNT(pixels), 1);
    attn_context *context = begin();
    attn_tape *tape;
    must(context, attn_tape_create(&tape, context));
    attn_tensor *image = attn_tape_tensor(tape, ATTN_F32, 4, (int64_t[]){1, C, Y, X}, pixels);
    attn_model *everywhere = layer(context, 0), *wide = layer(context, 2 * SIDE - 1), *narrow = layer(context, 3);
    const attn_tensor *all = forward(everywhere, tape, image), *in_wide = forward(wide, tape, image),
                      *in_narrow = forward(narrow, tape, image);
    size_t n = (size_t)attn_tensor_size(all);
    double same = furthest(attn_tensor_data(all), attn_tensor_data(in_wide), n);
    double other = furthest(attn_tensor_data(all), attn_tensor_data(in_narrow), n);
    printf("window of %d: %.1e from attention over the whole image; of 3: %.1e\n", 2 * SIDE - 1, same, other);
    claim(same < 1e-5 && other > 1e-2, "a window as wide as the image sees all of it");
    attn_model_destroy(everywhere);
    attn_model_destroy(wide);
    attn_model_destroy(narrow);
    attn_tape_destroy(tape);
    attn_context_destroy(context);
    return 0;
}
