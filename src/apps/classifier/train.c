/* SPDX-License-Identifier: MIT
 *
 * Trains a classifier. Makes batches from the data, and implements the callbacks of a run (run.h).
 */
#include "apps/classifier/classifier.h"

#include "apps/images/training.h"
#include "base/context.h"

#include <string.h>

typedef struct training {
    attn__image_training data;
    attn__pixels pixels;
    attn__seen seen;
} training;

static attn_status prepare_data(training *t)
{
    const bool d2l = attn__classifier_is_d2l(t->data.run.settings);
    const attn_image_filter filter = d2l ? ATTN_IMAGE_FILTER_BILINEAR : ATTN_IMAGE_FILTER_BICUBIC;
    attn_status status = attn__image_training_check(&t->data.run);
    if (status == ATTN_OK && d2l && strcmp(attn_config_text(t->data.run.settings, "model", ""), "vit") != 0)
        status = attn__fail(t->data.run.context, ATTN_ERROR_ARGUMENT, "compat=d2l supports the model vit only, not %s",
                            attn_config_text(t->data.run.settings, "model", ""));
    if (status == ATTN_OK)
        status = attn__image_training_read(&t->data, false, filter);
    if (status != ATTN_OK)
        return status;
    attn_image_set_statistics(t->data.train, t->pixels.mean, t->pixels.std);
    for (int c = 0; d2l && c < 3; c++) {
        t->pixels.mean[c] = 0;
        t->pixels.std[c] = 1;
    }
    t->pixels.fitting.filter = filter;
    attn__classifier_see(&t->seen, t->data.train);
    return attn__image_training_batches(&t->data, t->pixels.mean, t->pixels.std);
}

/* ------------------------------------------------------------------------------------------------- job */

static attn_tensor *job_loss(void *user, attn_tape *tape, int64_t epoch, int64_t step, int64_t *counted)
{
    training *t = user;
    attn_image_batch batch;
    if (!attn__image_training_seek(&t->data, tape, epoch, step, &batch, counted))
        return NULL;
    attn_cross_entropy_options options = {.label_smoothing =
                                              attn_config_real(t->data.run.settings, "label_smoothing", 0)};
    attn_tensor *labels = attn_tape_tensor(tape, ATTN_I32, 1, &batch.size, batch.labels);
    attn_tensor *logits = attn__classifier_logits(t->data.run.model, tape, t->data.shape, batch.x, batch.size);
    return attn_cross_entropy(tape, logits, labels, &options);
}

static attn_status job_validate(void *user, attn_tape *tape, double *loss)
{
    training *t = user;
    int64_t right = 0;
    attn_status status = attn__classifier_measure(t->data.run.model, tape, t->data.shape, t->data.source.nclasses,
                                                  t->data.valid_batches, loss, &right, NULL);
    t->data.run.measure = (double)right / (double)attn_image_set_size(t->data.valid);
    return status;
}

/* ------------------------------------------------------------------------------------------------- run */

static attn_status run_prepare(attn__run *run)
{
    return prepare_data(run->self);
}

static attn_status run_create(attn__run *run)
{
    const training *t = run->self;
    return attn__classifier_model(&run->model, run->context, run->settings, t->data.shape, t->data.source.nclasses);
}

static attn_status run_from(attn__run *run, const char *path)
{
    const training *t = run->self;
    return attn__classifier_from(&run->model, run->context, path, run->settings, t->data.shape, t->data.source.nclasses,
                                 &run->taken);
}

static attn_status run_write(const attn__run *run)
{
    const training *t = run->self;
    return attn__classifier_write(run->model, run->settings, t->data.shape, &t->pixels, &t->seen,
                                  t->data.source.classes, t->data.source.nclasses, run->directory);
}

static attn_status run_measure_data(const attn__run *run, attn_config *sizes, attn_trainer_plan *plan)
{
    const training *t = run->self;
    attn_status status = attn__image_training_sizes(&t->data, sizes, plan);
    return status == ATTN_OK ? attn_config_set_int(sizes, "classes", t->data.source.nclasses) : status;
}

const attn__run_kind attn__classifier_training_kind = {
    .about = &attn__classifier_trainer,
    .product = ATTN__PRODUCT_CLASSIFIER,
    .size = sizeof(training),
    .keys = &attn__classifier_keys,
    .measure = "valid_accuracy",
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
