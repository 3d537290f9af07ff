/* SPDX-License-Identifier: MIT
 *
 * Implements the training loop: epochs of steps, validation, early stopping, saving and progress. A resumed run
 * computes the same bits as an uninterrupted run. For this, `counters` holds the state of the loop between two steps,
 * and the job saves the parameters and the optimizer's tensors. */
#include "attn/train.h"

#include "base/clock.h"
#include "base/context.h"
#include "dist/ranks.h"
#include "base/rng.h"
#include "tensor/all_reduce.h"
#include "tensor/number.h"
#include "train/optimizer.h"
#include "train/loop.h"

#include <math.h>
#include <stdio.h>

typedef struct counters {
    int64_t epoch, step; /* epoch of the next step, and number of the next step in this epoch, both counted from 0 */
    int64_t all_steps;
    double loss_sum, loss_tokens; /* sum of the losses, and number of labels, of this epoch so far */
    double best, last_valid;      /* loss of the best validation, and loss of the last validation; NaN: not known yet */
    /* metric of the best validation, if a metric decides which validation is best */
    double best_score;
    int64_t stale; /* number of epochs after the best epoch */
} counters;

struct attn_training {
    attn_context *context;
    attn_training_options options;
    attn_optimizer *optimizer;
    const attn_named_list *parameters;
    counters at;
    /* The fields from here to steps_here count only since attn_training_create. They are not stored in a
     * checkpoint. */
    double seconds, looked; /* seconds: training time since then; looked: time at which the clock was last read */
    double tokens;
    int64_t steps_here;
    attn__all_reduce *all_reduce; /* exchanges gradients with the other ranks; NULL: this process trains alone */
    bool unfinished;
};

attn_status attn_training_create(attn_training **training, attn_context *context, const attn_named_list *parameters,
                                 const attn_training_options *options)
{
    ATTN__CALL(context);
    *training = NULL;
    if (options->epochs < 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "training: epochs is %lld; it must not be negative",
                          (long long)options->epochs);
    if (!(options->schedule.peak > 0))
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "training: the rate is %g; it must be above 0",
                          options->schedule.peak);
    attn_status status =
        attn__check_choice(context, "the kind of schedule", (int)options->schedule.kind, ATTN_SCHEDULE_STEP);
    if (status != ATTN_OK)
        return status;
    attn_training *made = attn__alloc_zero(context, sizeof *made);
    if (!made)
        return ATTN_ERROR_MEMORY;
    made->context = context;
    made->options = *options;
    made->parameters = parameters;
    made->at.best = made->at.last_valid = made->at.best_score = NAN;
    status = attn_optimizer_create(&made->optimizer, context, parameters, &options->optimizer);
    if (status != ATTN_OK) {
        attn_training_destroy(made);
        return status;
    }
    *training = made;
    return ATTN_OK;
}

void attn_training_destroy(attn_training *training)
{
    if (!training)
        return;
    attn_optimizer_destroy(training->optimizer);
    attn__free(training->context, training);
}

attn_optimizer *attn_training_optimizer(const attn_training *training)
{
    return training->optimizer;
}

int64_t attn_training_epoch(const attn_training *training)
{
    return training->at.epoch;
}

/* ----------------------------------------------------------------------------------------- checkpoints */

/* The counters of a checkpoint: the list is used to store and to restore them. */
/* clang-format off */
#define COUNTERS(INT, REAL)                                                                                            \
    INT("epoch", at.epoch) INT("step", at.step) INT("all_steps", at.all_steps) INT("stale", at.stale)                  \
    REAL("loss_sum", at.loss_sum) REAL("loss_tokens", at.loss_tokens) REAL("best", at.best)                            \
    REAL("last_valid", at.last_valid) REAL("best_score", at.best_score)
/* clang-format on */

attn_status attn_training_store(const attn_training *training, attn_config *config)
{
    ATTN__CALL(training->context);
    attn_status status = attn_config_set_int(config, "optimizer_steps", attn_optimizer_steps(training->optimizer));
#define STORE_INT(key, field)                                                                                          \
    if (status == ATTN_OK)                                                                                             \
        status = attn_config_set_int(config, key, training->field);
/* a value that is not known yet is NaN, which JSON does not have, so it is not stored */
#define STORE_REAL(key, field)                                                                                         \
    if (status == ATTN_OK && !isnan(training->field))                                                                  \
        status = attn_config_set_real(config, key, training->field);
    COUNTERS(STORE_INT, STORE_REAL)
    return status;
}

