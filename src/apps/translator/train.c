/* SPDX-License-Identifier: MIT
 *
 * Trains a translator. Implements the callbacks of a run: the model, the loss of a step, and the loss and the scores of
 * a validation. The run (run.h) handles files, stopping and resuming.
 */
#include "apps/translator/training.h"

#include "apps/checkpoint/marian.h"
#include "apps/translator/settings.h"
#include "base/context.h"
#include "dist/ranks.h"

#include <math.h>
#include <string.h>

typedef attn__translator_training training;

/* ------------------------------------------------------------------------------------------------- job */

bool attn__batch_on_tape(attn_tape *tape, const attn_batch *batch, attn__batch_tensors *tensors)
{
    int64_t source[] = {batch->size, batch->source_steps}, target[] = {batch->size, batch->target_steps};
    tensors->source = attn_tape_tensor(tape, ATTN_I32, 2, source, batch->source);
    tensors->source_lens = attn_tape_tensor(tape, ATTN_I32, 1, source, batch->source_lens);
    tensors->input = attn_tape_tensor(tape, ATTN_I32, 2, target, batch->input);
    tensors->labels = attn_tape_tensor(tape, ATTN_I32, 2, target, batch->labels);
    return tensors->source && tensors->source_lens && tensors->input && tensors->labels;
}

static int64_t job_steps(void *user)
{
    return attn_batches_count(((const training *)user)->train_batches);
}

static attn_tensor *job_loss(void *user, attn_tape *tape, int64_t epoch, int64_t step, int64_t *tokens)
{
    training *t = user;
    attn_batch batch;
    attn__batch_tensors on;
    attn_batches_seek(t->train_batches, epoch, step);
    if (!attn_batches_next(t->train_batches, &batch)) {
        attn__fail(t->run.context, ATTN_ERROR_INTERNAL, "epoch %lld has no step %lld", (long long)epoch,
                   (long long)step);
        return NULL;
    }
    *tokens = batch.stands_in ? 0 : batch.target_tokens;
    attn__run_share(&t->run, tape, (attn_shard){batch.first, batch.stands_in ? 0 : batch.size, batch.whole},
                    batch.whole_tokens);
    if (!attn__batch_on_tape(tape, &batch, &on))
        return NULL;
    attn_tensor *wanted, *weights = NULL;
    if (attn__guided_wanted(t, tape, &batch, &wanted) != ATTN_OK)
        return NULL;
    attn_seq2seq_options how = {.guided = wanted ? &weights : NULL};
    attn_tensor *logits = attn_seq2seq_forward(t->run.model, tape, on.source, on.source_lens, on.input, &how);
    attn_cross_entropy_options options = {.use_ignore_index = true,
                                          .ignore_index = t->pad,
                                          .label_smoothing = attn_config_real(t->run.settings, "label_smoothing", 0)};
    attn_tensor *loss = attn_cross_entropy(tape, logits, on.labels, &options);
    return wanted ? attn__guided_loss(t, tape, loss, weights, wanted, &batch) : loss;
}

attn_status attn__translator_loss(attn_model *model, attn_tape *tape, attn_batches *batches, int32_t pad,
                                  bool see_future, double *loss)
{
    attn_seq2seq_options options = {.see_future = see_future};
    attn_cross_entropy_options counted = {.use_ignore_index = true, .ignore_index = pad};
    attn_context *context = attn_model_context(model);
    double sums[2] = {0, 0}; /* sum of the losses, and number of tokens */
    attn_batch batch;
    attn_status status = ATTN_OK;
    int64_t done = 0;
    attn_batches_seek(batches, 0, 0);
    while (status == ATTN_OK && attn_batches_next(batches, &batch)) {
        attn__batch_tensors t;
        attn_tape_reset(tape, NULL);
        status = attn__work(context, "batches of sentences", ++done, attn_batches_count(batches));
        if (status == ATTN_OK)
            status = attn__ranks_poll(context);
        if (batch.stands_in)
            continue;
        if (!attn__batch_on_tape(tape, &batch, &t))
            return attn__result_status(context, NULL);
        attn_tensor *logits = attn_seq2seq_forward(model, tape, t.source, t.source_lens, t.input, &options);
        attn_tensor *mean = attn_cross_entropy(tape, logits, t.labels, &counted);
        if (!mean)
            return attn__result_status(context, mean);
        sums[0] += (double)*(const float *)attn_tensor_data(mean) * (double)batch.target_tokens;
        sums[1] += (double)batch.target_tokens;
    }
    if (status == ATTN_OK && attn_batches_sharded(batches))
        status = attn__ranks_sum(context, sums, 2, ATTN__SUM_F64);
    *loss = sums[1] > 0 ? sums[0] / sums[1] : NAN;
    return status;
}

/* Translates some validation sentences and scores the translations. Only rank 0 does this. It sends the scores to
 * the other ranks. */
static attn_status judge_translations(training *t)
{
    attn_translator view = {.context = t->run.context,
                            .model = t->run.model,
                            .source = t->source,
                            .target = t->target,
                            .compat = t->compat,
                            .max_tokens = t->max_tokens,
                            .max_output = t->max_tokens,
                            .low_score = -INFINITY,
                            .config = t->run.settings};
    attn_translator_score score = {0};
    attn_status status = ATTN_OK;
    if (t->from)
        view.search = t->from->search;
    if (attn__ranks_first(t->run.context))
        status = attn__translator_judge(&view, t->judged, &score);
    double scores[] = {score.corpus.score, score.chrf};
    if (status == ATTN_OK && attn__ranks_many(t->run.context))
        status = attn__ranks_sum(t->run.context, scores, 2, ATTN__SUM_F64);
    t->run.measure = scores[0];
    t->run.measure_too = scores[1];
    return status;
}

