/* SPDX-License-Identifier: MIT
 *
 * Draws new images, and completes images whose first rows are given.
 */
#include "apps/generator/generator.h"

#include "base/context.h"
#include "base/rng.h"

#include <string.h>

/* Number of images that are drawn together. It is enough to fill the vector units. The groups are fixed, so the
 * noise of an image does not depend on the number of requested images. */
enum { AT_ONCE = 16 };

/* -------------------------------------------------------------------------------------- levels and samples */

static int64_t plane_of(const attn_generator *g)
{
    return g->shape.width * g->shape.height;
}

static int64_t frame_of(const attn_generator *g)
{
    return g->shape.channels * plane_of(g);
}

void attn__generator_put_rows(const attn_generator *g, const attn_image *image, int64_t rows, int32_t *x)
{
    for (int64_t p = 0; p < rows * g->shape.width; p++)
        for (int64_t c = 0; c < g->shape.channels; c++)
            x[c * plane_of(g) + p] = attn__level_of(image->pixels[p * g->shape.channels + c], g->levels);
}

/* Converts the rows [first, height) of the levels x [C,Y,X] to samples of an image. */
static void take_rows(const attn_generator *g, const int32_t *x, int64_t first, attn_image *image)
{
    for (int64_t p = first * g->shape.width; p < plane_of(g); p++)
        for (int64_t c = 0; c < g->shape.channels; c++)
            image->pixels[p * g->shape.channels + c] = attn__sample_of(x[c * plane_of(g) + p], g->levels);
}

/* ---------------------------------------------------------------------------------------------- drawing */

/* Returns the sampler's options for one group of images. Earlier groups have already drawn `before` of `all` rows.
 * Both numbers are used for the progress reports. */
static attn_axial_transformer_options sampling(const attn_generator *g, const attn_generator_options *options,
                                               int64_t group, int64_t before, int64_t all)
{
    return (attn_axial_transformer_options){
        .seed = group == 0 ? options->seed : attn__mix64(options->seed + (uint64_t)group),
        .temperature = options->temperature,
        .slow = g->slow,
        .rows_before = before,
        .rows_all = all,
    };
}

static attn_status numbers_of(attn_tensor **x, const attn_generator *g, attn_dtype dtype, int64_t n)
{
    return attn_tensor_create(x, g->context, dtype, 4,
                              (int64_t[]){n, g->shape.frames * g->shape.channels, g->shape.height, g->shape.width});
}

static attn_status draw_group(attn_generator *g, attn_image *images, int64_t n,
                              const attn_axial_transformer_options *options)
{
    attn_tensor *x = NULL;
    attn_status status = numbers_of(&x, g, ATTN_I32, n);
    if (status == ATTN_OK)
        status = attn_axial_transformer_sample(g->model, x, options);
    for (int64_t i = 0; i < n * g->shape.frames && status == ATTN_OK; i++) {
        status = attn_image_alloc(&images[i], g->context, g->shape.width, g->shape.height, (int)g->shape.channels);
        if (status == ATTN_OK)
            take_rows(g, (const int32_t *)attn_tensor_data(x) + i * frame_of(g), 0, &images[i]);
    }
    attn_tensor_destroy(x);
    return status;
}

