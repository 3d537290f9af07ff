/* SPDX-License-Identifier: MIT
 *
 * Trains an MSA Transformer by masked language modelling. Reads the alignments, makes the model, and computes the loss
 * of a step. The run (run.h) handles files, stopping and resuming.
 */
#include "io/directory.h"

#include "apps/checkpoint/model_directory.h"
#include "apps/msa/msa.h"
#include "apps/msa/sample.h"
#include "apps/run/run.h"
#include "base/context.h"
#include "base/hash.h"
#include "dist/ranks.h"
#include "base/rng.h"
#include "tensor/tape_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const orders[] = {"row-column", "column-row", NULL};

static const attn_setting keys[] = {
    ATTN__RUN_BEGIN("a model: ESM-MSA-1b's .pt, or a directory of attn's, which then sets the sizes of the model",
                    "what is hidden, dropout"),
    /* data */
    ATTN__REAL(
        "valid", "0.1", 0, 0.9,
        "share of the alignments kept for validation; if not 0, at least one alignment is kept when there are several"),
    ATTN__INT("steps", "100", 1, 1e9, "steps of an epoch; each draws new parts of the alignments"),
    ATTN__INT("max_tokens", "4096", 4, 1 << 24, "residues of an alignment that a step sees: rows times columns"),
    ATTN__INT("max_columns", "256", 1, 1023,
              "most columns that a step sees; of a longer alignment it sees a random stretch"),
    ATTN__INT("depth", "0", 0, 1024, "rows of an alignment in a step at most; 0: as many as max-tokens permits"),
    ATTN__REAL("mask", "0.15", 0.001, 0.9, "share of the residues that are hidden"),
    /* model */
    ATTN__INT("layers", "4", 1, 64, "axial layers"),
    ATTN__INT("embed_dim", "128", 1, 65536, "width of the model"),
    ATTN__INT("ffn_embed_dim", "512", 1, 1048576, "width of the feed-forward layers"),
    ATTN__INT("attention_heads", "8", 1, 1024, "attention heads; divides embed-dim"),
    ATTN__BOOL("tied", "true", "one map of row attention for all rows; false: each row has its own"),
    ATTN__TEXT("order", "row-column", orders, "which attention of a layer comes first"),
    ATTN__REAL("dropout", "0.1", 0, 0.95, "share of activations dropped in training"),
    /* These are settings of the training. Labels are not smoothed, because a hidden residue has one right answer. */
    ATTN__RUN_KEYS("alignments", "residues", "20", "2", "adamw", "0.001", "cosine", "100", "0.01", "0"),
};

static const attn__keys all_keys = {.keys = keys, .n = sizeof keys / sizeof *keys};

static const attn_trainer msa_trainer = {
    .kind = "msa",
    .summary = "a language model of protein alignments",
    .data = "a folder of alignments: a3m, FASTA, a2m, Stockholm or Clustal, plain or gzip",
    .nkeys = sizeof keys / sizeof *keys,
    .keys = keys};

typedef struct training {
    attn__run run;
    attn_entries names;
    attn_alignment **alignments; /* the alignments for training, followed by the alignments for validation */
    int64_t n, train, sequences;
    int64_t passed_over; /* files of the folder that are no alignments */
    char *passed_first;  /* path of the first of these files; NULL: there is none */
    attn__msa_sampling sampling;
    attn__msa_part *parts; /* the parts of alignments on which one step trains */
    int64_t batch;
    bool regression; /* true: the initial checkpoint has a contact regression */
} training;

/* ------------------------------------------------------------------------------------------------- data */

static attn_status parse_one(training *t, const char *name, const char *path, const attn_bytes *bytes)
{
    attn_status status =
        attn_alignment_parse(&t->alignments[t->n], t->run.context, bytes->data, bytes->size, path, NULL);
    if (status != ATTN_OK)
        return status;
    t->run.fingerprint =
        attn__hash_bytes(attn__hash_bytes(t->run.fingerprint, name, strlen(name)), bytes->data, bytes->size);
    t->sequences += attn_alignment_rows(t->alignments[t->n++]);
    return ATTN_OK;
}

/* If neither its name nor its content is that of an alignment, the file is passed over. */
static attn_status read_one(training *t, const char *name)
{
    attn_context *context = t->run.context;
    char path[ATTN__PATH];
    attn_bytes bytes = {0};
    attn_status status = attn__path(context, path, t->run.data, name);
    if (status == ATTN_OK)
        status = attn_file_read(&bytes, context, path, 0);
    if (status == ATTN_OK && (attn_alignment_ending(name) > 0 || attn_alignment_is(bytes.data, bytes.size))) {
        status = parse_one(t, name, path, &bytes);
    } else if (status == ATTN_OK && t->passed_over++ == 0) {
        t->passed_first = attn__strdup(context, path);
        status = t->passed_first ? ATTN_OK : ATTN_ERROR_MEMORY;
    }
    attn_bytes_free(context, &bytes);
    return status;
}

