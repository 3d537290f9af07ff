/* SPDX-License-Identifier: MIT
 *
 * detector.h - detecting objects (DETR): a model with what its classes are called and how pictures are prepared, its
 * directory, and what it finds.
 */
#ifndef ATTN_APPS_DETECTOR_H
#define ATTN_APPS_DETECTOR_H

#include "apps/checkpoint/foreign_model.h"
#include "attn/classify.h"
#include "attn/image.h"
#include "attn/models.h"
#include "attn/plot.h"
#include "attn/trainer.h"
#include "base/keys.h"
#include "data/boxes.h"

/* How pictures are prepared: resized, then (value / 255 - mean) / std for each channel. */
typedef struct attn__picture_view {
    int64_t size;    /* pixels of the short side; 0: as it is */
    int64_t longest; /* the long side becomes about that many at most, and the short one less; 0: no limit */
    float mean[3], std[3];
} attn__picture_view;

/* Those of DETR: 800 pixels, 1333 at most, mean and deviation of ImageNet. */
extern const attn__picture_view attn__detr_view;

/* The size that a picture gets: as facebookresearch/detr computes it, truncated on the long side. */
void attn__view_size(const attn__picture_view *view, int64_t width, int64_t height, int64_t *to_width,
                     int64_t *to_height);
/* Puts prepared pictures, of three channels, into one batch on the tape: x [n,3,H,W] of the largest height and width, or of
 * the height and width in `sides` (may be NULL) where these are larger, and *mask (I32 [n,H,W]), 1 where a smaller one
 * does not reach; NULL where all are that large.  NULL on error. */
attn_tensor *attn__view_batch(const attn__picture_view *view, attn_tape *tape, const attn_image *images, int64_t n,
                              const int64_t *sides, attn_tensor **mask);

enum { ATTN__COCO_OUTPUTS = 91 }; /* of models for COCO's ids: 0 to 90 */

/* The classes of a model, by the index of its output: the ids that its data has, and names. */
typedef struct attn__classes {
    int64_t n;
    const int64_t *ids;
    const char *const *names;
} attn__classes;

typedef struct attn__detector {
    attn_context *context;
    attn_model *model;
    attn_config *config; /* config.json, completed; has the classes */
    attn_tape *tape;
    attn__picture_view view;
    attn__classes classes;
} attn__detector;

/* One box of a picture, in its pixels; it may reach beyond the picture. */
typedef struct attn__found {
    double score;
    int64_t class; /* index of the model's output */
    int64_t query; /* the one that gave it */
    double left, top, right, bottom;
} attn__found;

/* A directory of attn's or of Hugging Face's, or a checkpoint of DETR's authors.  `names` is a names file for others
 * (NULL: what the tensors are called decides), `class_names` a text file of a name for each class, a line each (NULL: what
 * is known).  The caller destroys it.  ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT; ATTN_ERROR_UNSUPPORTED: a
 * model that detects nothing; ATTN_ERROR_MEMORY. */
attn_status attn__detector_load(attn__detector **detector, attn_context *context, const char *path, const char *names,
                                const char *class_names);
void attn__detector_destroy(attn__detector *detector); /* NULL is allowed */
/* Whether the directory's config.json is a detector's; false also where it cannot be read. */
bool attn__detector_is_at(attn_context *context, const char *directory);
/* How many boxes there are in each picture, of which a score tells which mean something. */
int64_t attn__detector_queries(const attn__detector *detector);
/* Fills found[queries], by falling score, those with equal ones in the order of the queries.  Grey pictures are taken as
 * coloured ones.  ATTN_ERROR_UNSUPPORTED: the model's outputs are not finite; ATTN_ERROR_MEMORY. */
attn_status attn__detector_detect(attn__detector *detector, const attn_image *image, attn__found *found);

/* The attention that is drawn. */
typedef struct attn__detector_view {
    double threshold; /* least score of the boxes */
    attn_classifier_view
        view; /* a block of decoder or encoder (0: the decoder's last, all of the encoder), a head, a place */
} attn__detector_view;
/* A panel for each box with its query's weights over the picture; where the view has a place, the encoder's weights of
 * that place; ATTN_PLOT_HTML: a page of the encoder's weights of all places.  ATTN_ERROR_ARGUMENT: no box has that score,
 * or there is no such block, head or place. */
attn_status attn__detector_show(attn__detector *detector, const attn_image *image, const attn__detector_view *view,
                                attn_plot_format format, attn_bytes *picture);

/* --------------------------------------------------------------------------------- between this folder's files */

/* The boxes of one picture of that size from logits [B,Q,C+1] and boxes [B,Q,4], of index i. */
attn_status attn__found_of(attn_context *context, const attn_tensor *logits, const attn_tensor *boxes, int64_t i,
                           int64_t width, int64_t height, attn__found *found);
/* A picture as the model sees it, which the caller frees, on failure too. */
attn_status attn__view_prepare(const attn__picture_view *view, attn_context *context, const attn_image *image,
                               attn_image *prepared);
/* Runs the model on a batch; `aux` requests the outputs of all blocks of the decoder.  The outputs are on the tape. */
typedef struct attn__set_outputs {
    attn_tensor *logits, *boxes, *aux_logits, *aux_boxes; /* aux: NULL unless requested */
} attn__set_outputs;
attn_status attn__detector_run(attn_model *model, attn_tape *tape, attn_tensor *x, attn_tensor *mask, bool aux,
                               attn__set_outputs *outputs);
/* Classes and view as keys of config.json, and back; what it reads into `classes` lives as long as the config. */
attn_status attn__detector_describe(attn_config *config, const attn__classes *classes, const attn__picture_view *view);
attn_status attn__detector_read(const attn_config *config, attn_context *context, const char *path,
                                attn__classes *classes, attn__picture_view *view);
/* Opens what attn__detector_load does, without the model: its config, completed with the classes and the view, which are
 * read, and the names of its tensors.  Ended by attn__foreign_end, on failure too; the classes live as long. */
attn_status attn__detector_open(attn__foreign *foreign, attn_context *context, const char *path, const char *names,
                                const char *class_names, attn__classes *classes, attn__picture_view *view);

extern const attn__keys attn__detector_keys;
extern const attn_trainer attn__detector_trainer;

#endif
