/* SPDX-License-Identifier: MIT
 * Layers over images (attn/nn_spatial.h): stand-alone self-attention in windows.  A window that reaches over the whole
 * image, with what is outside left out, is the same as attention of every pixel to every pixel. */
#include "example.h"

#include "attn/nn_spatial.h"

enum { C = 3, Y = 4, X = 6, SIDE = 6, HEADS = 2, MID = 4, OUT = 5 };

/* Two layers from the same seed have the same parameters: these depend on seeds and names alone. */
static attn_tensor *run_layer(attn_context *context, attn_tape *tape, attn_tensor *image, int64_t window)
{
    attn_named_list parameters = {.context = context, .owns = true}, constants = parameters;
    attn_nn_builder builder = {.context = context, .parameters = &parameters, .constants = &constants, .seed = 7};
    attn_nn_image_attention layer;
    attn_nn_image_attention_init(&layer, &builder,
                                 &(attn_nn_image_attention_options){.in_channels = C,
                                                                    .mid = MID,
                                                                    .out_channels = OUT,
                                                                    .heads = HEADS,
                                                                    .max_positions = SIDE,
                                                                    .window = window,
                                                                    .border = ATTN_BORDER_MASK,
                                                                    .relative = true,
                                                                    .bias = true,
                                                                    .project = true});
    attn_tensor *y = attn_nn_image_attention_forward(&layer, tape, image, NULL);
    attn_named_clear(&parameters);
    attn_named_clear(&constants);
    return y;
}

int main(void)
{
    static float pixels[C * Y * X];
    fill(pixels, COUNT(pixels), 1);
    attn_context *context = begin();
    attn_tape *tape;
    if (attn_tape_create(&tape, context) != ATTN_OK)
        return 1;
    attn_tape_reset(tape, NULL);
    attn_tensor *image = attn_tape_tensor(tape, ATTN_F32, 4, (int64_t[]){1, C, Y, X}, pixels);
    attn_tensor *everywhere = run_layer(context, tape, image, 0);
    attn_tensor *wide = run_layer(context, tape, image, 2 * SIDE - 1), *narrow = run_layer(context, tape, image, 3);
    if (!everywhere || !wide || !narrow) {
        printf("%s\n", attn_context_error(context));
        return 1;
    }
    double same = 0, other = 0;
    for (int64_t i = 0; i < attn_tensor_size(wide); i++) {
        const float *a = attn_tensor_data(everywhere), *b = attn_tensor_data(wide), *c = attn_tensor_data(narrow);
        same = fmax(same, fabs((double)a[i] - (double)b[i]));
        other = fmax(other, fabs((double)a[i] - (double)c[i]));
    }
    printf("window of %d: %.1e from attention over the whole image; of 3: %.1e\n", 2 * SIDE - 1, same, other);
    claim(same < 1e-5 && other > 1e-2, "a window as wide as the image sees all of it");
    attn_tape_destroy(tape);
    attn_context_destroy(context);
    return 0;
}
