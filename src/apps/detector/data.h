/* SPDX-License-Identifier: MIT
 *
 * data.h - pictures with boxes in batches: divided, in an order by (seed, epoch), augmented by (seed, epoch, picture).
 */
#ifndef ATTN_APPS_DETECTOR_DATA_H
#define ATTN_APPS_DETECTOR_DATA_H

#include "apps/detector/detector.h"
#include "tensor/tape_state.h"
#include "train/detection_loss.h"

/* Pictures of one part of the data: a finished set, of which only those of `order` count. */
typedef struct attn__boxed_part {
    attn__box_set *set;
    const char *folder; /* of the files */
    int64_t *order;     /* [n], indices in the set */
    int64_t n;
} attn__boxed_part;

typedef struct attn__boxed_data {
    attn_context *context;
    attn__box_set *set, *valid_set; /* owned; valid_set: of the validation part alone, NULL: there is none */
    attn__boxed_part train, valid;
    attn__picture_view view;
    attn__classes classes; /* of the model, by which objects are numbered; those of other ids are left out */
    uint64_t seed;
    int64_t batch, queries;
    bool flip, crop;
    /* objects that are not learned: crowds, without area in the picture, of classes the model lacks */
    int64_t left_out;
    int64_t *base; /* [train.n], the pictures that each epoch has in another order */
    int64_t epoch; /* the one of train.order; -1: none */
    /* The objects of one batch. */
    int64_t *begin;
    int32_t *labels;
    double *boxes;
} attn__boxed_data;

/* Reads and divides the data that `path` names, by settings ("seed", "valid", "valid_data", "images").  Every error names
 * the file. */
attn_status attn__boxed_data_read(attn__boxed_data *data, attn_context *context, const char *path,
                                  const attn_config *settings);
/* Makes it ready for batches, with view, classes, queries and the options set.  ATTN_ERROR_ARGUMENT: a picture with more
 * objects than queries; ATTN_ERROR_NOT_FOUND: its file is not there. */
attn_status attn__boxed_data_begin(attn__boxed_data *data);
void attn__boxed_data_free(attn__boxed_data *data);
/* A checksum of names, sizes and boxes. */
uint64_t attn__boxed_data_fingerprint(const attn__boxed_data *data);
int64_t attn__boxed_data_steps(const attn__boxed_part *part, int64_t batch);

typedef struct attn__boxed_batch {
    attn_tensor *x, *mask; /* on the tape */
    attn__targets targets; /* of this process's share */
    const int64_t *images; /* [targets.images], indices in the set */
    attn_shard share;      /* count 0: there is one picture, which does not count */
    int64_t objects;       /* of the whole batch */
    int64_t sides[2];      /* height and width of the whole batch */
} attn__boxed_batch;
/* The batch of a step of the training part, of which this process gets its share. */
attn_status attn__boxed_data_train(attn__boxed_data *data, attn_tape *tape, int64_t epoch, int64_t step,
                                   attn__boxed_batch *batch);
/* The batch of a step of the validation part, whole and not augmented. */
attn_status attn__boxed_data_valid(attn__boxed_data *data, attn_tape *tape, int64_t step, attn__boxed_batch *batch);

#endif