/* Returns the rank of a file, which decides whether the file is used for training or for validation. The rank
 * depends only on the seed and the file's name. So if a file is added, few other files change their part. */
static uint64_t rank_of(const training *t, const char *name)
{
    return attn__mix64(attn__hash_bytes((uint64_t)attn_config_int(t->run.settings, "seed", 1), name, strlen(name)));
}

/* Sorts the names by falling rank. The alignments at the end, which have the lowest ranks, are used for validation. */
static void order_names(training *t)
{
    for (int64_t i = 1; i < t->names.n; i++) {
        char *name = t->names.names[i];
        int64_t at = i;
        for (; at > 0 && rank_of(t, t->names.names[at - 1]) < rank_of(t, name); at--)
            t->names.names[at] = t->names.names[at - 1];
        t->names.names[at] = name;
    }
}

static int64_t count_valid(const training *t)
{
    double share = attn_config_real(t->run.settings, "valid", 0);
    int64_t valid = (int64_t)(share * (double)t->n);
    return valid == 0 && share > 0 && t->n > 1 ? 1 : valid;
}

static attn_status read_all(training *t)
{
    attn_context *context = t->run.context;
    attn_status status = attn_directory_list(&t->names, context, t->run.data, false);
    if (status != ATTN_OK)
        return status;
    if (t->names.n == 0)
        return attn__fail(context, ATTN_ERROR_NOT_FOUND, "%s: the folder has no files", t->run.data);
    t->alignments = attn__alloc_zero(context, attn__size_mul((size_t)t->names.n, sizeof *t->alignments));
    if (!t->alignments)
        return ATTN_ERROR_MEMORY;
    order_names(t);
    t->run.fingerprint = ATTN__HASH_BEGIN;
    for (int64_t i = 0; i < t->names.n && status == ATTN_OK; i++)
        status = read_one(t, t->names.names[i]);
    if (status == ATTN_OK && t->n == 0)
        status =
            attn__fail(context, ATTN_ERROR_FORMAT, "%s: none of its %lld files is an alignment; the first file is %s",
                       t->run.data, (long long)t->passed_over, t->passed_first);
    t->train = t->n - count_valid(t);
    return status;
}

/* ------------------------------------------------------------------------------------------------ model */

/* Halves the initial weights of queries and keys of tied row attention. A tied score is a sum over R rows divided by
 * sqrt(R). Features that all rows share, such as positions, therefore count sqrt(R) times. With Xavier's initial
 * values, each map would give nearly all weight to one column before any training, and would hardly learn. Halving
 * both weights divides the scores by four, so the initial maps are flat. PyTorch's default initial values, which the
 * published model's code uses, divide the scores by three. */
static void soften_first_maps(const attn_model *model)
{
    const attn_named_list *parameters = attn_model_parameters(model);
    bool tied = attn_config_bool(attn_model_config(model), "tied", true);
    for (int64_t i = 0; i < parameters->n && tied; i++) {
        const char *name = parameters->items[i].name;
        float *x = attn_tensor_data(parameters->items[i].tensor);
        if (!strstr(name, "row_self_attention") || !(strstr(name, "q_proj.weight") || strstr(name, "k_proj.weight")))
            continue;
        for (int64_t k = 0; k < attn_tensor_size(parameters->items[i].tensor); k++)
            x[k] *= 0.5f;
    }
}

/* If the checkpoint has a contact regression, it is kept. */
static attn_status run_from(attn__run *run, const char *path)
{
    training *t = run->self;
    attn_msa *msa = NULL;
    attn_config *over = NULL;
    const attn_config *settings = run->settings;
    attn_status status = attn_config_create(&over, run->context);
    if (status == ATTN_OK)
        status = attn_config_set_real(over, "activation_dropout", attn_config_real(settings, "dropout", 0));
    if (status == ATTN_OK)
        status = attn_config_set_int(over, "max_tokens_per_msa", 16384);
    if (status == ATTN_OK)
        status = attn_msa_load(&msa, run->context, path,
                               &(attn_msa_load_options){.names = attn_config_text(settings, "names", NULL)});
    t->regression = status == ATTN_OK && msa->has_regression;
    if (status == ATTN_OK)
        status = attn__run_copy_model(run, msa->model, over, t->regression ? NULL : "contact_head.");
    attn_msa_destroy(msa);
    attn_config_destroy(over);
    return status;
}