static attn_status job_validate(void *user, attn_tape *tape, double *loss)
{
    training *t = user;
    attn_status status =
        attn__translator_loss(t->run.model, tape, t->valid_batches, t->pad, t->compat == ATTN_COMPAT_D2L, loss);
    return status == ATTN_OK && t->judged ? judge_translations(t) : status;
}

static double job_judge(const void *self)
{
    const training *t = self;
    const char *by = attn_config_text(t->run.settings, "best_by", "loss");
    return strcmp(by, "bleu") == 0 ? t->run.measure : strcmp(by, "chrf") == 0 ? t->run.measure_too : NAN;
}

/* ------------------------------------------------------------------------------------------------- run */

/* Names of data that has no path: the built-in phrasebook, and sentences that the caller passes as text. */
static const char *const in_memory[] = {"phrasebook", "text", NULL};

static attn_status run_prepare(attn__run *run)
{
    training *t = run->self;
    t->data = (attn_pairs_source){
        .text = run->job->text, .size = run->job->text_size, .bad = {run->job->left_out, run->job->user}};
    size_t size;
    if (t->data.text && t->data.text != attn_phrasebook(&size))
        run->no_path = t->data.name = in_memory[1];
    if (run->resume && !run->data && !t->data.text) {
        if (strcmp(attn_config_text(run->stored, "data", ""), in_memory[1]) == 0)
            return attn__fail(run->context, ATTN_ERROR_ARGUMENT,
                              "the sentence pairs of the training in %s were given in memory (text): give them again",
                              run->directory);
        t->data.text = attn_phrasebook(&t->data.size);
    }
    t->data.path = run->data;
    attn_status status = attn__training_from(t);
    t->compat = attn__setting_compat(run->settings);
    t->max_tokens = attn_config_int(run->settings, "max_tokens", 64);
    if (status == ATTN_OK)
        status = attn__training_data(t);
    if (status == ATTN_OK)
        status = attn__training_from_model(t);
    if (status != ATTN_OK)
        return status;
    run->no_validation = !t->valid_batches;
    t->pad = attn_vocab_special(t->target, ATTN_SPECIAL_PAD);
    return ATTN_OK;
}

static bool is_marian(const training *t)
{
    return t->from && t->from->marian;
}

static attn_status run_create(attn__run *run)
{
    const training *t = run->self;
    return attn__translator_model(&run->model, run->context, run->settings, t->source, t->target);
}

static attn_status run_save(const attn__run *run, const attn_named_list *parameters, const char *path)
{
    return is_marian(run->self) ? attn__marian_write(run->context, attn_model_config(run->model), parameters, path)
                                : attn_safetensors_write(parameters, path, NULL);
}

static attn_status run_write(const attn__run *run)
{
    const training *t = run->self;
    if (is_marian(t))
        return attn__training_from_files(t);
    return attn__translator_write(run->model, run->settings, t->source, t->target, run->directory);
}

static attn_status run_measure_data(const attn__run *run, attn_config *sizes, attn_trainer_plan *plan)
{
    const training *t = run->self;
    const attn__run_size list[] = {
        {"train_pairs", attn_pairs_size(t->train)},
        {"valid_pairs", attn_pairs_size(t->valid)},
        {"test_pairs", attn_pairs_size(t->test)},
        {"source_words", attn_vocab_size(t->source)},
        {"target_words", attn_vocab_size(t->target)},
        {"left_out_unlike", t->filtered.unlike},
        {"left_out_duplicates", t->filtered.duplicates},
        {"mixed_pairs", t->mixed},
        {"judged_pairs", t->judged ? attn_pairs_size(t->judged) : 0},
    };
    (void)plan;
    return attn__run_set_sizes(sizes, list, sizeof list / sizeof *list);
}

/* MarianMT's form has no file for the limit. */
static attn_status run_finish(const attn__run *run)
{
    const training *t = run->self;
    return is_marian(t) || run->lora || run->no_validation
               ? ATTN_OK
               : attn__low_score_write(run->context, run->directory, t->valid);
}

static void run_release(void *self)
{
    training *t = self;
    attn__training_data_free(t);
    attn_translator_destroy(t->from);
}

static const char *const own_files[] = {
    "source.vocab",      "target.vocab",           "source.spm", "target.spm", "vocab.json",
    "target_vocab.json", "generation_config.json", NULL};

const attn__run_kind attn__translator_training_kind = {
    .about = &attn__translator_trainer,
    .product = ATTN__PRODUCT_TRANSLATOR,
    .size = sizeof(training),
    .keys = &attn__translator_keys,
    .in_memory = in_memory,
    .measure = "valid_bleu",
    .measure_too = "valid_chrf",
    .own_files = own_files,
    .prepare = run_prepare,
    .create = run_create,
    .write = run_write,
    .save = run_save,
    .measure_data = run_measure_data,
    .steps = job_steps,
    .loss = job_loss,
    .validate = job_validate,
    .judge = job_judge,
    .finish = run_finish,
    .release = run_release,
};
