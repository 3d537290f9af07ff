/* SPDX-License-Identifier: MIT
 * Training a generator: data to batches of levels, and what a run (run.h) asks for. */
#include "apps/generator.h"

#include "apps/run.h"
#include "base/context.h"
#include "base/rng.h"

#include <math.h>

typedef struct training {
    attn__run run;
    const attn_generator_job *job;
    attn__image_source source;
    attn_image_set *train, *valid, *test;
    attn_image_shape shape;
    int64_t levels;
    attn_image_batches *train_batches, *valid_batches; /* valid: NULL if there is nothing to validate on */
} training;

/* ------------------------------------------------------------------------------------------------ data */

attn_status attn__generator_split(const attn__image_source *source, const attn_config *settings,
                                  attn_image_set **train, attn_image_set **valid, attn_image_set **test)
{
    return attn__image_source_split(source, (uint64_t)attn_config_int(settings, "seed", 1),
                                    attn_config_real(settings, "valid", 0), attn_config_real(settings, "test", 0),
                                    train, valid, test);
}

static attn_status read_source(training *t)
{
    const attn_config *s = t->run.settings;
    int64_t size = attn_config_int(s, "size", 0), channels = attn_config_int(s, "channels", 0);
    attn__image_wish wish = {.shape = {size, size, channels}, .unlabelled = true};
    if (channels == 2)
        return attn__fail(t->run.context, ATTN_ARGUMENT, "channels is 2; allowed: 0, 1, 3");
    if (!t->run.data)
        return attn__fail(t->run.context, ATTN_ARGUMENT, "there is no data to train on: its folder is needed");
    if (attn_config_real(s, "label_smoothing", 0) > 0)
        return attn__fail(t->run.context, ATTN_ARGUMENT,
                          "label_smoothing is %g; the loss of images is in bits, which only 0 gives",
                          attn_config_real(s, "label_smoothing", 0));
    attn_status status = attn__image_source_read(&t->source, t->run.context, t->run.data, &wish);
    if (status != ATTN_OK)
        return status;
    t->run.fingerprint = attn_image_set_fingerprint(t->source.train);
    if (t->source.test)
        t->run.fingerprint = attn__mix64(t->run.fingerprint ^ attn_image_set_fingerprint(t->source.test));
    return attn__run_check_data(&t->run);
}

static attn_status make_batches(training *t, const attn_image_set *set, bool shuffled, attn_image_batches **batches)
{
    const attn_config *s = t->run.settings;
    attn_image_batches_options options = {
        .size = attn_config_int(s, "batch", 32),
        .seed = (uint64_t)attn_config_int(s, "seed", 1),
        .in_order = !shuffled,
        .flip = shuffled && attn_config_bool(s, "flip", false),
        .shift = shuffled ? attn_config_int(s, "shift", 0) : 0,
    };
    return attn_image_batches_create(batches, t->run.context, set, &options);
}

static attn_status prepare_data(training *t)
{
    attn_status status = read_source(t);
    if (status == ATTN_OK)
        status = attn__generator_split(&t->source, t->run.settings, &t->train, &t->valid, &t->test);
    if (status == ATTN_OK && attn_image_set_size(t->train) == 0)
        status = attn__fail(t->run.context, ATTN_ARGUMENT, "no images are left for training out of %lld",
                            (long long)attn_image_set_size(t->source.train));
    if (status != ATTN_OK)
        return status;
    t->shape = attn_image_set_shape(t->train);
    t->levels = attn_config_int(t->run.settings, "levels", 256);
    status = make_batches(t, t->train, true, &t->train_batches);
    if (status == ATTN_OK && attn_image_set_size(t->valid) > 0)
        status = make_batches(t, t->valid, false, &t->valid_batches);
    return status;
}

/* ------------------------------------------------------------------------------------------------- job */

static int64_t job_steps(void *user)
{
    return attn_image_batches_count(((const training *)user)->train_batches);
}

