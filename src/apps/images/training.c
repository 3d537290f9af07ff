/* SPDX-License-Identifier: MIT */
#include "apps/images/training.h"

#include "base/context.h"
#include "base/rng.h"
#include "tensor/tape_state.h"

#include <string.h>

attn_status attn__image_training_check(const attn__run *run)
{
    if (attn_config_int(run->settings, "channels", 0) == 2)
        return attn__fail(run->context, ATTN_ERROR_ARGUMENT, "channels is 2; allowed: 0, 1, 3");
    return ATTN_OK;
}

static attn_status read_size(const attn__run *run, int64_t sides[2])
{
    attn_status status = attn__config_need_sides(sides, run->context, run->settings, "size", "");
    if (status == ATTN_OK && (sides[0] == 0) != (sides[1] == 0))
        status = attn__fail(run->context, ATTN_ERROR_ARGUMENT,
                            "size is %lld x %lld; both sides must be above 0, or both 0 (the images keep their size)",
                            (long long)sides[0], (long long)sides[1]);
    return status;
}

static attn_status read_source(attn__image_training *t, bool unlabelled, attn_image_filter filter)
{
    attn__run *run = &t->run;
    int64_t sides[2];
    attn_status status = read_size(run, sides);
    attn__image_wish wish = {.shape = {sides[1], sides[0], attn_config_int(run->settings, "channels", 0), 0},
                             .videos = attn_config_bool(run->settings, "video", false),
                             .fitting = {filter},
                             .unlabelled = unlabelled};
    if (status == ATTN_OK)
        status = attn__image_source_read(&t->source, run->context, run->data, &wish);
    if (status != ATTN_OK)
        return status;
    run->fingerprint = attn_image_set_fingerprint(t->source.train);
    if (t->source.test)
        run->fingerprint = attn__mix64(run->fingerprint ^ attn_image_set_fingerprint(t->source.test));
    return attn__run_check_data(run);
}

attn_status attn__image_training_read(attn__image_training *t, bool unlabelled, attn_image_filter filter)
{
    const attn__run *run = &t->run;
    attn_status status = read_source(t, unlabelled, filter);
    if (status == ATTN_OK)
        status = attn__image_source_split(&t->source, run->settings, &t->train, &t->valid, &t->test);
    if (status == ATTN_OK && attn_image_set_size(t->train) == 0)
        status = attn__fail(run->context, ATTN_ERROR_ARGUMENT, "none of the %lld images is left for training",
                            (long long)attn_image_set_size(t->source.train));
    if (status == ATTN_OK)
        t->shape = attn_image_set_shape(t->train);
    t->run.no_validation = status != ATTN_OK || attn_image_set_size(t->valid) == 0;
    return status;
}

static attn_status make_batches(const attn__run *run, const attn_image_set *set, bool shuffled, const float *mean,
                                const float *std, attn_image_batches **batches)
{
    const attn_config *s = run->settings;
    attn_image_batches_options options = {
        .size = attn_config_int(s, "batch", 0),
        .seed = (uint64_t)attn_config_int(s, "seed", 1),
        .in_order = !shuffled,
        .flip = shuffled && attn_config_bool(s, "flip", false),
        .shift = shuffled ? attn_config_int(s, "shift", 0) : 0,
    };
    for (int c = 0; mean && c < 3; c++) {
        options.mean[c] = mean[c];
        options.std[c] = std[c];
    }
    attn_status status = attn_image_batches_create(batches, run->context, set, &options);
    if (status == ATTN_OK)
        attn_image_batches_shard(*batches);
    return status;
}

attn_status attn__image_training_batches(attn__image_training *t, const float *mean, const float *std)
{
    attn_status status = make_batches(&t->run, t->train, true, mean, std, &t->train_batches);
    if (status == ATTN_OK && attn_image_set_size(t->valid) > 0)
        status = make_batches(&t->run, t->valid, false, mean, std, &t->valid_batches);
    return status;
}

bool attn__image_training_seek(attn__image_training *t, attn_tape *tape, int64_t epoch, int64_t step,
                               attn_image_batch *batch, int64_t *counted)
{
    attn_image_batches_seek(t->train_batches, epoch, step);
    if (attn_image_batches_next(t->train_batches, batch)) {
        *counted = batch->stands_in ? 0 : batch->size;
        attn__run_share(&t->run, tape, (attn_shard){batch->first, *counted, batch->whole}, batch->whole);
        return true;
    }
    attn__fail(t->run.context, ATTN_ERROR_INTERNAL, "epoch %lld has no step %lld", (long long)epoch, (long long)step);
    return false;
}

attn_status attn__image_training_sizes(const attn__image_training *t, attn_config *sizes, attn_trainer_plan *plan)
{
    const attn__run_size list[] = {
        {"train_images", attn_image_set_size(t->train)},
        {"valid_images", attn_image_set_size(t->valid)},
        {"test_images", attn_image_set_size(t->test)},
        {"width", t->shape.width},
        {"height", t->shape.height},
        {"channels", t->shape.channels},
        {"frames", t->shape.frames},
        {"passed_over", t->source.passed_over},
    };
    plan->passed_first = t->source.passed_first;
    return attn__run_set_sizes(sizes, list, sizeof list / sizeof *list);
}

int64_t attn__image_training_steps(void *self)
{
    return attn_image_batches_count(((const attn__image_training *)self)->train_batches);
}

void attn__image_training_release(void *self)
{
    attn__image_training *t = self;
    attn_image_batches_destroy(t->train_batches);
    attn_image_batches_destroy(t->valid_batches);
    attn_image_set_destroy(t->train);
    attn_image_set_destroy(t->valid);
    attn_image_set_destroy(t->test);
    attn__image_source_free(&t->source);
}
