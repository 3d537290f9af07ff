/* SPDX-License-Identifier: MIT
 *
 * detect.h - the detector of objects in pictures (DETR; Carion et al. 2020, arXiv:2005.12872), and COCO's evaluation of
 * detections.
 *
 *     attn_detector_load(&detector, context, "detr-r50.pth", NULL);
 *     attn_detection found[100];                         // attn_detector_queries(detector) of them
 *     attn_detector_detect(detector, &image, found);     // the best first
 *
 * A detector's directory, which a training writes (trainer.h, kind "detect"), holds
 *     config.json          the architecture, its settings, the class names, and how pictures are prepared
 *     model.safetensors    the parameters that were best on the validation part
 * and the files for resuming a training: training.json, checkpoint.safetensors and history.tsv (see translate.h).
 *
 * One thread at a time uses a context and what was made from it; different contexts are independent. */
#ifndef ATTN_DETECT_H
#define ATTN_DETECT_H

#include "attn/classify.h"
#include "attn/image.h"
#include "attn/plot.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attn_detector attn_detector;

/* Options for loading. Zero means the default in each field. */
typedef struct attn_detector_options {
    /* for a checkpoint with foreign names: a names file (io.h), or the name of a built-in one; NULL: the built-in names
     * file that fits the tensors */
    const char *names;
    const char *class_names; /* path of a text file with one class name per line; NULL: those of the checkpoint */
    /* length in pixels to which a picture's short side is resized; the limit of the long side changes in proportion;
     * 0: as config.json says, or 800 and 1333 */
    int64_t size;
    int64_t reserved[4];
} attn_detector_options;

/* Loads a directory of attn or of Hugging Face, or a checkpoint of DETR's authors, whose classes are COCO's. `options`
 * may be NULL. The caller destroys the detector. ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT,
 * ATTN_ERROR_SHAPE, ATTN_ERROR_MEMORY: a file cannot be read or does not fit. ATTN_ERROR_UNSUPPORTED: the model is no
 * detector. ATTN_ERROR_ARGUMENT: the size is negative. *detector is NULL on failure. */
ATTN_API attn_status attn_detector_load(attn_detector **detector, attn_context *context, const char *path,
                                        const attn_detector_options *options);
ATTN_API void attn_detector_destroy(attn_detector *detector); /* Destroys a detector. NULL is allowed. */
/* Returns the number of boxes that the model predicts for each picture, one per query. Only boxes with a high score are
 * objects. */
ATTN_API int64_t attn_detector_queries(const attn_detector *detector);
/* Returns the name of class i, which the detector owns. Returns NULL past the end. A class without a name is named by
 * its number. */
ATTN_API const char *attn_detector_class_name(const attn_detector *detector, int64_t i);
/* Returns the id of class i in the data, such as COCO's. Returns -1 past the end. */
ATTN_API int64_t attn_detector_class_id(const attn_detector *detector, int64_t i);

/* One detected box, in pixels of the picture. The box may extend beyond the picture. */
typedef struct attn_detection {
    double score;  /* probability of the class among all classes and "no object" */
    int64_t label; /* number of the class, counted from 0: attn_detector_class_name */
    int64_t query; /* number of the query that predicted the box */
    double left, top, right, bottom;
    int64_t reserved[4]; /* 0 */
} attn_detection;

/* Writes the predicted boxes to found[attn_detector_queries(detector)], sorted by falling score. Boxes with equal
 * scores are in the order of their queries. Pictures may have any size, and grey ones are converted to colour.
 * ATTN_ERROR_UNSUPPORTED: the model's outputs are not finite. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_detector_detect(attn_detector *detector, const attn_image *image, attn_detection *found);

/* Which boxes to draw, and which attention to draw. Zero means the default in each field. */
typedef struct attn_detector_view {
    double threshold; /* boxes with a lower score are not drawn */
    /* block, head and cell to draw; layer 0 means the last block of the decoder, or all blocks of the encoder */
    attn_classifier_view view;
    int64_t reserved[4];
} attn_detector_view;
/* Draws one panel for each box, but at most the 40 best, which shows the weights of the box's query over the picture.
 * If the view gives a cell, draws the encoder's weights of that cell instead. ATTN_PLOT_HTML gives an interactive page
 * of the encoder's weights of all cells. `view` may be NULL. `picture` is freed with attn_bytes_free.
 * ATTN_ERROR_ARGUMENT: no box has the minimum score, or the block, head or cell does not exist. Otherwise returns the
 * errors of attn_detector_detect and attn_overlays_render. */
ATTN_API attn_status attn_detector_render_attention(attn_detector *detector, const attn_image *image,
                                                    const attn_detector_view *view, attn_plot_format format,
                                                    attn_bytes *picture);

/* ----------------------------------------------------------------------------- COCO's evaluation of boxes */

/* A detection in an image of a data set: an element {image_id, category_id, bbox, score} of COCO's results. */
typedef struct attn_coco_detection {
    int64_t image, category; /* ids of the annotations */
    double left, top, width, height;
    double score;
    int64_t reserved[2];
} attn_coco_detection;

#define ATTN_COCO_MEASURES 12
/* Returns the name of the i-th measure, a constant string: "AP", "AP50", "AP75", "APsmall", "APmedium", "APlarge",
 * "AR1", "AR10", "AR100", "ARsmall", "ARmedium" and "ARlarge", in the order in which pycocotools prints them. Returns NULL past the end. */
ATTN_API const char *attn_coco_measure_name(int i);

typedef struct attn_coco_category {
    int64_t id;
    const char *name;
    int64_t objects; /* number of its objects in the annotations, without crowds */
    double ap;       /* -1 if there are none */
    int64_t reserved[2];
} attn_coco_category;

/* The result of an evaluation. The measures are means over the categories; -1 means that there are no such objects. */
typedef struct attn_coco_result {
    double measures[ATTN_COCO_MEASURES];
    int64_t images, objects, detections;
    int64_t left_out; /* number of detections that do not count, because the annotations lack their category */
    int64_t n;        /* number of categories */
    attn_coco_category *categories;
    int64_t reserved[4];
} attn_coco_result;

/* Evaluates detections as pycocotools' COCOeval with iouType "bbox" does, to the last digit. `annotations` is a file of
 * COCO's annotations, or a folder in YOLO's form. The detections are the n of the array or, if `results` is not NULL,
 * those of a file of COCO's results, and n is then 0. `result` is overwritten and freed with attn_coco_result_free.
 * The computation runs on the context's threads. ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT: a file cannot
 * be read. ATTN_ERROR_ARGUMENT: an image is not in the annotations, a score is NaN, a box is not finite, both kinds
 * of detections are given, or `detections` is NULL and n is not 0. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_coco_evaluate(attn_coco_result *result, attn_context *context, const char *annotations,
                                        const char *results, const attn_coco_detection *detections, int64_t n);
/* Frees the categories and empties the result. The result may be empty already. */
ATTN_API void attn_coco_result_free(attn_context *context, attn_coco_result *result);

#ifdef __cplusplus
}
#endif
#endif
