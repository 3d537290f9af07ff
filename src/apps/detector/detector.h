/* SPDX-License-Identifier: MIT
 *
 * detector.h - what is behind detect.h: a detector is a model with class names and rules for preparing pictures, in a
 * directory.
 */
#ifndef ATTN_APPS_DETECTOR_H
#define ATTN_APPS_DETECTOR_H

#include "apps/checkpoint/foreign_model.h"
#include "attn/detect.h"
#include "attn/image.h"
#include "attn/models.h"
#include "attn/plot.h"
#include "attn/trainer.h"
#include "config/keys.h"
#include "data/boxes.h"

/* How pictures are prepared. They are resized. Then each channel becomes (value / 255 - mean) / std. */
typedef struct attn__picture_view {
    int64_t size; /* length of the short side in pixels; 0: pictures are not resized */
    /* approximate maximum length of the long side in pixels; longer pictures are reduced; 0: no limit */
    int64_t longest;
    float mean[3], std[3];
} attn__picture_view;

/* The short side has 800 pixels, and the long side at most 1333. Mean and deviation are those of ImageNet. */
extern const attn__picture_view attn__detr_view;

/* As in facebookresearch/detr, the length of the long side is truncated to an integer. */
void attn__view_size(const attn__picture_view *view, int64_t width, int64_t height, int64_t *to_width,
                     int64_t *to_height);
/* Changes the size to which a picture's short side is resized. The limit of the long side changes in proportion. */
void attn__view_resize(attn__picture_view *view, int64_t size);
/* Puts n prepared pictures with three channels into one batch x [n,3,H,W] on the tape. H and W are the maximum height
 * and width of the pictures. If `sides` is not NULL, H and W are at least the lengths in `sides`. *mask is I32 [n,H,W],
 * and 1 at padding. It is NULL if there is no padding. Returns NULL on error. */
attn_tensor *attn__view_batch(const attn__picture_view *view, attn_tape *tape, const attn_image *images, int64_t n,
                              const int64_t *sides, attn_tensor **mask);

enum { ATTN__COCO_OUTPUTS = 91 }; /* number of outputs of a model whose classes are COCO's ids, 0 to 90 */

/* The classes of a model in the order of its outputs. For each class, this is its id in the data and its name. */
typedef struct attn__classes {
    int64_t n;
    const int64_t *ids;
    const char *const *names;
} attn__classes;

struct attn_detector {
    attn_context *context;
    attn_model *model;
    attn_config *config; /* settings of config.json with defaults filled in; it owns the strings in `classes` */
    attn_tape *tape;
    attn__picture_view view;
    attn__classes classes;
};

/* --------------------------------------------------------------------------------- between this folder's files */

/* Computes the predicted boxes of picture i of a batch from logits [B,Q,C+1] and boxes [B,Q,4]. The picture has this
 * width and height. */
attn_status attn__found_of(attn_context *context, const attn_tensor *logits, const attn_tensor *boxes, int64_t i,
                           int64_t width, int64_t height, attn_detection *found);
/* The caller frees `prepared`, even on failure. */
attn_status attn__view_prepare(const attn__picture_view *view, attn_context *context, const attn_image *image,
                               attn_image *prepared);
/* The outputs of attn__detector_run, which runs the model on a batch. If `aux` is true, they include the outputs of
 * the earlier decoder blocks. The tape owns the outputs. */
typedef struct attn__set_outputs {
    attn_tensor *logits, *boxes, *aux_logits, *aux_boxes; /* aux_logits and aux_boxes are NULL unless `aux` is true */
} attn__set_outputs;
attn_status attn__detector_run(attn_model *model, attn_tape *tape, attn_tensor *x, attn_tensor *mask, bool aux,
                               attn__set_outputs *outputs);
/* attn__detector_describe writes the classes and the view to keys of a config.json. attn__detector_read reads them.
 * The strings in `classes` are valid as long as the config. */
attn_status attn__detector_describe(attn_config *config, const attn__classes *classes, const attn__picture_view *view);
attn_status attn__detector_read(const attn_config *config, attn_context *context, const char *path,
                                attn__classes *classes, attn__picture_view *view);
/* Opens the files that attn_detector_load reads, without making the model. Returns the config, in which classes and
 * view are filled in, and the names of the tensors. attn__foreign_end must be called afterwards, even on failure. The
 * classes are valid until that call. */
attn_status attn__detector_open(attn__foreign *foreign, attn_context *context, const char *path, const char *names,
                                const char *class_names, attn__classes *classes, attn__picture_view *view);

extern const attn__keys attn__detector_keys;
extern const attn_trainer attn__detector_trainer;

#endif