attn_status attn_training_restore(attn_training *training, const attn_config *config)
{
    ATTN__CALL(training->context);
    const attn_config_value *steps = attn_config_get(config, "optimizer_steps");
    if (!steps)
        steps = attn_config_get(config, "optimiser_steps"); /* checkpoints written before version 1.0 have this key */
    if (!steps || steps->type != ATTN_CONFIG_TYPE_INT || steps->integer < 0)
        return attn__fail(training->context, ATTN_ERROR_FORMAT,
                          "checkpoint: \"optimizer_steps\" is missing or not an integer of at least 0");
    attn_optimizer_set_steps(training->optimizer, steps->integer);
#define RESTORE_INT(key, field)                                                                                        \
    if (!attn_config_get(config, key))                                                                                 \
        return attn__fail(training->context, ATTN_ERROR_FORMAT, "checkpoint: the key \"%s\" is missing", key);         \
    training->field = attn_config_int(config, key, -1);                                                                \
    if (training->field < 0)                                                                                           \
        return attn__fail(training->context, ATTN_ERROR_FORMAT, "checkpoint: \"%s\" must be an integer of at least 0", \
                          key);
#define RESTORE_REAL(key, field) training->field = attn_config_real(config, key, NAN);
    COUNTERS(RESTORE_INT, RESTORE_REAL)
    return ATTN_OK;
}

/* ------------------------------------------------------------------------------------------------ steps */

static bool report(attn_training *training, const attn_job *job, attn_progress *p)
{
    if (!job->progress)
        return true;
    const counters *at = &training->at;
    p->epochs = training->options.epochs;
    p->all_steps = at->all_steps;
    p->loss = at->loss_tokens > 0 ? at->loss_sum / at->loss_tokens : NAN;
    p->valid_loss = at->last_valid;
    p->best_loss = at->best;
    p->metric = p->metric2 = NAN; /* NaN, because only the job computes metrics */
    training->seconds += attn__seconds_since(training->looked);
    training->looked = attn__now();
    p->seconds = training->seconds;
    p->exchange_seconds = training->all_reduce ? attn__all_reduce_waited(training->all_reduce) : 0;
    p->tokens_per_second = p->seconds > 0 ? training->tokens / p->seconds : 0;
    int64_t left = p->epochs * p->steps - at->all_steps;
    p->seconds_left = training->steps_here > 0 ? p->seconds / (double)training->steps_here * (double)left : NAN;
    return job->progress(job->user, p);
}

/* Returns the seed of dropout for the current step. It depends only on the run's seed and the step, so a resumed run
 * drops the same elements. */
static uint64_t step_seed(const attn_training *training)
{
    return attn__mix64(training->options.seed ^ attn__mix64((uint64_t)training->at.all_steps));
}

/* Returns the number of losses whose gradients one optimizer step uses. */
static int64_t parts_of(const attn_training *training)
{
    return training->options.accumulate > 1 ? training->options.accumulate : 1;
}

/* Adds `share` times the gradient of one loss to the gradients. If there are other ranks, the last loss of a step also
 * starts the sums over the ranks. */
static attn_status add_gradient(attn_training *training, const attn_job *job, attn_tape *tape, attn_tensor *loss,
                                double share, bool last, double totals[2])
{
    if (!training->all_reduce || !job->whole) {
        loss = share < 1 ? attn_affine(tape, loss, share, 0) : loss;
        return loss ? attn_backward(tape, loss) : attn__result_status(training->context, loss);
    }
    return last ? attn__all_reduce_backward(training->all_reduce, tape, loss, share, totals, 2)
                : attn__all_reduce_keep(training->all_reduce, tape, loss, share);
}

