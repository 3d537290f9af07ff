/* SPDX-License-Identifier: MIT
 *
 * Draws a classifier's attention as a picture or as an interactive page.
 */
#include "apps/classifier/classifier.h"

#include "base/context.h"

#include <stdio.h>

enum { LARGEST = 336 };

static const char *about(const attn__attention *a)
{
    if (a->blocks[0].before > 0)
        return "What each patch, and the class token, attends to. Rollout is how much of each patch has reached the "
               "class "
               "token by the last layer (Abnar and Zuidema 2020): an estimate, not an explanation.";
    switch (a->blocks[0].where) {
    case ATTN_KEYS_WINDOW:
        return "What each pixel attends to in the window around it. Later layers see coarser grids.";
    case ATTN_KEYS_CROSS:
        return "What each patch attends to in its row and in its column: the weights of each of the two sum to 1.";
    default:
        return "What each position attends to in the non-local blocks, whose keys are the largest of 2 x 2 positions.";
    }
}

/* Resizes the picture twice: to the model's size (*fitted), and to the size in which it is drawn (*large). The drawn
 * picture has the proportions of the model's input. It is as large as the original, up to a limit. */
static attn_status prepare(const attn_classifier *c, const attn_image *image, attn_image *fitted, attn_image *large)
{
    attn_image_shape s = c->shape;
    attn_image coloured = {0};
    int64_t zoom = LARGEST / s.width;
    zoom = image->width / s.width < zoom ? image->width / s.width : zoom;
    zoom = image->height / s.height < zoom ? image->height / s.height : zoom;
    zoom = zoom < 1 ? 1 : zoom;
    attn__image_fitting fitting = c->pixels.fitting;
    fitting.side *= zoom;
    attn_status status = attn__classifier_fit(c, image, fitted);
    if (status == ATTN_OK)
        status = attn_image_convert(&coloured, c->context, image, (int)s.channels);
    if (status == ATTN_OK)
        status = attn__image_fit(large, c->context, &coloured, s.width * zoom, s.height * zoom, &fitting);
    attn_image_free(c->context, &coloured);
    return status;
}

static attn_status draw(attn_classifier *c, const attn_image *fitted, const attn_image *large,
                        const attn_classifier_view *view, attn_plot_format format, attn_bytes *picture,
                        attn_prediction *guess)
{
    char title[160];
    attn__attention attention;
    attn_status status = attn__classifier_attention(&attention, c, fitted, guess);
    if (status == ATTN_OK) {
        snprintf(title, sizeof title, "%.100s (%.0f %%)", c->classes[guess->label], 100 * guess->probability);
        status = attn__attention_draw(picture, &attention, view, large, title, about(&attention), format);
    }
    attn__attention_free(&attention);
    return status;
}

attn_status attn_classifier_render_attention(attn_classifier *c, const attn_image *image,
                                             const attn_classifier_view *view, attn_plot_format format,
                                             attn_bytes *picture, attn_prediction *guess)
{
    ATTN__CALL(c->context);
    attn_image fitted = {0}, large = {0};
    attn_classifier_view plain = {0};
    attn_prediction unwanted;
    *picture = (attn_bytes){0};
    if (ATTN__CHECK_RESERVED(c->context, view, attn_classifier_view) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    attn_status status = prepare(c, image, &fitted, &large);
    if (status == ATTN_OK)
        status = draw(c, &fitted, &large, view ? view : &plain, format, picture, guess ? guess : &unwanted);
    attn_image_free(c->context, &fitted);
    attn_image_free(c->context, &large);
    return status;
}
