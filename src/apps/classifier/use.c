/* SPDX-License-Identifier: MIT
 *
 * Computes the predictions of a classifier on pictures, and its accuracy on data.
 */
#include "apps/classifier/classifier.h"

#include "base/clock.h"
#include "base/context.h"
#include "dist/ranks.h"
#include "tensor/packed_weights.h"

#include <math.h>
#include <string.h>

enum { AT_ONCE = 64 };

attn_tensor *attn__classifier_logits(attn_model *model, attn_tape *tape, attn_image_shape shape, const float *x,
                                     int64_t n)
{
    attn_context *context = attn_model_context(model);
    attn_named_list inputs = {.context = context}, outputs = {.context = context};
    int64_t dims[] = {n, shape.channels, shape.height, shape.width};
    attn_tensor *images = attn_tape_tensor(tape, ATTN_F32, 4, dims, x), *logits = NULL;
    if (images && attn_named_add(&inputs, "x", images) == ATTN_OK &&
        attn_model_forward(model, tape, &inputs, &outputs) == ATTN_OK) {
        logits = attn_named_find(&outputs, "logits");
        if (!logits)
            attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                       "the architecture \"%s\" is not a classifier: it has no output \"logits\"",
                       attn_model_architecture(model)->name);
    }
    attn_named_clear(&inputs);
    attn_named_clear(&outputs);
    return logits;
}

attn_status attn__classifier_check(attn_context *context, double value)
{
    if (isfinite(value))
        return ATTN_OK;
    return attn__fail(
        context, ATTN_ERROR_UNSUPPORTED,
        "the probabilities of the classes are not finite: the weights hold NaN, infinity or numbers that are "
        "too large");
}

/* --------------------------------------------------------------------------------------------- measuring */

/* Returns the log-sum-exp of the logits. *best gets the index of the largest logit. */
static double log_sum(const float *logits, int64_t n, int64_t *best)
{
    double sum = 0;
    *best = 0;
    for (int64_t i = 1; i < n; i++)
        *best = logits[i] > logits[*best] ? i : *best;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - (double)logits[*best]);
    return (double)logits[*best] + log(sum);
}

attn_status attn__classifier_measure(attn_model *model, attn_tape *tape, attn_image_shape shape, int64_t classes,
                                     attn_image_batches *batches, double *loss, int64_t *right, int64_t *confusion)
{
    attn_context *context = attn_model_context(model);
    double sum = 0;
    int64_t n = 0, done = 0;
    attn_image_batch batch;
    attn_status status = ATTN_OK;
    *right = 0;
    attn_image_batches_seek(batches, 0, 0);
    while (status == ATTN_OK && attn_image_batches_next(batches, &batch)) {
        attn_tape_reset(tape, NULL);
        status = attn__ranks_poll(context);
        if (batch.stands_in)
            continue;
        attn_tensor *logits = attn__classifier_logits(model, tape, shape, batch.x, batch.size);
        if (!logits)
            return attn__result_status(context, logits);
        const float *row = attn_tensor_data(logits);
        for (int64_t i = 0; i < batch.size; i++, row += classes) {
            int64_t best;
            sum += log_sum(row, classes, &best) - (double)row[batch.labels[i]];
            *right += best == batch.labels[i];
            if (confusion)
                confusion[batch.labels[i] * classes + best]++;
        }
        n += batch.size;
        if (status == ATTN_OK)
            status = attn__work(context, "batches of images", ++done, attn_image_batches_count(batches));
    }
    double sums[] = {sum, (double)n, (double)*right};
    if (status == ATTN_OK && attn_image_batches_sharded(batches))
        status = attn__ranks_sum(context, sums, 3, ATTN__SUM_F64);
    *right = (int64_t)sums[2];
    *loss = sums[1] > 0 ? sums[0] / sums[1] : NAN;
    return status;
}

static attn_status measure_set(attn_classifier *c, const attn_image_set *set, attn_classifier_score *score)
{
    attn_image_batches_options options = {.size = AT_ONCE, .in_order = true};
    attn_image_batches *batches;
    attn_tape *tape;
    memcpy(options.mean, c->pixels.mean, sizeof c->pixels.mean);
    memcpy(options.std, c->pixels.std, sizeof c->pixels.std);
    attn_status status = attn_tape_create(&tape, c->context);
    if (status != ATTN_OK)
        return status;
    status = attn_image_batches_create(&batches, c->context, set, &options);
    double start = attn__now();
    if (status == ATTN_OK)
        status = attn__packed_weights_begin(tape);
    if (status == ATTN_OK)
        status = attn__classifier_measure(c->model, tape, c->shape, c->nclasses, batches, &score->loss, &score->correct,
                                          score->confusion);
    if (status == ATTN_OK)
        status = attn__classifier_check(c->context, score->loss);
    score->images = attn_image_set_size(set);
    score->images_per_second = (double)score->images / (attn__seconds_since(start) + 1e-9);
    attn_image_batches_destroy(batches);
    attn__packed_weights_end(tape);
    attn_tape_destroy(tape);
    return status;
}

static attn_status choose(attn_classifier *c, const attn__image_source *source, attn_split part, attn_image_set **set)
{
    static const char *const names[] = {[ATTN_SPLIT_ALL] = "all",
                                        [ATTN_SPLIT_TRAIN] = "train",
                                        [ATTN_SPLIT_VALID] = "valid",
                                        [ATTN_SPLIT_TEST] = "test"};
    attn_image_set **train = part == ATTN_SPLIT_TRAIN ? set : NULL, **valid = part == ATTN_SPLIT_VALID ? set : NULL;
    attn_image_set **test = part == ATTN_SPLIT_TEST ? set : NULL;
    attn_status status = part == ATTN_SPLIT_ALL ? attn__image_source_whole(source, set)
                                                : attn__image_source_split(source, c->config, train, valid, test);
    if (status == ATTN_OK && attn_image_set_size(*set) == 0)
        status = attn__fail(c->context, ATTN_ERROR_ARGUMENT, "the part \"%s\" of the data has no images", names[part]);
    return status;
}

