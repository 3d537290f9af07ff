/* SPDX-License-Identifier: MIT
 *
 * average_precision.h - average precision and recall of detections, as in COCO's evaluation of boxes (COCOeval of
 * pycocotools). The thresholds of intersection over union are 0.50 to 0.95 in steps of 0.05. Precision is computed at
 * 101 recall levels. At most 100 detections per category and image are evaluated. */
#ifndef ATTN_DATA_AVERAGE_PRECISION_H
#define ATTN_DATA_AVERAGE_PRECISION_H

#include "data/boxes.h"

enum { ATTN__AP, ATTN__AP50, ATTN__AP75, ATTN__AP_MEASURES = 12 };

typedef struct attn__ap_measure {
    const char *name; /* "AP50" */
    bool recall;
    double iou;       /* threshold of the IoU; 0: the measure is the mean over all thresholds */
    const char *area; /* range of object sizes: "all", "small", "medium" or "large" */
    int detections;   /* maximum number of detections per category and image */
} attn__ap_measure;
extern const attn__ap_measure attn__ap_measures[ATTN__AP_MEASURES];

/* Compares detections with the objects of a finished set, on the context's threads. Image and category of a detection
 * are indices in the set. A measure is the mean over the categories that have objects in its size range. It is -1 if no
 * category has such objects. `by_category` gets the AP of each category of the set, and may be NULL. If scores are
 * equal, detections of the same image and category keep their order, and detections of different images are ordered by
 * the ids of the images. A match with an object whose id is 0 does not count, as in pycocotools. ATTN_ERROR_ARGUMENT:
 * an index is out of range, a score is NaN, or a box is not finite. */
attn_status attn__average_precision(attn_context *context, const attn__box_set *set, const attn__detection *detections,
                                    int64_t n, double measures[ATTN__AP_MEASURES], double *by_category);

#endif
