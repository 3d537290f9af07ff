/* SPDX-License-Identifier: MIT
 *
 * Runs a training from its first step or from its checkpoint. The order of the operations matters. Settings are read
 * before the data, because they control how the data is read. The lock is taken before any file is written. The first
 * checkpoint is written before the first step.
 */
#include "apps/run/internal.h"

#include "apps/checkpoint/model_config.h"
#include "apps/checkpoint/model_directory.h"
#include "base/context.h"
#include "base/integers.h"
#include "dist/ranks.h"
#include "models/kind.h"
#include "tensor/tape_state.h"
#include "train/loop.h"

#include <math.h>
#include <string.h>

/* -------------------------------------------------------------------------------------------- settings */

const char *const attn__run_optimizers[] = {"adam", "adamw", "sgd", NULL};
const char *const attn__run_schedules[] = {"constant", "cosine", "inverse-sqrt", "step", NULL};
const char *const attn__run_precisions[] = {"default", "f32", "fma", "bf16", NULL};
const char *const attn__run_keeps[] = {"best", "last", NULL};

static int choice(const char *const *choices, const char *value)
{
    int i = 0;
    while (choices[i + 1] && strcmp(choices[i], value) != 0)
        i++;
    return i;
}

static int64_t epoch_steps(const attn_config *s, int64_t batches)
{
    return attn__ceil_div(batches, attn_config_int(s, "accumulate", 1));
}

/* Returns the epochs after which the schedule `step` lowers the rate. */
static int64_t drop_of(const attn_config *s)
{
    int64_t drop = attn_config_int(s, "rate_drop", 0);
    return drop > 0 ? drop : (2 * attn_config_int(s, "epochs", 0) + 2) / 3;
}

attn_status attn__run_fix_schedule(attn_config *settings)
{
    bool steps = strcmp(attn_config_text(settings, "schedule", ""), "step") == 0;
    return steps ? attn_config_set_int(settings, "rate_drop", drop_of(settings)) : ATTN_OK;
}

attn_training_options attn__run_options(const attn_config *s, int64_t steps_per_epoch)
{
    static const attn_optimizer_kind kinds[] = {ATTN_OPTIMIZER_ADAM, ATTN_OPTIMIZER_ADAMW, ATTN_OPTIMIZER_SGD};
    static const attn_schedule_kind falls[] = {ATTN_SCHEDULE_CONSTANT, ATTN_SCHEDULE_COSINE,
                                               ATTN_SCHEDULE_INVERSE_SQUARE_ROOT, ATTN_SCHEDULE_STEP};
    int64_t epochs = attn_config_int(s, "epochs", 0);
    attn_schedule_kind kind = falls[choice(attn__run_schedules, attn_config_text(s, "schedule", ""))];
    return (attn_training_options){
        .epochs = epochs,
        .seed = (uint64_t)attn_config_int(s, "seed", 1),
        .patience = attn_config_int(s, "patience", 0),
        .save_every = attn_config_int(s, "save_every", 0),
        .accumulate = attn_config_int(s, "accumulate", 1),
        .schedule = {.kind = kind,
                     .peak = attn_config_real(s, "rate", 0),
                     .warmup = attn_config_int(s, "warmup", 0),
                     .total = (kind == ATTN_SCHEDULE_STEP ? drop_of(s) : epochs) * epoch_steps(s, steps_per_epoch),
                     .floor = kind == ATTN_SCHEDULE_STEP ? 0.1 : 0.01},
        .optimizer = {.kind = kinds[choice(attn__run_optimizers, attn_config_text(s, "optimizer", ""))],
                      .momentum = attn_config_real(s, "momentum", 0),
                      .weight_decay = attn_config_real(s, "weight_decay", 0),
                      .clip_norm = attn_config_real(s, "clip", 0)},
    };
}

/* ------------------------------------------------------------------------------------------------- job */

static int64_t job_steps(void *user)
{
    const attn__run *run = user;
    return run->kind->steps(run->self);
}

static attn_tensor *job_loss(void *user, attn_tape *tape, int64_t epoch, int64_t step, int64_t *counted)
{
    const attn__run *run = user;
    return run->kind->loss(run->self, tape, epoch, step, counted);
}

static int64_t job_whole(void *user)
{
    return ((const attn__run *)user)->whole;
}

void attn__run_share(attn__run *run, attn_tape *tape, attn_shard share, int64_t whole)
{
    run->whole = whole;
    if (attn__ranks_many(run->context))
        attn_tape_shard(tape, share);
}

