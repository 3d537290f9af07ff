/* SPDX-License-Identifier: MIT
 *
 * Training a translator: data to batches, the job that the training loop asks for losses, and the run from
 * the first step or from a checkpoint.  Files are in checkpoint.c.
 */
#include "apps/training_run.h"

#include "apps/lock.h"
#include "apps/settings.h"
#include "base/context.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------ data */

static attn_status split_pairs(attn__run *run)
{
    attn_split_options options = attn__setting_split(run->settings);
    attn_status status = attn_pairs_split(run->all, &options, &run->train, &run->valid, &run->test);
    if (status == ATTN_OK && attn_pairs_size(run->train) == 0)
        return attn__fail(run->context, ATTN_ARGUMENT, "no pairs are left for training out of %lld",
                          (long long)attn_pairs_size(run->all));
    return status;
}

/* A resumed run reads the vocabularies that it wrote. */
static attn_status make_vocabularies(attn__run *run)
{
    if (run->job->resume) {
        attn_status status = attn__vocab_read(&run->source, run->context, run->job->directory, "source.vocab");
        return status != ATTN_OK
                   ? status
                   : attn__vocab_read(&run->target, run->context, run->job->directory, "target.vocab");
    }
    attn_vocab_options options = {
        .compat = run->compat,
        .min_frequency = attn_config_int(run->settings, "min_frequency", 2),
        .max_size = attn_config_int(run->settings, "max_words", 0),
        .steps = run->max_tokens,
    };
    const attn_pairs *from = run->compat == ATTN_COMPAT_D2L ? run->all : run->train;
    attn_status status = attn_vocab_build(&run->source, from, ATTN_SOURCE, &options);
    return status != ATTN_OK ? status : attn_vocab_build(&run->target, from, ATTN_TARGET, &options);
}

static attn_status make_batches(attn__run *run, const attn_pairs *pairs, bool training, attn_corpus **corpus,
                                attn_batches **batches)
{
    attn_encode_options encoding = {.compat = run->compat, .steps = run->max_tokens};
    attn_status status = attn_corpus_create(corpus, pairs, run->source, run->target, &encoding);
    if (status != ATTN_OK)
        return status;
    bool d2l = run->compat == ATTN_COMPAT_D2L;
    attn_batches_options options = {
        .size = attn_config_int(run->settings, "batch", 64),
        .seed = (uint64_t)attn_config_int(run->settings, "seed", 1),
        .in_order = !training,
        .mixed_lengths = d2l,
        .fixed_steps = d2l ? run->max_tokens : 0,
    };
    return attn_batches_create(batches, *corpus, &options);
}

static attn_status prepare_data(attn__run *run)
{
    attn_pairs_options options = {.compat = run->compat,
                                  .max_examples = attn_config_int(run->settings, "max_examples", 0)};
    attn_status status = attn__pairs_read(&run->all, run->context, run->data, run->text, run->text_size, &options,
                                          &run->fingerprint);
    if (status == ATTN_OK)
        status = split_pairs(run);
    if (status == ATTN_OK)
        status = make_vocabularies(run);
    if (status == ATTN_OK)
        status = make_batches(run, run->train, true, &run->train_corpus, &run->train_batches);
    if (status == ATTN_OK && attn_pairs_size(run->valid) > 0)
        status = make_batches(run, run->valid, false, &run->valid_corpus, &run->valid_batches);
    return status;
}

/* ------------------------------------------------------------------------------------------------- job */

bool attn__batch_on_tape(attn_tape *tape, const attn_batch *batch, attn__batch_tensors *tensors)
{
    int64_t source[] = {batch->size, batch->source_steps}, target[] = {batch->size, batch->target_steps};
    tensors->source = attn_tensor_make(tape, ATTN_I32, 2, source, batch->source);
    tensors->source_lens = attn_tensor_make(tape, ATTN_I32, 1, source, batch->source_lens);
    tensors->input = attn_tensor_make(tape, ATTN_I32, 2, target, batch->input);
    tensors->labels = attn_tensor_make(tape, ATTN_I32, 2, target, batch->labels);
    return tensors->source && tensors->source_lens && tensors->input && tensors->labels;
}

static int64_t job_steps(void *user)
{
    return attn_batches_count(((attn__run *)user)->train_batches);
}

static attn_tensor *job_loss(void *user, attn_tape *tape, int64_t epoch, int64_t step, int64_t *tokens)
{
    attn__run *run = user;
    attn_batch batch;
    attn__batch_tensors t;
    attn_batches_seek(run->train_batches, epoch, step);
    if (!attn_batches_next(run->train_batches, &batch)) {
        attn__fail(run->context, ATTN_INTERNAL, "epoch %lld has no step %lld", (long long)epoch, (long long)step);
        return NULL;
    }
    *tokens = batch.target_tokens;
    if (!attn__batch_on_tape(tape, &batch, &t))
        return NULL;
    attn_tensor *logits = attn_seq2seq_forward(run->model, tape, t.source, t.source_lens, t.input, NULL);
    attn_cross_entropy_options options = {.has_ignore = true,
                                          .ignore = run->pad,
                                          .label_smoothing = attn_config_real(run->settings, "label_smoothing", 0)};
    return attn_cross_entropy(tape, logits, t.labels, &options);
}