/* Computes the gradients of loss number `part` of a step, and resets the tape for this. */
static attn_status part_gradients(attn_training *training, const attn_job *job, attn_tape *tape, int64_t part,
                                  int64_t parts, double totals[2])
{
    const counters *at = &training->at;
    int64_t counted = 0;
    uint64_t seed = step_seed(training);
    seed = part ? attn__mix64(seed + (uint64_t)part) : seed;
    attn_tape_reset(tape, &(attn_tape_options){.record = true, .train = true, .seed = seed});
    if (training->all_reduce)
        attn__all_reduce_begin(training->all_reduce, tape, part > 0);
    attn_tensor *loss = job->loss(job->user, tape, at->epoch, at->step * parts_of(training) + part, &counted);
    if (!loss)
        return attn__result_status(training->context, loss);
    double share = 1 / (double)parts;
    if (counted > 0) /* a batch without labels is a placeholder, whose loss must not be added */
        totals[0] += attn__number(loss, 0) * (double)counted;
    totals[1] += (double)counted;
    if (training->all_reduce && job->whole) {
        int64_t whole = job->whole(job->user);
        share = whole > 0 ? (double)counted / (double)whole / (double)parts : 0;
    }
    return add_gradient(training, job, tape, loss, share, part == parts - 1, totals);
}

/* Computes the gradient of the mean of the step's losses. Each loss is a mean over its labels. *sum becomes the sum of
 * the losses of all labels, and *tokens the number of labels. With several ranks, these are totals over all ranks. */
static attn_status gradients(attn_training *training, const attn_job *job, attn_tape *tape, double *sum, double *tokens)
{
    int64_t most = parts_of(training), left = job->steps(job->user) - training->at.step * most;
    int64_t parts = left < most ? left : most;
    double totals[2] = {0, 0};
    attn_status status = ATTN_OK;
    for (int64_t part = 0; part < parts && status == ATTN_OK; part++)
        status = part_gradients(training, job, tape, part, parts, totals);
    for (int64_t i = 0; i < training->parameters->n && status != ATTN_OK && parts > 1; i++)
        /* after an error, drop the gradients that earlier losses of the step have added */
        attn_tensor_drop_grad(training->parameters->items[i].tensor);
    *sum = totals[0];
    *tokens = totals[1];
    return status;
}

static attn_status one_step(attn_training *training, const attn_job *job, attn_tape *tape, attn_progress *p)
{
    counters *at = &training->at;
    double sum = 0, tokens = 0;
    attn_status status = gradients(training, job, tape, &sum, &tokens);
    if (status != ATTN_OK)
        return status;
    double value = tokens > 0 ? sum / tokens : 0;
    p->rate = attn_schedule_rate(&training->options.schedule, at->all_steps + 1);
    if (attn__all_reduce_is_shared(training->all_reduce))
        status = attn__optimizer_step_shared(training->optimizer, training->all_reduce, p->rate, &p->grad_norm);
    else
        status = attn_optimizer_step(training->optimizer, p->rate, &p->grad_norm);
    if (status != ATTN_OK)
        return status;
    if (!isfinite(value) || !isfinite(p->grad_norm)) {
        /* all ranks have the same sums and detect this error, so no rank needs to report it to the others */
        attn__ranks_all_know(training->context);
        return attn__fail(training->context, ATTN_ERROR_ARGUMENT,
                          "training diverged at epoch %lld, step %lld: loss %g, gradient norm %g; try a smaller rate",
                          (long long)at->epoch + 1, (long long)at->step + 1, value, p->grad_norm);
    }
    at->loss_sum += sum;
    at->loss_tokens += tokens;
    training->tokens += tokens;
    training->steps_here++;
    at->step++;
    at->all_steps++;
    return ATTN_OK;
}

/* Aborts a training on several ranks. The other ranks are notified first, because their sums may still write to memory
 * that is freed later. Changes of an unfinished step or validation are undone. If the cause is a signal or the end of
 * another process, the state of the last complete step is then saved. If no step is in progress, nothing is saved,
 * because the state is already saved or saving has failed. */
static attn_status leave(attn_training *training, const attn_job *job, attn_tape *tape, attn_status status)
{
    char why[512];
    attn__ranks_give_up(training->context, status);
    if (!training->all_reduce || !training->unfinished)
        return status;
    attn__all_reduce_abandon(training->all_reduce, tape);
    if (status != ATTN_ERROR_INTERRUPTED && status != ATTN_ERROR_IO)
        return status;
    snprintf(why, sizeof why, "%s", attn__error_text(attn__call_error(training->context)));
    /* the error is cleared, so that a failure to save can record its own error */
    attn__call_forget(training->context);
    attn_status saved = job->save(job->user, false);
    return saved != ATTN_OK ? saved : attn__fail(training->context, status, "%s", why);
}

