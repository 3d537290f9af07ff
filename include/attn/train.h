/* SPDX-License-Identifier: MIT
 *
 * train.h - optimizers, learning-rate schedules and metrics for a program's own training loop. trainer.h has complete
 * trainings.  Only one thread at a time may use a context and the objects made from it. Different contexts are
 * independent. */
#ifndef ATTN_TRAIN_H
#define ATTN_TRAIN_H

#include "attn/config.h"
#include "attn/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------- optimizers */

typedef enum attn_optimizer_kind {
    ATTN_OPTIMIZER_ADAM = 0, /* Kingma and Ba 2014, arXiv:1412.6980; weight decay is added to the gradient */
    ATTN_OPTIMIZER_ADAMW, /* Loshchilov and Hutter 2017, arXiv:1711.05101; weight decay shrinks the parameter itself */
    ATTN_OPTIMIZER_SGD    /* SGD with momentum: m = momentum m + g; p -= rate m */
} attn_optimizer_kind;

typedef struct attn_optimizer_options {
    attn_optimizer_kind kind;
    /* 0 means the default: 0.9, 0.999 and 1e-8. A beta of 0 is not possible, but 1e-30 has the same effect. */
    double beta1, beta2, eps;
    double momentum; /* momentum of SGD; 0: no momentum */
    double weight_decay;
    double clip_norm; /* if the global norm of the gradients is larger, they are scaled to this norm; 0: no clipping */
    int64_t reserved[4];
} attn_optimizer_options;

typedef struct attn_optimizer attn_optimizer;

/* Makes an optimizer. `parameters` must outlive it. If a parameter needs no gradient when the optimizer is made, or
 * stops needing one later, it is never changed. `options` may be NULL. ATTN_ERROR_ARGUMENT (an option is out of
 * range), ATTN_ERROR_UNSUPPORTED (a trained parameter is not f32), ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_optimizer_create(attn_optimizer **optimizer, attn_context *context,
                                           const attn_named_list *parameters, const attn_optimizer_options *options);
ATTN_API void attn_optimizer_destroy(attn_optimizer *optimizer); /* Destroys an optimizer. NULL is allowed. */
/* Takes one step with learning rate `rate` along the parameters' gradients. Then discards the gradients. *norm gets
 * their global norm before clipping, and `norm` may be NULL. If the norm is not finite, parameters and state do not
 * change. Parameters have any shapes. Always returns ATTN_OK. */
ATTN_API attn_status attn_optimizer_step(attn_optimizer *optimizer, double rate, double *norm);
/* Return and set the number of steps that the optimizer has taken, on which the correction of Adam's moments depends. A
 * resumed training sets it together with the state. */
ATTN_API int64_t attn_optimizer_steps(const attn_optimizer *optimizer);
ATTN_API void attn_optimizer_set_steps(attn_optimizer *optimizer, int64_t steps);
/* Returns the state that must be saved for resuming, which are tensors named "m.NAME" and "v.NAME". The optimizer
 * owns the list. It is valid as long as the optimizer. */
ATTN_API const attn_named_list *attn_optimizer_state(const attn_optimizer *optimizer);

/* -------------------------------------------------------------------------------------------- schedules */

typedef enum attn_schedule_kind {
    ATTN_SCHEDULE_CONSTANT = 0,
    /* cosine from the peak to `floor` times the peak at `total` steps; Loshchilov and Hutter 2016, arXiv:1608.03983 */
    ATTN_SCHEDULE_COSINE,
    /* peak * sqrt(warmup / step) after the warm-up; Vaswani et al. 2017, arXiv:1706.03762 */
    ATTN_SCHEDULE_INVERSE_SQUARE_ROOT,
    /* the peak for steps up to `total`, and for later steps `floor` times the peak */
    ATTN_SCHEDULE_STEP
} attn_schedule_kind;

typedef struct attn_schedule {
    attn_schedule_kind kind;
    double peak;
    int64_t warmup; /* number of steps in which the rate rises linearly from 0; 0: no warm-up */
    int64_t total;
    double floor;
} attn_schedule;

/* Returns the learning rate of step `step`, where the first step is 1. If `step` is below 1, it counts as 0. If the
 * total of a cosine is not more than its warm-up, the rate is at its floor after the warm-up. */
ATTN_API double attn_schedule_rate(const attn_schedule *schedule, int64_t step);

/* ------------------------------------------------------------------------------------------------ loop */

typedef struct attn_progress {
    int64_t epoch, epochs;        /* number of the current epoch, from 1, and number of all epochs */
    int64_t step, steps;          /* number of the current step in the epoch, from 1, and number of steps in an epoch */
    int64_t all_steps;            /* steps since the training began, including earlier runs that were resumed */
    double loss;                  /* mean loss per token, in this epoch so far */
    double valid_loss, best_loss; /* before the first validation, both are NaN */
    double rate, grad_norm;
    double tokens_per_second;
    /* seconds of this run so far, and estimate of the remaining seconds, which is NaN at first */
    double seconds, seconds_left;
    bool epoch_ends;         /* true in the one call after the validation of each epoch */
    double exchange_seconds; /* part of `seconds` in which this process waited for the gradients of other processes */
    /* second result of the last validation, such as accuracy; NaN: the loss is its only result */
    double metric;
    double metric2;      /* third result of the last validation, like `metric` */
    bool improved;       /* true: the validation after this epoch is the best so far */
    int64_t reserved[4]; /* 0 */
} attn_progress;

/* -------------------------------------------------------------------------------------------- measures */

typedef struct attn_bleu {
    double score;                                /* 0 to 100 */
    double precisions[4];                        /* of n-grams of 1 to 4 tokens, 0 to 100 */
    double brevity_penalty;                      /* 0 to 1 */
    int64_t prediction_length, reference_length; /* in tokens */
} attn_bleu;
/* Computes corpus BLEU (Papineni et al. 2002) as sacreBLEU does with its defaults. These are the tokenizer 13a, case
 * kept, and exponential smoothing of zero counts (Post 2018, arXiv:1804.08771). `references` holds the references of
 * the first of n predictions, then the references of the second, and so on. Prediction i has counts[i] references, at
 * least 1 (otherwise ATTN_ERROR_ARGUMENT). If counts is NULL, each prediction has one reference. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_bleu_corpus(attn_bleu *bleu, attn_context *context, const char *const *predictions,
                                      const char *const *references, const int64_t *counts, int64_t n);
/* Computes chrF2 of a corpus (Popovic 2015, W15-3049), 0 to 100, as sacreBLEU does with its defaults. These are n-grams
 * of 1 to 6 characters, without white space, with case kept. If a prediction has several references, the best one
 * counts. The shapes are `predictions` [n] and `references` [sum of counts]. Errors as of attn_bleu_corpus. */
ATTN_API attn_status attn_chrf_corpus(double *chrf, attn_context *context, const char *const *predictions,
                                      const char *const *references, const int64_t *counts, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