/* One channel of each image, I32 [B]: a function of seed, epoch and step, so that a resumed run draws the same. */
static attn_tensor *random_slices(const training *t, attn_tape *tape, int64_t n, int64_t epoch, int64_t step)
{
    attn_tensor *slices = attn_tensor_make(tape, ATTN_I32, 1, &n, NULL);
    attn__rng rng = {.seed = attn__mix64((uint64_t)attn_config_int(t->run.settings, "seed", 1) ^ (uint64_t)epoch),
                     .stream = (uint64_t)step};
    for (int64_t i = 0; slices && i < n; i++)
        ((int32_t *)attn_tensor_data(slices))[i] = (int32_t)attn__rng_below(&rng, (uint64_t)t->shape.channels);
    return slices;
}

static attn_tensor *job_loss(void *user, attn_tape *tape, int64_t epoch, int64_t step, int64_t *counted)
{
    const training *t = user;
    attn_image_batch batch;
    attn_image_batches_seek(t->train_batches, epoch, step);
    if (!attn_image_batches_next(t->train_batches, &batch)) {
        attn__fail(t->run.context, ATTN_INTERNAL, "epoch %lld has no step %lld", (long long)epoch, (long long)step);
        return NULL;
    }
    *counted = batch.size;
    attn_tensor *x = attn__generator_numbers(tape, &batch, t->shape, t->levels);
    attn_tensor *slices = random_slices(t, tape, batch.size, epoch, step);
    return x && slices ? attn_images_bits(t->run.model, tape, x, slices) : NULL;
}

static attn_status job_validate(void *user, attn_tape *tape, double *loss)
{
    const training *t = user;
    return attn__generator_bits(t->run.model, tape, t->valid_batches, t->shape, t->levels, loss);
}

/* ------------------------------------------------------------------------------------------------- run */

static attn_status run_prepare(attn__run *run)
{
    training *t = run->self;
    attn_status status = prepare_data(t);
    if (status == ATTN_OK)
        status = attn__generator_model(&run->model, run->context, run->settings, t->shape);
    run->no_validation = !t->valid_batches;
    return status;
}

static attn_status run_write(const attn__run *run)
{
    return attn__generator_write(run->model, run->settings, run->directory);
}

static void run_announce(const attn__run *run)
{
    const training *t = run->self;
    if (!t->job->begin)
        return;
    attn_generator_plan plan = {
        .settings = run->settings,
        .shape = t->shape,
        .levels = t->levels,
        .train_images = attn_image_set_size(t->train),
        .valid_images = attn_image_set_size(t->valid),
        .test_images = attn_image_set_size(t->test),
        .parameters = attn__run_parameters(run),
        .steps_per_epoch = attn_image_batches_count(t->train_batches),
        .epochs = run->epochs,
        .first_epoch = attn__run_epoch(run) + 1,
    };
    t->job->begin(t->job->user, &plan);
}

static const attn__run_kind kind = {
    .keys = &attn__generator_keys,
    .prepare = run_prepare,
    .write = run_write,
    .announce = run_announce,
    .steps = job_steps,
    .loss = job_loss,
    .validate = job_validate,
};

attn_status attn_generator_train(attn_context *context, const attn_generator_job *job)
{
    training t = {.job = job};
    t.run = (attn__run){.context = context,
                        .kind = &kind,
                        .self = &t,
                        .directory = job->directory,
                        .data = job->data,
                        .given = job->settings,
                        .resume = job->resume,
                        .progress = job->progress,
                        .user = job->user};
    attn_status status = attn__run_train(&t.run);
    attn_model_destroy(t.run.model);
    attn_image_batches_destroy(t.train_batches);
    attn_image_batches_destroy(t.valid_batches);
    attn_image_set_destroy(t.train);
    attn_image_set_destroy(t.valid);
    attn_image_set_destroy(t.test);
    attn__image_source_free(&t.source);
    return status;
}
