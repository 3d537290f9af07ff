/* SPDX-License-Identifier: MIT
 *
 * Training a translator: data to batches, and what the run asks for: the model, the loss of a step, the loss
 * in validation.  Going on later, files and stopping are the run's (run.h).
 */
#include "apps/translator.h"

#include "apps/run.h"
#include "apps/settings.h"
#include "base/context.h"
#include "dist/ranks.h"

#include <math.h>
#include <string.h>

typedef struct training {
    attn__run run;
    const attn_translator_job *job;
    const char *text; /* of the pairs, where there is no path */
    size_t text_size;
    attn_compat compat;
    int64_t max_tokens;
    attn_pairs *all, *train, *valid, *test;
    attn_vocab *source, *target;
    attn_corpus *train_corpus, *valid_corpus;
    attn_batches *train_batches, *valid_batches; /* valid: NULL if there is nothing to validate on */
    int32_t pad;
} training;

/* ------------------------------------------------------------------------------------------------ data */

static attn_status split_pairs(training *t)
{
    attn_split_options options = attn__setting_split(t->run.settings);
    attn_status status = attn_pairs_split(t->all, &options, &t->train, &t->valid, &t->test);
    if (status == ATTN_OK && attn_pairs_size(t->train) == 0)
        return attn__fail(t->run.context, ATTN_ARGUMENT, "no pairs are left for training out of %lld",
                          (long long)attn_pairs_size(t->all));
    return status;
}

/* A resumed run reads the vocabularies that it wrote. */
static attn_status make_vocabularies(training *t)
{
    attn_vocab_kind kind = attn__setting_vocabulary(t->run.settings);
    if (t->run.resume) {
        attn_status status = attn__vocab_read(&t->source, t->run.context, t->run.directory, ATTN_SOURCE, kind);
        return status != ATTN_OK ? status
                                 : attn__vocab_read(&t->target, t->run.context, t->run.directory, ATTN_TARGET, kind);
    }
    attn_vocab_options options = {
        .compat = t->compat,
        .min_frequency = attn_config_int(t->run.settings, "min_frequency", 2),
        .max_size = attn_config_int(t->run.settings, kind ? "vocabulary_size" : "max_words", 0),
        .steps = t->max_tokens,
        .kind = kind,
        .joint = attn_config_bool(t->run.settings, "joint_vocabulary", true),
    };
    const attn_pairs *from = t->compat == ATTN_COMPAT_D2L ? t->all : t->train;
    attn_status status = attn_vocab_build(&t->source, from, ATTN_SOURCE, &options);
    return status != ATTN_OK ? status : attn_vocab_build(&t->target, from, ATTN_TARGET, &options);
}

static attn_status make_batches(training *t, const attn_pairs *pairs, bool shuffled, attn_corpus **corpus,
                                attn_batches **batches)
{
    attn_encode_options encoding = {.compat = t->compat, .steps = t->max_tokens};
    attn_status status = attn_corpus_create(corpus, pairs, t->source, t->target, &encoding);
    if (status != ATTN_OK)
        return status;
    bool d2l = t->compat == ATTN_COMPAT_D2L;
    attn_batches_options options = {
        .size = attn_config_int(t->run.settings, "batch", 64),
        .tokens = shuffled && !d2l ? attn_config_int(t->run.settings, "batch_tokens", 0) : 0,
        .seed = (uint64_t)attn_config_int(t->run.settings, "seed", 1),
        .in_order = !shuffled,
        .mixed_lengths = d2l,
        .fixed_steps = d2l ? t->max_tokens : 0,
    };
    status = attn_batches_create(batches, *corpus, &options);
    if (status == ATTN_OK)
        attn_batches_divide(*batches);
    return status;
}

static attn_status read_pairs(training *t)
{
    attn_pairs_options options = {.compat = t->compat,
                                  .max_examples = attn_config_int(t->run.settings, "max_examples", 0),
                                  .keep_text = attn__setting_vocabulary(t->run.settings) != ATTN_VOCAB_WORDS};
    attn_pairs_destroy(t->all);
    return attn__pairs_read(&t->all, t->run.context, t->run.data, t->text, t->text_size, &options, &t->run.fingerprint);
}