attn_status attn_classifier_evaluate(attn_classifier *c, const char *data, attn_split part,
                                     attn_classifier_score *score)
{
    ATTN__CALL(c->context);
    attn__image_wish wish = {
        .shape = c->shape, .fitting = c->pixels.fitting, .classes = c->classes, .nclasses = c->nclasses};
    attn__image_source source;
    attn_image_set *set = NULL;
    *score = (attn_classifier_score){.classes = c->nclasses};
    attn_status status = attn__check_choice(c->context, "the part of the data", (int)part, ATTN_SPLIT_TEST);
    if (status == ATTN_OK)
        status = attn__image_source_read(&source, c->context, data, &wish);
    if (status != ATTN_OK)
        return status;
    size_t cells = attn__size_mul((size_t)c->nclasses, (size_t)c->nclasses);
    score->confusion = attn__alloc_zero(c->context, attn__size_mul(cells, sizeof *score->confusion));
    status = score->confusion ? choose(c, &source, part, &set) : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK)
        status = measure_set(c, set, score);
    score->passed_over = source.passed_over;
    attn_image_set_destroy(set);
    attn__image_source_free(&source);
    if (status != ATTN_OK)
        attn_classifier_score_free(c->context, score);
    return status;
}

void attn_classifier_score_free(attn_context *context, attn_classifier_score *score)
{
    attn__free(context, score->confusion);
    *score = (attn_classifier_score){0};
}

/* -------------------------------------------------------------------------------------------- classifying */

attn_status attn__classifier_fit(const attn_classifier *c, const attn_image *image, attn_image *fitted)
{
    attn_image coloured = {0};
    attn_status status = attn_image_convert(&coloured, c->context, image, (int)c->shape.channels);
    if (status == ATTN_OK)
        status = attn__image_fit(fitted, c->context, &coloured, c->shape.width, c->shape.height, &c->pixels.fitting);
    attn_image_free(c->context, &coloured);
    return status;
}

static attn_status prepare(const attn_classifier *c, const attn_image *image, float *x)
{
    attn_image fitted = {0};
    attn_status status = attn__classifier_fit(c, image, &fitted);
    if (status == ATTN_OK)
        attn_image_planes(&fitted, c->pixels.mean, c->pixels.std, x);
    attn_image_free(c->context, &fitted);
    return status;
}

/* Finds the `top` likeliest classes. It searches all classes once for each of them. */
static attn_status rank(attn_context *context, const float *logits, int64_t classes, int64_t top,
                        attn_prediction *guesses)
{
    int64_t best;
    double all = log_sum(logits, classes, &best);
    for (int64_t k = 0; k < top; k++) {
        int64_t next = -1;
        for (int64_t i = 0; i < classes; i++) {
            bool taken = false;
            for (int64_t j = 0; j < k && !taken; j++)
                taken = guesses[j].label == i;
            if (!taken && (next < 0 || logits[i] > logits[next]))
                next = i;
        }
        guesses[k] = (attn_prediction){.label = (int32_t)next, .probability = exp((double)logits[next] - all)};
    }
    return attn__classifier_check(context, all);
}

static attn_status classify_batch(attn_classifier *c, attn_tape *tape, const attn_image *images, int64_t n, float *x,
                                  int64_t top, attn_prediction *guesses)
{
    attn_status status = ATTN_OK;
    int64_t size = c->shape.width * c->shape.height * c->shape.channels;
    for (int64_t i = 0; i < n && status == ATTN_OK; i++)
        status = prepare(c, &images[i], x + i * size);
    if (status != ATTN_OK)
        return status;
    attn_tape_reset(tape, NULL);
    attn_tensor *logits = attn__classifier_logits(c->model, tape, c->shape, x, n);
    const float *row = logits ? attn_tensor_data(logits) : NULL;
    if (!row)
        return attn__result_status(c->context, row);
    for (int64_t i = 0; i < n && status == ATTN_OK; i++)
        status = rank(c->context, row + i * c->nclasses, c->nclasses, top, guesses + i * top);
    return status;
}

attn_status attn_classifier_classify(attn_classifier *c, const attn_image *images, int64_t n, int64_t top,
                                     attn_prediction *guesses)
{
    ATTN__CALL(c->context);
    if (top < 1 || top > c->nclasses)
        return attn__fail(c->context, ATTN_ERROR_ARGUMENT,
                          "top is %lld; it must be 1 to %lld, the number of the model's classes", (long long)top,
                          (long long)c->nclasses);
    size_t size = (size_t)(c->shape.width * c->shape.height * c->shape.channels);
    attn_tape *tape;
    attn_status status = attn_tape_create(&tape, c->context);
    if (status != ATTN_OK)
        return status;
    float *x = attn__alloc(c->context, attn__size_mul(AT_ONCE * size, sizeof *x));
    status = x ? ATTN_OK : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK)
        status = attn__packed_weights_begin(tape);
    for (int64_t at = 0; at < n && status == ATTN_OK; at += AT_ONCE)
        status = classify_batch(c, tape, images + at, n - at < AT_ONCE ? n - at : AT_ONCE, x, top, guesses + at * top);
    attn__packed_weights_end(tape);
    attn__free(c->context, x);
    attn_tape_destroy(tape);
    return status;
}