attn_status attn_generator_draw(attn_generator *g, int64_t n, const attn_generator_options *options, attn_image *images)
{
    ATTN__CALL(g->context);
    if (ATTN__CHECK_RESERVED(g->context, options, attn_generator_options) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    attn_generator_options plain = {0};
    int64_t frames = g->shape.frames, groups = (n + AT_ONCE - 1) / AT_ONCE;
    int64_t rows = g->shape.height * g->shape.channels * frames;
    options = options ? options : &plain;
    if (n < 1)
        return attn__fail(g->context, ATTN_ERROR_ARGUMENT, "%lld images are requested; expected 1 or more",
                          (long long)n);
    for (int64_t i = 0; i < n * frames; i++)
        images[i] = (attn_image){0};
    attn_status status = ATTN_OK;
    for (int64_t k = 0; k < groups && status == ATTN_OK; k++) {
        attn_axial_transformer_options how = sampling(g, options, k, k * rows, groups * rows);
        int64_t left = n - k * AT_ONCE;
        status = draw_group(g, images + k * AT_ONCE * frames, left < AT_ONCE ? left : AT_ONCE, &how);
    }
    for (int64_t i = 0; i < n * frames && status != ATTN_OK; i++)
        attn_image_free(g->context, &images[i]);
    return status;
}

/* -------------------------------------------------------------------------------------------- completing */

attn_status attn__generator_fit(const attn_generator *g, const attn_image *image, attn_image *fitted)
{
    attn_image coloured = {0};
    attn_status status = attn_image_convert(&coloured, g->context, image, (int)g->shape.channels);
    if (status == ATTN_OK)
        status =
            attn_image_fit(fitted, g->context, &coloured, g->shape.width, g->shape.height, ATTN_IMAGE_FILTER_BICUBIC);
    attn_image_free(g->context, &coloured);
    return status;
}

/* The given part of a video: all frames before `last`, and the first rows of frame `last`. */
typedef struct given_part {
    int64_t last, rows;
} given_part;

static int64_t rows_given(const attn_generator *g, given_part given, int64_t frame)
{
    return frame < given.last ? g->shape.height : frame == given.last ? given.rows : 0;
}

static attn_status draw_rest(attn_generator *g, attn_image *images, given_part given,
                             const attn_generator_options *options)
{
    attn_axial_transformer_options how = sampling(g, options, 0, 0, 0);
    attn_tensor *x = NULL, *known = NULL;
    attn_status status = numbers_of(&x, g, ATTN_I32, 1);
    if (status == ATTN_OK)
        status = numbers_of(&known, g, ATTN_U8, 1);
    for (int64_t f = 0; status == ATTN_OK && f < g->shape.frames; f++) {
        int64_t rows = rows_given(g, given, f);
        attn__generator_put_rows(g, &images[f], rows, (int32_t *)attn_tensor_data(x) + f * frame_of(g));
        for (int64_t c = 0; c < g->shape.channels; c++)
            memset((unsigned char *)attn_tensor_data(known) + f * frame_of(g) + c * plane_of(g), 1,
                   (size_t)(rows * g->shape.width));
    }
    how.known = known;
    if (status == ATTN_OK)
        status = attn_axial_transformer_sample(g->model, x, &how);
    for (int64_t f = 0; status == ATTN_OK && f < g->shape.frames; f++)
        take_rows(g, (const int32_t *)attn_tensor_data(x) + f * frame_of(g), rows_given(g, given, f), &images[f]);
    attn_tensor_destroy(x);
    attn_tensor_destroy(known);
    return status;
}

static attn_status check_given(const attn_generator *g, int64_t frames, int64_t rows)
{
    if (frames < 1 || frames > g->shape.frames)
        return attn__fail(g->context, ATTN_ERROR_ARGUMENT,
                          "%lld frames are given; expected 1 to %lld, the frames of the model's videos",
                          (long long)frames, (long long)g->shape.frames);
    if (rows < 0 || rows > g->shape.height)
        return attn__fail(g->context, ATTN_ERROR_ARGUMENT,
                          "rows is %lld; it must be between 0 and %lld, the height of the model's images",
                          (long long)rows, (long long)g->shape.height);
    return ATTN_OK;
}

attn_status attn_generator_complete(attn_generator *g, const attn_image *given, int64_t rows,
                                    const attn_generator_options *options, attn_image *done)
{
    ATTN__CALL(g->context);
    attn_generator_options plain = {0};
    int64_t all = g->shape.frames, frames = all > 1 && options ? options->frames : all > 1 ? 0 : 1;
    for (int64_t f = 0; f < all; f++)
        done[f] = (attn_image){0};
    if (ATTN__CHECK_RESERVED(g->context, options, attn_generator_options) != ATTN_OK ||
        check_given(g, frames, rows) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    attn_status status = ATTN_OK;
    for (int64_t f = 0; f < all && status == ATTN_OK; f++)
        status = f < frames
                     ? attn__generator_fit(g, &given[f], &done[f])
                     : attn_image_alloc(&done[f], g->context, g->shape.width, g->shape.height, (int)g->shape.channels);
    if (status == ATTN_OK)
        status = draw_rest(g, done, (given_part){frames - 1, rows}, options ? options : &plain);
    for (int64_t f = 0; f < all && status != ATTN_OK; f++)
        attn_image_free(g->context, &done[f]);
    return status;
}