/* With few pairs, pieces are learned no better than words; what "auto" comes to stands in training.json. */
static attn_status choose_vocabulary(training *t)
{
    enum { ENOUGH = 4000 };
    if (strcmp(attn_config_text(t->run.settings, "vocabulary", "word"), "auto") != 0)
        return ATTN_OK;
    bool many = attn_subwords_available() && attn_pairs_size(t->all) >= ENOUGH;
    attn_status status = attn_config_set_text(t->run.settings, "vocabulary", many ? "unigram" : "word");
    return status == ATTN_OK && many ? read_pairs(t) : status;
}

/* Which tables are shared, where nobody said it: what training.json keeps, so that a resumed run has the same model. */
static attn_status choose_tie(training *t)
{
    attn_config *settings = t->run.settings;
    bool words = attn__setting_vocabulary(settings) == ATTN_VOCAB_WORDS;
    bool transformer = strcmp(attn_config_text(settings, "model", ""), "transformer") == 0;
    if (t->run.resume || words || !transformer || attn_config_get(settings, "tie"))
        return ATTN_OK;
    return attn_config_set_text(settings, "tie",
                                attn_config_bool(settings, "joint_vocabulary", true) ? "all" : "decoder");
}

static attn_status prepare_data(training *t)
{
    attn_status status = read_pairs(t);
    if (status == ATTN_OK)
        status = choose_vocabulary(t);
    if (status == ATTN_OK)
        status = choose_tie(t);
    if (status == ATTN_OK)
        status = attn__run_check_data(&t->run); /* before anything about other data is found to be wrong */
    if (status == ATTN_OK)
        status = split_pairs(t);
    if (status == ATTN_OK)
        status = make_vocabularies(t);
    if (status == ATTN_OK)
        status = make_batches(t, t->train, true, &t->train_corpus, &t->train_batches);
    if (status == ATTN_OK && attn_pairs_size(t->valid) > 0)
        status = make_batches(t, t->valid, false, &t->valid_corpus, &t->valid_batches);
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
    return attn_batches_count(((const training *)user)->train_batches);
}

static attn_tensor *job_loss(void *user, attn_tape *tape, int64_t epoch, int64_t step, int64_t *tokens)
{
    training *t = user;
    attn_batch batch;
    attn__batch_tensors on;
    attn_batches_seek(t->train_batches, epoch, step);
    if (!attn_batches_next(t->train_batches, &batch)) {
        attn__fail(t->run.context, ATTN_INTERNAL, "epoch %lld has no step %lld", (long long)epoch, (long long)step);
        return NULL;
    }
    *tokens = batch.stands_in ? 0 : batch.target_tokens;
    attn__run_share(&t->run, tape, (attn_share){batch.first, batch.stands_in ? 0 : batch.size, batch.whole},
                    batch.whole_tokens);
    if (!attn__batch_on_tape(tape, &batch, &on))
        return NULL;
    attn_tensor *logits = attn_seq2seq_forward(t->run.model, tape, on.source, on.source_lens, on.input, NULL);
    attn_cross_entropy_options options = {.has_ignore = true,
                                          .ignore = t->pad,
                                          .label_smoothing = attn_config_real(t->run.settings, "label_smoothing", 0)};
    return attn_cross_entropy(tape, logits, on.labels, &options);
}

