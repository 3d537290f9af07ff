/* SPDX-License-Identifier: MIT
 *
 * Measures how many bits per dimension images cost, for a generator and for a baseline of independent pixels.
 */
#include "apps/generator/generator.h"

#include "base/clock.h"
#include "base/context.h"
#include "dist/ranks.h"

#include <math.h>

enum { AT_ONCE = 32 };

attn_tensor *attn__generator_numbers(attn_tape *tape, const attn_image_batch *batch, attn_image_shape shape,
                                     int64_t levels)
{
    int64_t dims[] = {batch->size, shape.frames * shape.channels, shape.height, shape.width};
    attn_tensor *x = attn_tape_tensor(tape, ATTN_I32, 4, dims, NULL);
    /* Batches hold each sample divided by 255, as a float. Multiplying by 255 and rounding gives the exact sample
     * again. */
    for (int64_t i = 0; x && i < attn_tensor_size(x); i++)
        ((int32_t *)attn_tensor_data(x))[i] = attn__level_of((unsigned char)lrintf(batch->x[i] * 255), levels);
    return x;
}

attn_status attn__generator_bits(attn_model *model, attn_tape *tape, attn_image_batches *batches,
                                 attn_image_shape shape, int64_t levels, double *bits)
{
    attn_context *context = attn_model_context(model);
    double sums[2] = {0, 0}; /* sum of the losses, and number of images */
    int64_t done = 0;
    attn_image_batch batch;
    attn_status status = ATTN_OK;
    attn_image_batches_seek(batches, 0, 0);
    while (status == ATTN_OK && attn_image_batches_next(batches, &batch)) {
        attn_tape_reset(tape, NULL);
        status = attn__ranks_poll(context);
        if (batch.stands_in)
            continue;
        attn_tensor *x = attn__generator_numbers(tape, &batch, shape, levels);
        attn_tensor *loss = x ? attn_axial_transformer_bits(model, tape, x, NULL) : NULL;
        if (!loss)
            return attn__result_status(context, loss);
        sums[0] += (double)*(const float *)attn_tensor_data(loss) * (double)batch.size;
        sums[1] += (double)batch.size;
        if (status == ATTN_OK)
            status = attn__work(context, "batches of images", ++done, attn_image_batches_count(batches));
    }
    if (status == ATTN_OK && attn_image_batches_sharded(batches))
        status = attn__ranks_sum(context, sums, 2, ATTN__SUM_F64);
    *bits = sums[1] > 0 ? sums[0] / sums[1] : NAN;
    return status;
}

static attn_status measure_model(attn_generator *g, const attn_image_set *set, attn_generator_score *score)
{
    attn_image_batches_options options = {.size = AT_ONCE, .in_order = true};
    attn_image_batches *batches = NULL;
    attn_tape *tape;
    attn_status status = attn_tape_create(&tape, g->context);
    if (status != ATTN_OK)
        return status;
    status = attn_image_batches_create(&batches, g->context, set, &options);
    double start = attn__now();
    if (status == ATTN_OK)
        status = attn__generator_bits(g->model, tape, batches, g->shape, g->levels, &score->bits);
    score->images_per_second = (double)score->images / (attn__seconds_since(start) + 1e-9);
    attn_image_batches_destroy(batches);
    attn_tape_destroy(tape);
    return status;
}

/* -------------------------------------------------------------------------------------------- baseline */

/* Counts the levels in the images of a set. counts[i * levels + level] becomes the number of images whose sample i
 * has this level. */
static void count(const attn_image_set *set, int64_t dims, int64_t levels, int64_t *counts)
{
    for (int64_t i = 0; i < attn_image_set_size(set); i++) {
        const unsigned char *pixels = attn_image_set_pixels(set, i);
        for (int64_t d = 0; d < dims; d++)
            counts[d * levels + attn__level_of(pixels[d], levels)]++;
    }
}

/* Returns the mean of -log2 p over all samples of all images of `set`. p is (count + 1) / (images + K), where K is
 * the number of levels. The added 1 keeps the logarithm finite. */
static double independent_bits(const attn_image_set *set, int64_t dims, int64_t levels, const int64_t *counts,
                               int64_t learned)
{
    double sum = 0;
    for (int64_t i = 0; i < attn_image_set_size(set); i++) {
        const unsigned char *pixels = attn_image_set_pixels(set, i);
        for (int64_t d = 0; d < dims; d++)
            sum += log2((double)(learned + levels)) -
                   log2((double)(counts[d * levels + attn__level_of(pixels[d], levels)] + 1));
    }
    return sum / ((double)attn_image_set_size(set) * (double)dims);
}

static attn_status measure_baseline(attn_generator *g, const attn_image_set *train, const attn_image_set *set,
                                    attn_generator_score *score)
{
    size_t cells = attn__size_mul((size_t)score->dims, (size_t)g->levels);
    int64_t *counts = attn__alloc_zero(g->context, attn__size_mul(cells, sizeof *counts));
    if (!counts)
        return ATTN_ERROR_MEMORY;
    count(train, score->dims, g->levels, counts);
    score->baseline = independent_bits(set, score->dims, g->levels, counts, attn_image_set_size(train));
    attn__free(g->context, counts);
    return ATTN_OK;
}

/* --------------------------------------------------------------------------------------------- the whole */

static attn_status measure_part(attn_generator *g, const attn__image_source *source, attn_split part,
                                attn_generator_score *score)
{
    static const char *const names[] = {[ATTN_SPLIT_ALL] = "all",
                                        [ATTN_SPLIT_TRAIN] = "train",
                                        [ATTN_SPLIT_VALID] = "valid",
                                        [ATTN_SPLIT_TEST] = "test"};
    attn_image_set *train = NULL, *valid = NULL, *test = NULL, *all = NULL;
    attn_status status = attn__image_source_split(source, g->config, &train, &valid, &test);
    if (status == ATTN_OK)
        status = attn__image_source_whole(source, &all);
    if (status == ATTN_OK) {
        const attn_image_set *set = part == ATTN_SPLIT_TRAIN   ? train
                                    : part == ATTN_SPLIT_VALID ? valid
                                    : part == ATTN_SPLIT_TEST  ? test
                                                               : all;
        score->images = attn_image_set_size(set);
        if (score->images == 0)
            status =
                attn__fail(g->context, ATTN_ERROR_ARGUMENT, "the part \"%s\" of the data has no images", names[part]);
        if (status == ATTN_OK)
            status = measure_baseline(g, train, set, score);
        if (status == ATTN_OK)
            status = measure_model(g, set, score);
    }
    attn_image_set_destroy(train);
    attn_image_set_destroy(valid);
    attn_image_set_destroy(test);
    attn_image_set_destroy(all);
    return status;
}

attn_status attn_generator_evaluate(attn_generator *g, const char *data, attn_split part, attn_generator_score *score)
{
    ATTN__CALL(g->context);
    attn__image_wish wish = {
        .shape = g->shape, .videos = g->shape.frames > 1, .fitting = {ATTN_IMAGE_FILTER_BICUBIC}, .unlabelled = true};
    attn__image_source source;
    *score = (attn_generator_score){.dims = attn__image_numbers(g->shape)};
    attn_status status = attn__check_choice(g->context, "the part of the data", (int)part, ATTN_SPLIT_TEST);
    if (status == ATTN_OK)
        status = attn__image_source_read(&source, g->context, data, &wish);
    if (status != ATTN_OK)
        return status;
    status = measure_part(g, &source, part, score);
    attn__image_source_free(&source);
    return status;
}
