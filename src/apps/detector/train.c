/* SPDX-License-Identifier: MIT
 *
 * Trains a detector. Makes batches from the data, and implements the callbacks of a run (run.h).
 */
#include "apps/detector/training.h"

#include "apps/checkpoint/model_config.h"
#include "apps/run/run.h"
#include "base/context.h"
#include "data/average_precision.h"
#include "dist/ranks.h"
#include "models/resnet_parts.h"

#include <math.h>
#include <string.h>

typedef struct training {
    attn__run run;
    attn__boxed_data data;
    attn__detector_start start;
    double valid_loss;
    bool aux; /* true: the decoder has several blocks, so the outputs of all blocks have a loss */
} training;

/* ------------------------------------------------------------------------------------------------- job */

static int64_t job_steps(void *user)
{
    const training *t = user;
    return attn__boxed_data_steps(&t->data);
}

/* Returns the loss of a batch. Its divisors are those of the whole batch, multiplied by this process's share of the
 * batch. The multiplication is needed because the gradient of each process is weighted by its share when gradients are
 * added. It cancels this weight. */
static attn_tensor *loss_of(const training *t, attn_tape *tape, const attn__set_outputs *out,
                            const attn__boxed_batch *batch)
{
    attn__detection_loss_options options = {0};
    const attn_shard *s = &batch->share;
    if (s->count > 0) {
        double part = (double)s->count / (double)s->whole;
        attn__detection_divisors(&options, s->whole * t->data.queries, batch->objects);
        options.weights *= part;
        options.objects *= part;
    }
    attn_tensor *loss = attn__detection_loss(tape, out->logits, out->boxes, &batch->targets, &options, NULL);
    if (!loss || !t->aux)
        return loss;
    return attn_add(tape, loss,
                    attn__detection_loss(tape, out->aux_logits, out->aux_boxes, &batch->targets, &options, NULL));
}

static attn_tensor *job_loss(void *user, attn_tape *tape, int64_t epoch, int64_t step, int64_t *counted)
{
    training *t = user;
    attn__boxed_batch batch;
    attn__set_outputs out;
    if (attn__boxed_data_train(&t->data, tape, epoch, step, &batch) != ATTN_OK)
        return NULL;
    *counted = batch.share.count;
    attn__run_share(&t->run, tape, batch.share, batch.share.whole);
    if (attn__detector_run(t->run.model, tape, batch.x, batch.mask, t->aux, &out) != ATTN_OK)
        return NULL;
    return loss_of(t, tape, &out, &batch);
}

/* ---------------------------------------------------------------------------------------------- validation */

/* Number of values that are stored for a detection: four of the box, the score, and the index of the category plus 1
 * (0: the data does not have the category). */
enum { NUMBERS = 6 };
/* The detections and losses of the validation part. Each picture is read alone, so the precision is that of detection,
 * which pads no picture. Each rank writes only the values of its own pictures. The sum
 * over all ranks then has the values of all pictures. The result is thus the same for any number of ranks. */
typedef struct results {
    attn_detection *found; /* [queries] detections of one picture */
    double *numbers;       /* [pictures,queries,NUMBERS] values of the detections, followed by `losses` */
    double *losses;        /* [pictures] */
    int64_t n;             /* number of detections */
} results;

static attn_status keep(const training *t, const attn__set_outputs *out, int64_t index, results *r)
{
    const attn__box_set *set = t->data.valid.set;
    const attn__boxed_image *image = &set->images[t->data.valid.order[index]];
    double *to = r->numbers + index * t->data.queries * NUMBERS;
    attn_status status =
        attn__found_of(t->run.context, out->logits, out->boxes, 0, image->width, image->height, r->found);
    for (int64_t q = 0; q < t->data.queries && status == ATTN_OK; q++, to += NUMBERS) {
        const attn_detection *f = &r->found[q];
        int64_t category = attn__box_set_category(set, t->start.classes.ids[f->label]);
        const double of[NUMBERS] = {
            f->left, f->top, f->right - f->left, f->bottom - f->top, f->score, (double)(category + 1)};
        memcpy(to, of, sizeof of);
    }
    return status;
}