static attn_status run_create(attn__run *run)
{
    attn_config *config;
    attn_model_options options = {.seed = (uint64_t)attn_config_int(run->settings, "seed", 1)};
    attn_status status = attn_config_create(&config, run->context);
    if (status != ATTN_OK)
        return status;
    status = attn_architecture_select(attn_architecture_find("msa-transformer"), run->settings, config);
    if (status == ATTN_OK)
        status = attn_config_set_real(config, "activation_dropout", attn_config_real(run->settings, "dropout", 0));
    if (status == ATTN_OK) /* max_tokens_per_msa limits inference only, not training steps */
        status = attn_config_set_int(config, "max_tokens_per_msa", 16384);
    if (status == ATTN_OK)
        status = attn_model_create(&run->model, run->context, "msa-transformer", config, &options);
    if (status == ATTN_OK)
        soften_first_maps(run->model);
    attn_config_destroy(config);
    return status;
}

static attn_tensor *logits_of(const training *t, attn_tape *tape, attn_tensor *tokens)
{
    attn_named_list inputs = {.context = t->run.context}, outputs = inputs;
    attn_tensor *logits = NULL;
    if (attn_named_add(&inputs, "tokens", tokens) == ATTN_OK &&
        attn_model_forward(t->run.model, tape, &inputs, &outputs) == ATTN_OK)
        logits = attn_named_find(&outputs, "logits");
    attn_named_clear(&inputs);
    attn_named_clear(&outputs);
    return logits;
}

/* Returns the loss of the parts [first, first + taken) of n parts. */
static attn_tensor *batch_loss(training *t, attn_tape *tape, int64_t n, int64_t first, int64_t taken, int64_t *hidden,
                               attn_tensor **logits, const attn_tensor **labels)
{
    attn__msa_batch batch;
    if (!attn__msa_batch_on_tape(&batch, tape, &t->sampling, t->parts, n, first, taken))
        return NULL;
    *hidden = batch.hidden;
    t->run.whole = batch.all_hidden;
    *logits = logits_of(t, tape, batch.tokens);
    *labels = batch.labels;
    attn_cross_entropy_options options = {
        .use_ignore_index = true,
        .ignore_index = -1,
        .label_smoothing = attn_tape_mode(tape).train ? attn_config_real(t->run.settings, "label_smoothing", 0) : 0};
    return attn_cross_entropy(tape, *logits, batch.labels, &options);
}

/* --------------------------------------------------------------------------------------------------- job */

static int64_t job_steps(void *user)
{
    return attn_config_int(((const training *)user)->run.settings, "steps", 1);
}

static attn_tensor *job_loss(void *user, attn_tape *tape, int64_t epoch, int64_t step, int64_t *counted)
{
    training *t = user;
    uint64_t first = (uint64_t)(epoch * job_steps(user) + step) * (uint64_t)t->batch;
    for (int64_t i = 0; i < t->batch; i++) {
        attn__rng rng = {.seed = t->sampling.seed ^ 0xa11c, .stream = first + (uint64_t)i};
        const attn_alignment *chosen = t->alignments[attn__rng_below(&rng, (uint64_t)t->train)];
        t->parts[i] = attn__msa_part_of(&t->sampling, chosen, first + (uint64_t)i);
    }
    attn_tensor *logits;
    const attn_tensor *labels;
    int64_t begin, taken = attn__ranks_share(t->run.context, t->batch, &begin);
    /* All ranks must take part in every step. If there are fewer parts than ranks, some ranks therefore run a part
     * that does not count. */
    bool stands_in = taken == 0;
    attn__run_share(&t->run, tape, (attn_shard){stands_in ? 0 : begin, taken, t->batch}, 0);
    attn_tensor *loss =
        batch_loss(t, tape, t->batch, stands_in ? 0 : begin, stands_in ? 1 : taken, counted, &logits, &labels);
    *counted = stands_in ? 0 : *counted;
    return loss;
}

/* Counts the hidden residues that the model predicts correctly. */
static int64_t found(const attn_tensor *logits, const attn_tensor *labels)
{
    int64_t classes = attn_tensor_length(logits, 3), right = 0;
    const float *row = attn_tensor_data(logits);
    const int32_t *label = attn_tensor_data(labels);
    for (int64_t i = 0; i < attn_tensor_size(labels); i++, row += classes) {
        int64_t best = 0;
        for (int64_t c = 1; label[i] >= 0 && c < classes; c++)
            best = row[c] > row[best] ? c : best;
        right += label[i] >= 0 && best == label[i];
    }
    return right;
}

/* Number of parts per validation alignment. The parts have random streams of their own, so every validation uses the
 * same parts. */