static attn_status job_validate(void *user, attn_tape *tape, double *loss)
{
    attn__run *run = user;
    attn__run_average_epoch(run);
    attn__run_average_swap(run);
    attn_status status = attn__run_lora_fold(run, true);
    if (status == ATTN_OK)
        status = run->kind->validate(run->self, tape, loss);
    (void)attn__run_lora_fold(run, false);
    attn__run_average_swap(run);
    /* Checks that all ranks have the same parameters. They must, because all ranks take the same steps from the same
     * sums. A difference would be a fault of the machine or of MPI, which should be found early. */
    if (status == ATTN_OK && attn__ranks_many(run->context))
        status = attn__ranks_same(run->context, attn__run_sum_tensors(attn_model_parameters(run->model)),
                                  "has other parameters than rank 0");
    return status;
}

static double job_judge(void *user)
{
    const attn__run *run = user;
    return run->kind->judge(run->self);
}

static attn_status job_save(void *user, bool improved)
{
    const attn__run *run = user;
    return attn__ranks_first(run->context) ? attn__run_save(user, improved) : ATTN_OK;
}

static bool job_progress(void *user, const attn_progress *progress)
{
    attn__run *run = user;
    attn_progress told = *progress;
    if (progress->epoch_ends && run->no_validation)
        /* a validation has already updated the average, so this call is only needed if there is none */
        attn__run_average_epoch(run);
    if (progress->epoch_ends)
        attn__run_note_epoch(run, progress);
    else /* a step; the end of an epoch is reported by a separate call after its last step */
        attn__run_average_step(run, progress->all_steps);
    told.metric = run->measure;
    told.metric2 = run->measure_too;
    return !run->job->progress || run->job->progress(run->job->user, &told);
}

/* ------------------------------------------------------------------------------------------------- run */

int64_t attn__run_epoch(const attn__run *run)
{
    return attn_training_epoch(run->training);
}

int64_t attn__run_parameters(const attn__run *run)
{
    const attn_named_list *list = attn_model_parameters(run->model);
    int64_t count = 0;
    for (int64_t i = 0; i < list->n; i++)
        count += attn_tensor_requires_grad(list->items[i].tensor) ? attn_tensor_size(list->items[i].tensor) : 0;
    return count;
}

/* Chooses the precision of the training. It is stored as a setting, so that a resumed training uses the same
 * precision. Older directories do not have this setting and use f32. */
static attn_status choose_precision(attn__run *run)
{
    attn_precision precision;
    if (!attn_precision_find(&precision, attn_config_text(run->settings, "precision", "")))
        precision = run->resume ? ATTN_PRECISION_F32 : run->context->precision;
    if (precision == ATTN_PRECISION_INT8)
        return attn__fail(run->context, ATTN_ERROR_UNSUPPORTED,
                          "the precision int8 has no gradients; train in f32 or bf16");
    run->model->precision = precision;
    if (precision == ATTN_PRECISION_FMA)
        run->context->isa = attn__isa_without_amx(run->context->isa);
    return run->resume ? ATTN_OK : attn_config_set_text(run->settings, "precision", attn_precision_name(precision));
}

/* Reports whether a setting of the training sets this key of the model's config. The setting may have another name
 * than the key. */
static bool is_setting_of(const char *setting, const char *key)
{
    static const char *const names[][2] = {
        {"patch", "patch_size"},    {"width", "num_hiddens"},        {"width", "dim"},
        {"depth", "num_blks"},      {"heads", "num_heads"},          {"window", "kernel_size"},
        {"mlp", "mlp_num_hiddens"}, {"mlp", "dim_feedforward"},      {"heads", "nheads"},
        {"hidden", "hidden_dim"},   {"encoder_depth", "enc_layers"}, {"decoder_depth", "dec_layers"},
        {"queries", "num_queries"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i][0], setting) == 0 && strcmp(names[i][1], key) == 0)
            return true;
    /* Two settings are excluded: dropout may differ from the checkpoint's, and channels are compared with the
     * pictures. */
    return strcmp(setting, key) == 0 && strcmp(key, "dropout") != 0 && strcmp(key, "channels") != 0;
}

attn_status attn__run_refuse(const attn__run *run, const char *setting, const attn_config_value *its, const char *why)
{
    const attn_config_value *given = run->given ? attn_config_get(run->given, setting) : NULL;
    if (!given || (its && attn_config_value_equal(given, its)))
        return ATTN_OK;
    return attn__fail(run->context, ATTN_ERROR_ARGUMENT, "the setting \"%s\" is given, but %s %s; leave \"%s\" out",
                      setting, attn_config_text(run->settings, "from", ""), why, setting);
}

/* Checks the settings that the caller gave, if the training starts from a checkpoint. A setting of the model must
 * have the value that the checkpoint has. */