static attn_status validate_image(training *t, attn_tape *tape, int64_t index, results *r)
{
    attn__boxed_batch batch;
    attn__set_outputs out;
    attn_tape_reset(tape, NULL);
    attn_status status = attn__ranks_poll(t->run.context);
    if (status == ATTN_OK)
        status = attn__boxed_data_valid(&t->data, tape, index, &batch);
    if (status == ATTN_OK)
        status = attn__detector_run(t->run.model, tape, batch.x, batch.mask, t->aux, &out);
    attn_tensor *loss = status == ATTN_OK ? loss_of(t, tape, &out, &batch) : NULL;
    if (!loss)
        return status == ATTN_OK ? attn__result_status(t->run.context, loss) : status;
    r->losses[index] = (double)*(const float *)attn_tensor_data(loss);
    return keep(t, &out, index, r);
}

static attn_status measure(training *t, const results *r)
{
    double measures[ATTN__AP_MEASURES];
    int64_t n = 0;
    attn__detection *all = attn__alloc(t->run.context, attn__size_mul((size_t)r->n, sizeof *all));
    if (!all)
        return ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < r->n; i++) {
        const double *v = r->numbers + i * NUMBERS;
        if (v[5] > 0)
            all[n++] = (attn__detection){.box = {v[0], v[1], v[2], v[3]},
                                         .score = v[4],
                                         .image = t->data.valid.order[i / t->data.queries],
                                         .category = (int64_t)v[5] - 1};
    }
    attn_status status = attn__average_precision(t->run.context, t->data.valid.set, all, n, measures, NULL);
    t->run.measure = status == ATTN_OK ? measures[ATTN__AP] : NAN;
    t->run.measure_too = status == ATTN_OK ? measures[ATTN__AP50] : NAN;
    attn__free(t->run.context, all);
    return status;
}

static attn_status validate(training *t, attn_tape *tape, results *r)
{
    int64_t images = t->data.valid.n, first, own = attn__ranks_share(t->run.context, images, &first);
    double sum = 0;
    attn_status status = ATTN_OK;
    for (int64_t i = first; i < first + own && status == ATTN_OK; i++)
        status = validate_image(t, tape, i, r);
    if (status == ATTN_OK)
        status = attn__ranks_sum(t->run.context, r->numbers, r->n * NUMBERS + images, ATTN__SUM_F64);
    for (int64_t i = 0; i < images; i++)
        sum += r->losses[i];
    t->valid_loss = sum / (double)images;
    return status == ATTN_OK ? measure(t, r) : status;
}

static attn_status job_validate(void *user, attn_tape *tape, double *loss)
{
    training *t = user;
    attn_context *context = t->run.context;
    size_t queries = (size_t)t->data.queries;
    results r = {.n = t->data.valid.n * t->data.queries,
                 .found = attn__alloc(context, attn__size_mul(queries, sizeof *r.found))};
    r.numbers = attn__alloc_zero(context, attn__size_mul((size_t)(r.n * NUMBERS + t->data.valid.n), sizeof *r.numbers));
    r.losses = r.numbers ? r.numbers + r.n * NUMBERS : NULL;
    attn_status status = r.found && r.numbers ? validate(t, tape, &r) : ATTN_ERROR_MEMORY;
    *loss = t->valid_loss;
    attn__free(context, r.found);
    attn__ranks_free(context, r.numbers);
    return status;
}

/* Returns the value by which epochs are compared. It is the precision. A precision below ATTN__DETECTOR_NOISE is due to
 * a few boxes by chance, so among such epochs, which are below all others, the smallest loss decides. It also decides
 * among epochs with equal precision. If the validation part has no objects, the precision is -1, so only the loss
 * decides. */
double attn__detector_judge(double precision, double loss)
{
    if (precision < 0)
        return NAN;
    return precision < ATTN__DETECTOR_NOISE ? -1 - loss : precision - 1e-6 * (loss < 1000 ? loss : 1000);
}

static double job_judge(const void *user)
{
    const training *t = user;
    return attn__detector_judge(t->run.measure, t->valid_loss);
}

/* ------------------------------------------------------------------------------------------------- run */