static attn_status stopped(const attn_training *training)
{
    return attn__fail(training->context, ATTN_ERROR_INTERRUPTED,
                      "the function that reports the progress stopped the training after step %lld of epoch %lld",
                      (long long)training->at.step, (long long)training->at.epoch + 1);
}

static attn_status run_steps(attn_training *training, const attn_job *job, attn_tape *tape, attn_progress *p)
{
    counters *at = &training->at;
    int64_t every = training->options.save_every;
    while (at->step < p->steps) {
        training->unfinished = true;
        attn_status status = one_step(training, job, tape, p);
        if (status != ATTN_OK)
            return status;
        training->unfinished = false;
        p->epoch = at->epoch + 1;
        p->step = at->step;
        p->epoch_ends = p->improved = false;
        if (!report(training, job, p)) {
            status = job->save(job->user, false);
            return status != ATTN_OK ? status : stopped(training);
        }
        if (every > 0 && at->all_steps % every == 0 && at->step < p->steps)
            status = job->save(job->user, false);
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

/* Returns whether the last validation is the best so far, and updates the counters of the best validation. */
static bool improved(counters *at, double score)
{
    bool better =
        isnan(score) ? isnan(at->best) || at->last_valid < at->best : isnan(at->best_score) || score > at->best_score;
    at->stale = better ? 0 : at->stale + 1;
    if (better) {
        at->best = at->last_valid;
        at->best_score = score;
    }
    return better;
}

static attn_status end_epoch(attn_training *training, const attn_job *job, attn_tape *tape, attn_progress *p)
{
    counters *at = &training->at;
    /* set here and not only in run_steps, because a run that resumes at the end of an epoch runs no step */
    p->epoch = at->epoch + 1;
    p->step = at->step;
    p->rate = attn_schedule_rate(&training->options.schedule, at->all_steps);
    p->improved = true;
    if (job->validate) {
        attn_tape_reset(tape, NULL);
        training->unfinished = true;
        attn_status status = job->validate(job->user, tape, &at->last_valid);
        if (status != ATTN_OK)
            return status;
        training->unfinished = false;
        p->improved = improved(at, job->judge ? job->judge(job->user) : NAN);
    }
    p->epoch_ends = true;
    bool go_on = report(training, job, p);
    at->epoch++;
    at->step = 0;
    at->loss_sum = at->loss_tokens = 0;
    attn_status status = job->save(job->user, p->improved);
    return status != ATTN_OK || go_on ? status : stopped(training);
}

static bool out_of_patience(const attn_training *training)
{
    return training->options.patience > 0 && training->at.stale >= training->options.patience;
}

attn_status attn_training_run(attn_training *training, const attn_job *job)
{
    ATTN__CALL(training->context);
    attn_tape *tape = NULL;
    bool among_ranks = job->whole && attn__ranks_many(training->context);
    attn_status status = attn_tape_create(&tape, training->context);
    if (status == ATTN_OK && among_ranks)
        status = attn__all_reduce_create(&training->all_reduce, training->context, training->parameters,
                                         attn_optimizer_state(training->optimizer), 0);
    training->looked = attn__now();
    training->seconds = 0;
    training->tokens = 0;
    training->steps_here = 0;
    training->unfinished = false;
    const int64_t parts = parts_of(training);
    attn_progress p = {.steps = (job->steps(job->user) + parts - 1) / parts};
    while (status == ATTN_OK && training->at.epoch < training->options.epochs && !out_of_patience(training)) {
        status = run_steps(training, job, tape, &p);
        if (status == ATTN_OK)
            status = end_epoch(training, job, tape, &p);
    }
    if (status != ATTN_OK && among_ranks)
        status = leave(training, job, tape, status);
    attn_tape_destroy(tape);
    attn__all_reduce_destroy(training->all_reduce);
    training->all_reduce = NULL;
    return status;
}
