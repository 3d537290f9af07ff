/* SPDX-License-Identifier: MIT
 *
 * data.h - makes batches of pictures with boxes. The order of the pictures depends on the seed and the epoch. The
 * augmentation of a picture depends on the seed, the epoch and the picture. In training, pictures of similar size are
 * in the same batch, which reduces padding. In validation, each batch has one picture, as in detection.
 */
#ifndef ATTN_APPS_DETECTOR_DATA_H
#define ATTN_APPS_DETECTOR_DATA_H

#include "apps/detector/detector.h"
#include "data/order.h"
#include "tensor/tape_state.h"
#include "train/detection_loss.h"

/* The pictures of one part of the data. `order` lists them, and `set` is a finished set. */
typedef struct attn__boxed_part {
    attn__box_set *set;
    const char *folder; /* of the files */
    int64_t *order;     /* [n] indices of the part's pictures in the set */
    int64_t n;
} attn__boxed_part;

typedef struct attn__boxed_data {
    attn_context *context;
    /* valid_set: set of the validation part, or NULL; this struct owns both sets */
    attn__box_set *set, *valid_set;
    attn__boxed_part train, valid;
    attn__picture_view view;
    attn__classes classes; /* classes of the model; objects of other classes are left out */
    uint64_t seed;
    int64_t batch, queries;
    bool flip, crop;
    /* number of objects that are not used for training: crowds, objects without area in the picture, and objects of
     * classes that the model does not have */
    int64_t left_out;
    /* [train.n]: the pictures of the training part in their initial order; each epoch shuffles a copy of this list */
    int64_t *base;
    int64_t epoch;       /* the epoch whose order is in train.order; -1: none so far */
    int64_t *batches;    /* [steps]: the order of the batches of this epoch */
    attn__keyed *window; /* [train.n]: scratch for sorting */
    /* Buffers for the objects of one batch. */
    int64_t *begin;
    int32_t *labels;
    double *boxes;
} attn__boxed_data;

/* Reads the data at `path`, and divides it as the settings "seed", "valid", "valid_data" and "images" require. Every
 * error names the file. */
attn_status attn__boxed_data_read(attn__boxed_data *data, attn_context *context, const char *path,
                                  const attn_config *settings);
/* Prepares the data for batches. The view, the classes, the number of queries and the options must be set before.
 * ATTN_ERROR_ARGUMENT: a picture has more objects than there are queries. ATTN_ERROR_NOT_FOUND: the file of a
 * picture does not exist. */
attn_status attn__boxed_data_begin(attn__boxed_data *data);
void attn__boxed_data_free(attn__boxed_data *data);
/* Returns a checksum of the boxes and of the names and sizes of the pictures. */
uint64_t attn__boxed_data_fingerprint(const attn__boxed_data *data);
/* Returns the number of training steps of an epoch. */
int64_t attn__boxed_data_steps(const attn__boxed_data *data);

typedef struct attn__boxed_batch {
    attn_tensor *x, *mask; /* on the tape */
    attn__targets targets; /* objects in this process's share of the batch */
    const int64_t *images; /* [targets.images]: for each picture of the share, its index in the set */
    /* this process's share of the batch; if its count is 0, the batch holds one placeholder picture, which does not
     * count */
    attn_shard share;
    int64_t objects;  /* number of objects in the whole batch */
    int64_t sides[2]; /* height and width of the pictures of the whole batch, in pixels */
} attn__boxed_batch;
/* Makes the batch of one training step. This process gets only its share of the batch. */
attn_status attn__boxed_data_train(attn__boxed_data *data, attn_tape *tape, int64_t epoch, int64_t step,
                                   attn__boxed_batch *batch);
/* Makes a batch of one picture of the validation part, which is not augmented. */
attn_status attn__boxed_data_valid(attn__boxed_data *data, attn_tape *tape, int64_t index, attn__boxed_batch *batch);

#endif
