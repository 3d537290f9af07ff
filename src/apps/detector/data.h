/* SPDX-License-Identifier: MIT
 *
 * data.h - batches of pictures with boxes. The order of pictures depends on seed and epoch, and their augmentation on
 * seed, epoch and picture.
 */
#ifndef ATTN_APPS_DETECTOR_DATA_H
#define ATTN_APPS_DETECTOR_DATA_H

#include "apps/detector/detector.h"
#include "tensor/tape_state.h"
#include "train/detection_loss.h"

/* The pictures of one part of the data: those in `order` of a finished set. */
typedef struct attn__boxed_part {
    attn__box_set *set;
    const char *folder; /* of the files */
    int64_t *order;     /* [n] indices of the part's pictures in the set */
    int64_t n;
} attn__boxed_part;

typedef struct attn__boxed_data {
    attn_context *context;
    /* sets that this struct owns; valid_set: set of the validation part, NULL if there is none */
    attn__box_set *set, *valid_set;
    attn__boxed_part train, valid;
    attn__picture_view view;
    attn__classes classes; /* the model's classes; objects with other ids are left out */
    uint64_t seed;
    int64_t batch, queries;
    bool flip, crop;
    /* number of objects that are not learned: crowds, objects without area in the picture, and objects of classes
     * that the model lacks */
    int64_t left_out;
    int64_t *base; /* [train.n] the pictures of the training part, which each epoch shuffles */
    int64_t epoch; /* the epoch of train.order; -1: none yet */
    /* Buffers for the objects of one batch. */
    int64_t *begin;
    int32_t *labels;
    double *boxes;
} attn__boxed_data;

/* Reads the data of `path` and divides it by the settings "seed", "valid", "valid_data" and "images".  Every error
 * names the file. */
attn_status attn__boxed_data_read(attn__boxed_data *data, attn_context *context, const char *path,
                                  const attn_config *settings);
/* Prepares the data for batches. The view, classes, number of queries and options must be set. ATTN_ERROR_ARGUMENT:
 * a picture has more objects than there are queries. ATTN_ERROR_NOT_FOUND: a picture's file does not exist. */
attn_status attn__boxed_data_begin(attn__boxed_data *data);
void attn__boxed_data_free(attn__boxed_data *data);
/* Returns a checksum of the pictures' names and sizes and of the boxes. */
uint64_t attn__boxed_data_fingerprint(const attn__boxed_data *data);
int64_t attn__boxed_data_steps(const attn__boxed_part *part, int64_t batch);

typedef struct attn__boxed_batch {
    attn_tensor *x, *mask; /* on the tape */
    attn__targets targets; /* objects of this process's share */
    const int64_t *images; /* [targets.images] indices of the share's pictures in the set */
    attn_shard share;      /* this process's share; if count is 0, it has one picture that does not count */
    int64_t objects;       /* number of objects of the whole batch */
    int64_t sides[2];      /* height and width of the whole batch, in pixels */
} attn__boxed_batch;
/* Makes the batch of a step of the training part. This process gets its share. */
attn_status attn__boxed_data_train(attn__boxed_data *data, attn_tape *tape, int64_t epoch, int64_t step,
                                   attn__boxed_batch *batch);
/* Makes the batch of a step of the validation part. This process gets the whole batch, without augmentation. */
attn_status attn__boxed_data_valid(attn__boxed_data *data, attn_tape *tape, int64_t step, attn__boxed_batch *batch);

#endif