static attn_status prepare_data(training *t)
{
    attn__run *run = &t->run;
    const attn_config *s = run->settings;
    attn_status status = attn__boxed_data_read(&t->data, run->context, run->data, s);
    run->no_validation = !t->data.valid_set;
    if (status != ATTN_OK)
        return status;
    run->fingerprint = attn__boxed_data_fingerprint(&t->data);
    status = attn__run_check_data(run);
    if (status == ATTN_OK && attn_config_real(s, "label_smoothing", 0) > 0)
        status = attn__fail(run->context, ATTN_ERROR_ARGUMENT,
                            "label_smoothing is %g; it must be 0, because the loss of boxes does not support smoothing",
                            attn_config_real(s, "label_smoothing", 0));
    return status;
}

/* Refuses the setting `stages` if the checkpoint's backbone has another number of stages. */
static attn_status check_stages(const attn__run *run)
{
    const attn_config_value stages = {.type = ATTN_CONFIG_TYPE_INT,
                                      .integer = attn__resnet_stages(attn_model_config(run->model))};
    return attn__run_refuse(run, "stages", &stages, "has another value");
}

static attn_status run_prepare(attn__run *run)
{
    training *t = run->self;
    attn_status status = prepare_data(t);
    /* The backbone is trained at a tenth of the rate if it comes from a checkpoint, because it is already trained.
     * DETR's authors do the same. */
    if (status == ATTN_OK && attn_config_get(run->settings, "from") && !attn_config_get(run->settings, "rates") &&
        !run->resume)
        status = attn_config_set_text(run->settings, "rates", "backbone\\..*=0.1");
    return status == ATTN_OK ? attn__detector_start_begin(&t->start, run->context, run->settings, t->data.set) : status;
}

static attn_status run_create(attn__run *run)
{
    const training *t = run->self;
    return attn__detector_new(&run->model, run->context, run->settings, t->start.classes.n);
}

static attn_status run_from(attn__run *run, const char *path)
{
    const training *t = run->self;
    (void)path; /* it is open since attn__detector_start_begin */
    attn_status status = attn__detector_start_model(&run->model, run->context, &t->start, run->settings, &run->taken);
    return status == ATTN_OK ? check_stages(run) : status;
}

static attn_status run_begin(attn__run *run)
{
    training *t = run->self;
    const attn_config *own = attn_model_config(run->model);
    t->aux = attn_config_int(own, "dec_layers", 1) > 1;
    t->data.queries = attn_config_int(own, "num_queries", 0);
    t->data.classes = t->start.classes;
    t->data.view = t->start.view;
    t->data.batch = attn_config_int(run->settings, "batch", 1);
    t->data.flip = attn_config_bool(run->settings, "flip", false);
    t->data.crop = attn_config_bool(run->settings, "crop", false);
    return attn__boxed_data_begin(&t->data);
}

static attn_status run_write(const attn__run *run)
{
    static const char *const kept[] = {"seed", "valid", NULL};
    const training *t = run->self;
    attn_config *config = NULL;
    attn_status status = attn__model_config_create(&config, run->model, run->settings, kept);
    if (status == ATTN_OK)
        status = attn__detector_describe(config, &t->start.classes, &t->start.view);
    if (status == ATTN_OK)
        status = attn__model_config_write(config, run->context, run->directory);
    attn_config_destroy(config);
    return status;
}

static attn_status run_measure_data(const attn__run *run, attn_config *sizes, attn_trainer_plan *plan)
{
    const training *t = run->self;
    (void)plan;
    const attn__run_size list[] = {
        {"train_images", t->data.train.n}, {"valid_images", t->data.valid.n}, {"objects", t->data.set->nobjects},
        {"classes", t->start.classes.n},   {"queries", t->data.queries},      {"size", t->data.view.size},
        {"left_out", t->data.left_out},
    };
    return attn__run_set_sizes(sizes, list, sizeof list / sizeof *list);
}

static void run_release(void *self)
{
    training *t = self;
    attn__detector_start_end(&t->start, t->run.context);
    attn__boxed_data_free(&t->data);
}

const attn__run_kind attn__detector_training_kind = {
    .about = &attn__detector_trainer,
    .product = ATTN__PRODUCT_DETECTOR,
    .size = sizeof(training),
    .keys = &attn__detector_keys,
    .measure = "valid_ap",
    .measure_too = "valid_ap50",
    .prepare = run_prepare,
    .create = run_create,
    .from = run_from,
    .begin = run_begin,
    .write = run_write,
    .measure_data = run_measure_data,
    .steps = job_steps,
    .loss = job_loss,
    .validate = job_validate,
    .judge = job_judge,
    .release = run_release,
};