static attn_status check_given(const attn__run *run)
{
    bool begins = !run->resume && run->given && attn_config_get(run->settings, "from");
    const attn_config *model = attn_model_config(run->model);
    attn_status status = ATTN_OK;
    for (int64_t i = 0; begins && i < attn_config_size(run->given); i++) {
        const char *setting = attn_config_key(run->given, i);
        /* open: with the value 0, "mlp" is determined by the width, so it does not contradict the checkpoint */
        bool open = strcmp(setting, "mlp") == 0 && attn_config_int(run->given, setting, 0) == 0;
        for (int64_t j = 0; !open && status == ATTN_OK && j < attn_config_size(model); j++) {
            const char *key = attn_config_key(model, j);
            if (is_setting_of(setting, key))
                status = attn__run_refuse(run, setting, attn_config_get(model, key), "has another value");
        }
    }
    return status;
}

/* Refuses settings that the caller gave and that have no effect. The kind's prepare decides settings that are "auto". */
static attn_status check_needs(const attn__run *run)
{
    static const attn__key_need needs[] = {{"momentum", "optimizer", {"sgd"}}, {"rate_drop", "schedule", {"step"}}};
    const attn__keys *keys = run->kind->keys;
    if (run->resume)
        return ATTN_OK;
    attn_status status =
        attn__keys_check_needs(run->context, keys, needs, sizeof needs / sizeof *needs, run->given, run->settings);
    return status == ATTN_OK
               ? attn__keys_check_needs(run->context, keys, keys->needs, keys->nneeds, run->given, run->settings)
               : status;
}

/* If the warm-up is not given, limits it to a tenth of the run. Otherwise a short run would never reach its full
 * learning rate. training.json contains the limited value. */
static attn_status fit_warmup(attn__run *run)
{
    const attn_config *s = run->settings;
    bool asked = run->given && attn_config_get(run->given, "warmup");
    int64_t all = attn_config_int(s, "epochs", 0) * epoch_steps(s, run->kind->steps(run->self));
    int64_t most = attn__ceil_div(all, 10);
    if (asked || run->resume || most == 0 || attn_config_int(s, "warmup", 0) <= most)
        return ATTN_OK;
    run->warmup_fitted = true;
    return attn_config_set_int(run->settings, "warmup", most);
}

attn_status attn__run_copy_model(attn__run *run, const attn_model *from, attn_config *over, const char *fresh)
{
    attn_config *own = NULL;
    attn_status status = over ? ATTN_OK : attn_config_create(&own, run->context);
    over = over ? over : own;
    if (status == ATTN_OK)
        status = attn_config_set_real(over, "dropout", attn_config_real(run->settings, "dropout", 0));
    if (status == ATTN_OK)
        status = attn__model_copy(&run->model, from, over);
    if (status == ATTN_OK && !run->resume)
        status = attn__model_tell_taken(run->model, fresh, &run->taken);
    attn_config_destroy(own);
    return status;
}

static attn_status make_model(attn__run *run)
{
    const char *from = attn_config_text(run->settings, "from", NULL);
    if (run->model)
        return ATTN_OK;
    return !from         ? run->kind->create(run)
           : run->resume ? attn__model_of_directory(&run->model, run->context, run->directory)
                         : run->kind->from(run, from);
}

static attn_status prepare(attn__run *run)
{
    attn_status status = run->resume
                             ? attn__run_read_settings(run)
                             : attn__keys_resolve(&run->settings, run->context, run->kind->keys, run->given, NULL);
    if (status == ATTN_OK && attn_config_get(run->settings, "names") && !attn_config_get(run->settings, "from"))
        status =
            attn__fail(run->context, ATTN_ERROR_ARGUMENT,
                       "the setting \"names\" can be used only with \"from\", the setting that gives a checkpoint");
    if (status == ATTN_OK)
        status = check_needs(run);
    if (status == ATTN_OK)
        status = run->kind->prepare(run);
    if (status == ATTN_OK)
        status = make_model(run);
    if (status == ATTN_OK && run->kind->begin)
        status = run->kind->begin(run);
    if (status == ATTN_OK)
        status = check_given(run);
    if (status == ATTN_OK)
        status = check_needs(run);
    if (status == ATTN_OK)
        status = fit_warmup(run);
    if (status == ATTN_OK && !run->resume)
        status = attn__run_fix_schedule(run->settings);
    if (status == ATTN_OK)
        status = choose_precision(run);
    if (status == ATTN_OK)
        status = attn__run_lora_begin(run);
    if (status == ATTN_OK)
        status = attn__run_freeze(run);
    if (status != ATTN_OK)
        return status;
    attn_training_options options = attn__run_options(run->settings, run->kind->steps(run->self));
    run->epochs = options.epochs;
    status = attn_training_create(&run->training, run->context, attn_model_parameters(run->model), &options);
    if (status == ATTN_OK)
        status = attn__run_set_rates(run);
    if (status == ATTN_OK)
        status = attn__run_average_begin(run);
    if (status == ATTN_OK)
        status = run->resume                       ? attn__run_restore(run)
                 : attn__ranks_first(run->context) ? attn__run_begin_directory(run)
                                                   : ATTN_OK;
    return status;
}