enum { VALID_PARTS = 4 };

/* Adds to `sums`: the loss, the number of hidden residues, and the number of correct predictions. */
static attn_status validate_part(training *t, attn_tape *tape, int64_t i, uint64_t part, double sums[3])
{
    int64_t hidden;
    attn_tensor *logits;
    const attn_tensor *labels;
    attn_tape_reset(tape, NULL);
    t->parts[0] = attn__msa_part_of(&t->sampling, t->alignments[i], UINT64_MAX / 8 + (uint64_t)i * VALID_PARTS + part);
    attn_tensor *mean = batch_loss(t, tape, 1, 0, 1, &hidden, &logits, &labels);
    if (!mean)
        return attn__result_status(t->run.context, mean);
    sums[0] += (double)*(const float *)attn_tensor_data(mean) * (double)hidden;
    sums[1] += (double)hidden;
    sums[2] += (double)found(logits, labels);
    return ATTN_OK;
}

static attn_status job_validate(void *user, attn_tape *tape, double *loss)
{
    training *t = user;
    attn_context *context = t->run.context;
    double sums[3] = {0, 0, 0};
    int64_t first, n = VALID_PARTS * attn__ranks_share(context, t->n - t->train, &first);
    attn_status status = ATTN_OK;
    for (int64_t at = 0; at < n && status == ATTN_OK; at++) {
        status = attn__work_around(context, "parts of alignments to validate on", at, n);
        if (status == ATTN_OK && at % VALID_PARTS == 0)
            status = attn__ranks_poll(context);
        if (status == ATTN_OK)
            status = validate_part(t, tape, t->train + first + at / VALID_PARTS, (uint64_t)(at % VALID_PARTS), sums);
    }
    attn_status told = attn__work_around(context, "parts of alignments to validate on", n, status == ATTN_OK ? n : 0);
    status = status == ATTN_OK ? told : status;
    if (status == ATTN_OK)
        status = attn__ranks_sum(context, sums, 3, ATTN__SUM_F64);
    *loss = sums[0] / sums[1];
    t->run.measure = sums[2] / sums[1];
    return status;
}

/* --------------------------------------------------------------------------------------------------- run */

static attn_status run_prepare(attn__run *run)
{
    training *t = run->self;
    attn_status status = read_all(t);
    if (status == ATTN_OK)
        status = attn__run_check_data(run);
    if (status != ATTN_OK)
        return status;
    run->no_validation = t->train == t->n;
    t->batch = attn_config_int(run->settings, "batch", 1);
    t->sampling = (attn__msa_sampling){.max_tokens = attn_config_int(run->settings, "max_tokens", 4096),
                                       .max_columns = attn_config_int(run->settings, "max_columns", 256),
                                       .max_rows = attn_config_int(run->settings, "depth", 0),
                                       .share = attn_config_real(run->settings, "mask", 0.15),
                                       .seed = (uint64_t)attn_config_int(run->settings, "seed", 1)};
    t->parts = attn__alloc(run->context, attn__size_mul((size_t)t->batch, sizeof *t->parts));
    return t->parts ? ATTN_OK : ATTN_ERROR_MEMORY;
}

static attn_status run_write(const attn__run *run)
{
    const training *t = run->self;
    return attn__msa_write_config(run->model, t->regression ? "fitted" : "untrained", run->directory);
}

static attn_status run_measure_data(const attn__run *run, attn_config *sizes, attn_trainer_plan *plan)
{
    const training *t = run->self;
    const attn__run_size list[] = {{"train_alignments", t->train},
                                   {"valid_alignments", t->n - t->train},
                                   {"sequences", t->sequences},
                                   {"passed_over", t->passed_over}};
    plan->passed_first = t->passed_first;
    return attn__run_set_sizes(sizes, list, sizeof list / sizeof *list);
}

static void run_release(void *self)
{
    training *t = self;
    for (int64_t i = 0; i < t->n; i++)
        attn_alignment_destroy(t->alignments[i]);
    attn__free(t->run.context, t->alignments);
    attn__free(t->run.context, t->parts);
    attn__free(t->run.context, t->passed_first);
    attn_entries_free(t->run.context, &t->names);
}

const attn__run_kind attn__msa_training_kind = {
    .about = &msa_trainer,
    .product = ATTN__PRODUCT_MSA,
    .size = sizeof(training),
    .keys = &all_keys,
    .measure = "accuracy",
    .prepare = run_prepare,
    .create = run_create,
    .from = run_from,
    .write = run_write,
    .measure_data = run_measure_data,
    .steps = job_steps,
    .loss = job_loss,
    .validate = job_validate,
    .release = run_release,
};