attn_status attn__translator_loss(attn_model *model, attn_tape *tape, attn_batches *batches, int32_t pad,
                                  bool see_future, double *loss)
{
    attn_seq2seq_options options = {.see_future = see_future};
    attn_cross_entropy_options counted = {.has_ignore = true, .ignore = pad};
    attn_context *context = attn_model_context(model);
    double sums[2] = {0, 0}; /* of losses, of tokens */
    attn_batch batch;
    attn_status status = ATTN_OK;
    attn_batches_seek(batches, 0, 0);
    while (status == ATTN_OK && attn_batches_next(batches, &batch)) {
        attn__batch_tensors t;
        attn_tape_reset(tape, NULL);
        status = attn__ranks_poll(context);
        if (batch.stands_in)
            continue;
        if (!attn__batch_on_tape(tape, &batch, &t))
            return attn_context_status(context);
        attn_tensor *logits = attn_seq2seq_forward(model, tape, t.source, t.source_lens, t.input, &options);
        attn_tensor *mean = attn_cross_entropy(tape, logits, t.labels, &counted);
        if (!mean)
            return attn_context_status(context);
        sums[0] += (double)*(const float *)attn_tensor_data(mean) * (double)batch.target_tokens;
        sums[1] += (double)batch.target_tokens;
    }
    if (status == ATTN_OK && attn_batches_divided(batches))
        status = attn__ranks_sum(context, sums, 2, ATTN__SUM_F64);
    *loss = sums[1] > 0 ? sums[0] / sums[1] : NAN;
    return status;
}

static attn_status job_validate(void *user, attn_tape *tape, double *loss)
{
    const training *t = user;
    return attn__translator_loss(t->run.model, tape, t->valid_batches, t->pad, t->compat == ATTN_COMPAT_D2L, loss);
}

/* ------------------------------------------------------------------------------------------------- run */

static attn_status run_prepare(attn__run *run)
{
    training *t = run->self;
    if (run->resume && !run->data && !t->text)
        t->text = attn_phrasebook(&t->text_size);
    t->compat = attn__setting_compat(run->settings);
    t->max_tokens = attn_config_int(run->settings, "max_tokens", 64);
    attn_status status = prepare_data(t);
    if (status == ATTN_OK)
        status = attn__translator_model(&run->model, run->context, run->settings, t->source, t->target);
    if (status != ATTN_OK)
        return status;
    run->no_validation = !t->valid_batches;
    t->pad = attn_vocab_special(t->target, ATTN_PAD);
    return ATTN_OK;
}

static attn_status run_write(const attn__run *run)
{
    const training *t = run->self;
    return attn__translator_write(run->model, run->settings, t->source, t->target, run->directory);
}

static void run_announce(const attn__run *run)
{
    const training *t = run->self;
    if (!t->job->begin)
        return;
    attn_translator_plan plan = {
        .settings = run->settings,
        .train_pairs = attn_pairs_size(t->train),
        .valid_pairs = attn_pairs_size(t->valid),
        .test_pairs = attn_pairs_size(t->test),
        .source_words = attn_vocab_size(t->source),
        .target_words = attn_vocab_size(t->target),
        .parameters = attn__run_parameters(run),
        .steps_per_epoch = attn_batches_count(t->train_batches),
        .epochs = run->epochs,
        .first_epoch = attn__run_epoch(run) + 1,
    };
    t->job->begin(t->job->user, &plan);
}

static const char *const own_files[] = {"source.vocab", "target.vocab", "source.spm", "target.spm", NULL};

static const attn__run_kind kind = {
    .keys = &attn__translator_keys,
    .no_path = "phrasebook",
    .own_files = own_files,
    .prepare = run_prepare,
    .write = run_write,
    .announce = run_announce,
    .steps = job_steps,
    .loss = job_loss,
    .validate = job_validate,
};

static void release(training *t)
{
    attn_model_destroy(t->run.model);
    attn_batches_destroy(t->train_batches);
    attn_batches_destroy(t->valid_batches);
    attn_corpus_destroy(t->train_corpus);
    attn_corpus_destroy(t->valid_corpus);
    attn_vocab_destroy(t->source);
    attn_vocab_destroy(t->target);
    attn_pairs_destroy(t->train);
    attn_pairs_destroy(t->valid);
    attn_pairs_destroy(t->test);
    attn_pairs_destroy(t->all);
}

attn_status attn_translator_train(attn_context *context, const attn_translator_job *job)
{
    training t = {.job = job, .text = job->text, .text_size = job->text_size};
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
    release(&t);
    return status;
}