/* Checks that all ranks have the same settings, data and parameters. They could differ, because each rank may read
 * from its own disk. */
static attn_status compare_ranks(const attn__run *run)
{
    uint64_t settings;
    attn_status status = attn__run_sum_settings(run, &settings);
    if (status == ATTN_OK)
        status = attn__ranks_same(run->context, settings, "was given other settings than rank 0");
    if (status == ATTN_OK)
        status = attn__ranks_same(run->context, run->fingerprint, "reads other data than rank 0");
    if (status == ATTN_OK)
        status = attn__ranks_same(run->context, attn__run_sum_tensors(attn_model_parameters(run->model)),
                                  "begins with other parameters than rank 0");
    return status;
}

attn_status attn__run_set_sizes(attn_config *sizes, const attn__run_size *list, int n)
{
    attn_status status = ATTN_OK;
    for (int i = 0; i < n && status == ATTN_OK; i++)
        status = attn_config_set_int(sizes, list[i].name, list[i].value);
    return status;
}

static attn_status announce(const attn__run *run)
{
    attn_config *sizes;
    if (!run->job->begin)
        return ATTN_OK;
    attn_status status = attn_config_create(&sizes, run->context);
    if (status != ATTN_OK)
        return status;
    attn_trainer_plan plan = {.settings = run->settings,
                              .sizes = sizes,
                              .parameters = attn__run_parameters(run),
                              .steps_per_epoch = run->kind->steps(run->self),
                              .epochs = run->epochs,
                              .first_epoch = attn__run_epoch(run) + 1,
                              .warmup_fitted = run->warmup_fitted,
                              .taken = run->taken.size ? run->taken.data : NULL};
    status = run->kind->measure_data(run, sizes, &plan);
    if (status == ATTN_OK)
        run->job->begin(run->job->user, &plan);
    attn_config_destroy(sizes);
    return status;
}

static attn_status train(attn__run *run)
{
    bool many = attn__ranks_many(run->context);
    attn_status status = run->resume || !attn__ranks_first(run->context) ? ATTN_OK : attn__run_check_directory(run);
    if (many)
        status = attn_ranks_agree(run->context, status, NULL);
    if (status == ATTN_OK)
        status = prepare(run);
    if (many)
        status = attn_ranks_agree(run->context, status, NULL);
    if (many && status == ATTN_OK)
        status = compare_ranks(run);
    if (status == ATTN_OK)
        status = announce(run);
    if (status != ATTN_OK)
        return status;
    attn_job loop = {.user = run,
                     .steps = job_steps,
                     .loss = job_loss,
                     .validate = run->no_validation ? NULL : job_validate,
                     .judge = run->kind->judge ? job_judge : NULL,
                     .save = job_save,
                     .progress = job_progress,
                     .whole = many ? job_whole : NULL};
    status = attn_training_run(run->training, &loop);
    if (status == ATTN_OK && run->kind->finish && attn__ranks_first(run->context))
        status = run->kind->finish(run);
    return status;
}

static void release(attn__run *run)
{
    attn_training_destroy(run->training);
    attn__run_lora_end(run);
    attn_config_destroy(run->settings);
    attn_config_destroy(run->stored);
    attn_bytes_free(run->context, &run->history);
    attn_bytes_free(run->context, &run->taken);
    attn__run_average_end(run);
    attn__directory_unlock(run->lock);
    run->context->isa = run->isa;
    attn_model_destroy(run->model);
    run->kind->release(run->self);
    attn__free(run->context, run->self);
}

attn_status attn__run_train(attn_context *context, const attn__run_kind *kind, const attn_trainer_job *job)
{
    attn__run *run = attn__alloc_zero(context, kind->size);
    if (!run)
        return ATTN_ERROR_MEMORY;
    *run = (attn__run){.context = context,
                       .kind = kind,
                       .job = job,
                       .self = run,
                       .directory = job->directory,
                       .data = job->data,
                       .given = job->settings,
                       .resume = job->resume,
                       .no_path = kind->in_memory ? kind->in_memory[0] : NULL,
                       .lock = -1,
                       .isa = context->isa,
                       .measure = NAN,
                       .measure_too = NAN};
    attn_status status = train(run);
    release(run);
    return status;
}