attn_status attn__translator_loss(attn_model *model, attn_tape *tape, attn_batches *batches, int32_t pad,
                                  bool see_future, double *loss)
{
    attn_seq2seq_options options = {.see_future = see_future};
    attn_cross_entropy_options counted = {.has_ignore = true, .ignore = pad};
    double sum = 0, tokens = 0;
    attn_batch batch;
    attn_batches_seek(batches, 0, 0);
    while (attn_batches_next(batches, &batch)) {
        attn__batch_tensors t;
        attn_tape_reset(tape, NULL);
        if (!attn__batch_on_tape(tape, &batch, &t))
            return attn_context_status(attn_model_context(model));
        attn_tensor *logits = attn_seq2seq_forward(model, tape, t.source, t.source_lens, t.input, &options);
        attn_tensor *mean = attn_cross_entropy(tape, logits, t.labels, &counted);
        if (!mean)
            return attn_context_status(attn_model_context(model));
        sum += (double)*(const float *)attn_tensor_data(mean) * (double)batch.target_tokens;
        tokens += (double)batch.target_tokens;
    }
    *loss = tokens > 0 ? sum / tokens : NAN;
    return ATTN_OK;
}

static attn_status job_validate(void *user, attn_tape *tape, double *loss)
{
    attn__run *run = user;
    return attn__translator_loss(run->model, tape, run->valid_batches, run->pad, run->compat == ATTN_COMPAT_D2L, loss);
}

static attn_status job_save(void *user, bool improved)
{
    return attn__run_save(user, improved);
}

static bool job_progress(void *user, const attn_progress *progress)
{
    attn__run *run = user;
    if (progress->epoch_ends)
        attn__run_note_epoch(run, progress);
    return !run->job->progress || run->job->progress(run->job->user, progress);
}

/* ------------------------------------------------------------------------------------------------- run */

static int64_t count_parameters(const attn_model *model)
{
    const attn_named_list *list = attn_model_parameters(model);
    int64_t count = 0;
    for (int64_t i = 0; i < list->n; i++)
        count += attn_tensor_needs_grad(list->items[i].tensor) ? attn_tensor_size(list->items[i].tensor) : 0;
    return count;
}

static void announce(const attn__run *run, int64_t first_epoch, int64_t epochs)
{
    if (!run->job->begin)
        return;
    attn_translator_plan plan = {
        .settings = run->settings,
        .train_pairs = attn_pairs_size(run->train),
        .valid_pairs = attn_pairs_size(run->valid),
        .test_pairs = attn_pairs_size(run->test),
        .source_words = attn_vocab_size(run->source),
        .target_words = attn_vocab_size(run->target),
        .parameters = count_parameters(run->model),
        .steps_per_epoch = attn_batches_count(run->train_batches),
        .epochs = epochs,
        .first_epoch = first_epoch,
    };
    run->job->begin(run->job->user, &plan);
}

static attn_status prepare_model(attn__run *run, attn_training_options *options)
{
    attn_status status = attn__translator_model(&run->model, run->context, run->settings, run->source, run->target);
    if (status != ATTN_OK)
        return status;
    run->pad = attn_vocab_special(run->target, ATTN_PAD);
    *options = attn__setting_training(run->settings, attn_batches_count(run->train_batches));
    return attn_training_create(&run->training, run->context, attn_model_parameters(run->model), options);
}

static attn_status prepare(attn__run *run, attn_training_options *options)
{
    attn_status status = run->job->resume ? attn__run_read_settings(run)
                                          : attn_translator_settings(&run->settings, run->context, run->job->settings);
    if (status != ATTN_OK)
        return status;
    run->compat = attn__setting_compat(run->settings);
    run->max_tokens = attn_config_int(run->settings, "max_tokens", 64);
    status = prepare_data(run);
    if (status == ATTN_OK)
        status = attn__run_check_fingerprint(run);
    if (status == ATTN_OK)
        status = prepare_model(run, options);
    if (status == ATTN_OK)
        status = run->job->resume ? attn__run_restore(run) : attn__run_begin_directory(run);
    return status;
}

static void release(attn__run *run)
{
    attn_training_destroy(run->training);
    attn_model_destroy(run->model);
    attn_batches_destroy(run->train_batches);
    attn_batches_destroy(run->valid_batches);
    attn_corpus_destroy(run->train_corpus);
    attn_corpus_destroy(run->valid_corpus);
    attn_vocab_destroy(run->source);
    attn_vocab_destroy(run->target);
    attn_pairs_destroy(run->train);
    attn_pairs_destroy(run->valid);
    attn_pairs_destroy(run->test);
    attn_pairs_destroy(run->all);
    attn_config_destroy(run->settings);
    attn_config_destroy(run->stored);
    attn_bytes_free(run->context, &run->history);
    attn__directory_unlock(run->lock);
}

attn_status attn_translator_train(attn_context *context, const attn_translator_job *job)
{
    attn__run run = {.context = context, .job = job, .data = job->data, .text = job->text, .text_size = job->text_size,
                    .lock = -1};
    attn_training_options options;
    attn_status status = job->resume ? ATTN_OK : attn__run_check_directory(&run);
    if (status == ATTN_OK)
        status = prepare(&run, &options);
    if (status == ATTN_OK) {
        announce(&run, attn__run_epoch(&run) + 1, options.epochs);
        attn_job loop = {.user = &run,
                         .steps = job_steps,
                         .loss = job_loss,
                         .validate = run.valid_batches ? job_validate : NULL,
                         .save = job_save,
                         .progress = job_progress};
        status = attn_training_run(run.training, &loop);
    }
    release(&run);
    return status;
}
