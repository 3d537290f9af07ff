/* SPDX-License-Identifier: MIT
 *
 * Trains a generator. Makes batches of levels, and implements the callbacks of a run (run.h).
 */
#include "apps/generator/generator.h"

#include "apps/images/training.h"
#include "base/context.h"
#include "base/rng.h"

typedef struct training {
    attn__image_training data;
    int64_t levels;
} training;

static attn_status prepare_data(training *t)
{
    double smoothing = attn_config_real(t->data.run.settings, "label_smoothing", 0);
    attn_status status = attn__image_training_check(&t->data.run);
    if (status == ATTN_OK && smoothing > 0)
        status = attn__fail(t->data.run.context, ATTN_ERROR_ARGUMENT,
                            "label_smoothing is %g; it must be 0, because the loss of images is measured in bits",
                            smoothing);
    if (status == ATTN_OK)
        status = attn__image_training_read(&t->data, true, ATTN_IMAGE_FILTER_BICUBIC);
    t->levels = attn_config_int(t->data.run.settings, "levels", 256);
    return status == ATTN_OK ? attn__image_training_batches(&t->data, NULL, NULL) : status;
}

/* ------------------------------------------------------------------------------------------------- job */

/* Draws one random slice for each image, I32 [B]. A slice is a channel of a frame. The slices depend only on the
 * seed, the epoch and the step, so a resumed run draws the same slices. */
static attn_tensor *random_slices(const training *t, attn_tape *tape, const attn_image_batch *batch, int64_t epoch,
                                  int64_t step)
{
    attn_tensor *slices = attn_tape_tensor(tape, ATTN_I32, 1, &batch->size, NULL);
    attn__rng rng = {.seed = attn__mix64((uint64_t)attn_config_int(t->data.run.settings, "seed", 1) ^ (uint64_t)epoch),
                     .stream = (uint64_t)step};
    /* the draws before batch->first belong to images of other ranks and are not used */
    for (int64_t i = 0; slices && i < batch->first + batch->size; i++) {
        int32_t drawn = (int32_t)attn__rng_below(&rng, (uint64_t)(t->data.shape.channels * t->data.shape.frames));
        if (i >= batch->first)
            ((int32_t *)attn_tensor_data(slices))[i - batch->first] = drawn;
    }
    return slices;
}

static attn_tensor *job_loss(void *user, attn_tape *tape, int64_t epoch, int64_t step, int64_t *counted)
{
    training *t = user;
    attn_image_batch batch;
    if (!attn__image_training_seek(&t->data, tape, epoch, step, &batch, counted))
        return NULL;
    attn_tensor *x = attn__generator_numbers(tape, &batch, t->data.shape, t->levels);
    attn_tensor *slices = random_slices(t, tape, &batch, epoch, step);
    return x && slices ? attn_axial_transformer_bits(t->data.run.model, tape, x, slices) : NULL;
}

static attn_status job_validate(void *user, attn_tape *tape, double *loss)
{
    const training *t = user;
    return attn__generator_bits(t->data.run.model, tape, t->data.valid_batches, t->data.shape, t->levels, loss);
}

/* ------------------------------------------------------------------------------------------------- run */

static attn_status run_prepare(attn__run *run)
{
    return prepare_data(run->self);
}

static attn_status run_create(attn__run *run)
{
    return attn__generator_model(&run->model, run->context, run->settings, ((const training *)run->self)->data.shape);
}

/* Loads the model of a directory. It must be for pictures of the same size. */
static attn_status run_from(attn__run *run, const char *path)
{
    attn_generator *generator = NULL;
    const attn_image_shape shape = ((const training *)run->self)->data.shape;
    attn_status status =
        attn_generator_load(&generator, run->context, path, attn_config_text(run->settings, "names", NULL));
    if (status != ATTN_OK)
        return status;
    const attn_model *model = attn_generator_model(generator);
    const attn_config *its = attn_model_config(model);
    attn_image_shape own = {attn_config_int(its, "width", 0), attn_config_int(its, "height", 0),
                            attn_config_int(its, "channels", 0), attn_config_int(its, "frames", 1)};
    int64_t levels = attn_config_int(its, "levels", 0), asked = attn_config_int(run->settings, "levels", 0);
    if (own.frames != shape.frames)
        status = attn__fail(run->context, ATTN_ERROR_SHAPE, "%s: the model has %lld frames, but the data have %lld",
                            path, (long long)own.frames, (long long)shape.frames);
    else if (own.height != shape.height || own.width != shape.width)
        status = attn__fail(
            run->context, ATTN_ERROR_SHAPE,
            "%s: the model draws pictures %lld pixels high and %lld wide, but those of the data are %lld high and %lld wide",
            path, (long long)own.height, (long long)own.width, (long long)shape.height, (long long)shape.width);
    else if (own.channels != shape.channels)
        status = attn__fail(run->context, ATTN_ERROR_SHAPE, "%s: the model has %lld channels, but the data have %lld",
                            path, (long long)own.channels, (long long)shape.channels);
    else if (levels != asked)
        status = attn__fail(run->context, ATTN_ERROR_SHAPE, "%s: the model has %lld levels, but levels is %lld", path,
                            (long long)levels, (long long)asked);
    if (status == ATTN_OK)
        status = attn__run_copy_model(run, model, NULL, NULL);
    attn_generator_destroy(generator);
    return status;
}

static attn_status run_write(const attn__run *run)
{
    return attn__generator_write(run->model, run->settings, run->directory);
}

static attn_status run_measure_data(const attn__run *run, attn_config *sizes, attn_trainer_plan *plan)
{
    const training *t = run->self;
    attn_status status = attn__image_training_sizes(&t->data, sizes, plan);
    return status == ATTN_OK ? attn_config_set_int(sizes, "levels", t->levels) : status;
}

const attn__run_kind attn__generator_training_kind = {
    .about = &attn__generator_trainer,
    .product = ATTN__PRODUCT_GENERATOR,
    .size = sizeof(training),
    .keys = &attn__generator_keys,
    .prepare = run_prepare,
    .create = run_create,
    .from = run_from,
    .write = run_write,
    .measure_data = run_measure_data,
    .steps = attn__image_training_steps,
    .loss = job_loss,
    .validate = job_validate,
    .release = attn__image_training_release,
};
