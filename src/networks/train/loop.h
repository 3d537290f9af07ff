/* SPDX-License-Identifier: MIT
 *
 * loop.h - the training loop, with epochs of steps, validation, early stopping and saving. A callback computes the loss
 * of each step.
 */
#ifndef ATTN_TRAIN_LOOP_H
#define ATTN_TRAIN_LOOP_H

#include "attn/train.h"

/* Callbacks of the training loop. `user` is passed to every callback. */
typedef struct attn_job {
    void *user;
    /* Returns the number of steps of an epoch, which is the same for all epochs. */
    int64_t (*steps)(void *user);
    /* Computes the loss of step `step` of epoch `epoch`, both counted from 0. The loss has one element and is recorded
     * on `tape`. Returns NULL on error. *tokens gets the number of labels over which the loss is a mean. The result
     * must depend only on (epoch, step), so that a resumed run computes the same as an uninterrupted run. If the batch
     * is sharded (see `whole`), the result also depends on the rank. */
    attn_tensor *(*loss)(void *user, attn_tape *tape, int64_t epoch, int64_t step, int64_t *tokens);
    /* Computes the mean loss on the validation data. NULL: no validation and no early stopping. */
    attn_status (*validate)(void *user, attn_tape *tape, double *loss);
    /* Returns the metric of the last validation, of which larger values are better. If it is not NaN, the metric
     * decides which parameters are the best, otherwise the validation loss does. May be NULL. */
    double (*judge)(void *user);
    /* Called at the end of each epoch, every `save_every` steps, and when the run stops early. `improved` is true if
     * the current parameters are the best so far. */
    attn_status (*save)(void *user, bool improved);
    /* Reports progress. If it returns false, the run is saved and stops. May be NULL. */
    bool (*progress)(void *user, const attn_progress *progress);
    /* Returns the number of labels in the whole batch of the step for which `loss` was last called. It is needed if the
     * context's ranks (ranks.h) shard the batch. `loss` then covers only *tokens of these labels. Gradients and losses
     * are summed over the ranks, so that each step is a step of the whole batch. NULL: the batch is not sharded. */
    int64_t (*whole)(void *user);
} attn_job;

typedef struct attn_training_options {
    int64_t epochs;
    attn_schedule schedule;
    attn_optimizer_options optimizer;
    uint64_t seed;
    int64_t patience;   /* number of validations without improvement before stopping; 0: never */
    int64_t save_every; /* number of steps between saves inside an epoch; 0: save only at the ends of epochs */
    /* Number of losses per optimizer step, which uses the mean of their gradients (gradient accumulation). 0 means 1.
     * The last step of an epoch may have fewer losses. Must be 0 or 1 if ranks shard a batch. */
    int64_t accumulate;
} attn_training_options;

typedef struct attn_training attn_training;

/* Creates a run with its own optimizer for `parameters`, which must outlive the run. The caller destroys the run.
 * ATTN_ERROR_ARGUMENT: an option is out of range. ATTN_ERROR_UNSUPPORTED: a trained parameter is not f32.
 * ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn_training_create(attn_training **training, attn_context *context, const attn_named_list *parameters,
                                 const attn_training_options *options);
void attn_training_destroy(attn_training *training);
/* Returns the optimizer, which the run owns. The optimizer may be changed although `training` is const, because const
 * does not apply to the objects to which the run points. */
attn_optimizer *attn_training_optimizer(const attn_training *training);
int64_t attn_training_epoch(const attn_training *training); /* number of finished epochs */
/* Stores the counters and sums of a run in a config, for a checkpoint. attn_training_restore reads them from a config.
 * ATTN_ERROR_FORMAT: a key is missing. */
attn_status attn_training_store(const attn_training *training, attn_config *config);
attn_status attn_training_restore(attn_training *training, const attn_config *config);
/* Runs from the current state of `training` to the last epoch. ATTN_ERROR_INTERRUPTED if progress() requested to stop;
 * otherwise the status of the job's functions. */
attn_status attn_training_run(attn_training *training, const attn_job *job);

#endif
