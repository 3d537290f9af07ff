/* SPDX-License-Identifier: MIT
 *
 * loop.h - the training loop: epochs of steps, validation, early stopping, saving.  It calls back for the loss of a step.
 */
#ifndef ATTN_TRAIN_LOOP_H
#define ATTN_TRAIN_LOOP_H

#include "attn/train.h"

/* Callbacks of the loop.  Every function gets `user`. */
typedef struct attn_job {
    void *user;
    /* Steps of one epoch (the same each epoch). */
    int64_t (*steps)(void *user);
    /* The loss of step `step` (from 0) of `epoch` (from 0), one element, recorded on `tape`; NULL on error.
     * *tokens gets how many labels it is the mean of.  Must depend on (epoch, step) only, so that a resumed run
     * computes the same as an uninterrupted one; and on the rank, where the batch is divided (see `whole`). */
    attn_tensor *(*loss)(void *user, attn_tape *tape, int64_t epoch, int64_t step, int64_t *tokens);
    /* Mean loss on data that is not trained on; NULL: none, and no early stopping. */
    attn_status (*validate)(void *user, attn_tape *tape, double *loss);
    /* Metric of the last validation that replaces its loss, higher being better; NaN: by the loss.  May be NULL. */
    double (*judge)(void *user);
    /* Called at each epoch's end, and when the run stops early: parameters are best so far if `improved`. */
    attn_status (*save)(void *user, bool improved);
    /* May be NULL.  Returning false stops the run after saving. */
    bool (*progress)(void *user, const attn_progress *progress);
    /* Labels in the whole batch of the step for which `loss` was last called, of which this process has *tokens and the
     * other ranks of the context (ranks.h) the rest: gradients and losses are then added up over them, and the step is
     * that of the whole batch.  NULL: the batch is not divided. */
    int64_t (*whole)(void *user);
} attn_job;

typedef struct attn_training_options {
    int64_t epochs;
    attn_schedule schedule;
    attn_optimizer_options optimizer;
    uint64_t seed;
    int64_t patience;   /* validations without improvement before stopping; 0: never */
    int64_t save_every; /* steps between saves inside an epoch; 0: only at epochs' ends */
    int64_t accumulate; /* gradient accumulation: losses of the job per optimizer step, which uses their mean gradient
                         * (the last step of an epoch may have fewer); 0: 1.  Not where ranks divide a batch. */
} attn_training_options;

/* State of a run: the optimizer and the counters.  All of it can be saved and restored. */
typedef struct attn_training attn_training;

/* A run at its beginning, with an optimizer of its own for `parameters`, which must outlive it; the caller destroys
 * it.  ATTN_ERROR_ARGUMENT: options out of range; ATTN_ERROR_UNSUPPORTED: a parameter to be trained that is not f32;
 * ATTN_ERROR_MEMORY. */
attn_status attn_training_create(attn_training **training, attn_context *context, const attn_named_list *parameters,
                                 const attn_training_options *options);
void attn_training_destroy(attn_training *training); /* NULL is allowed */
/* Its optimizer, which it owns.  const is shallow, here and in attn_tensor_data and attn_model_parameters: what they
 * give may be changed through a const handle. */
attn_optimizer *attn_training_optimizer(const attn_training *training);
int64_t attn_training_epoch(const attn_training *training); /* epochs done */
/* The counters and sums of a run, as a config (for a checkpoint), and back.  ATTN_ERROR_FORMAT: a key is missing. */
attn_status attn_training_store(const attn_training *training, attn_config *config);
attn_status attn_training_restore(attn_training *training, const attn_config *config);
/* Runs from where `training` is to the last epoch.  ATTN_ERROR_INTERRUPTED if progress() requested to stop; what the
 * job's functions return otherwise. */
attn_status attn_training_run(attn_training *training, const attn_job *job);

#endif
