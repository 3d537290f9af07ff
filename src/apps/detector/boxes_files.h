/* SPDX-License-Identifier: MIT
 *
 * boxes_files.h - reads and writes files of labelled boxes and of detections: COCO's JSON and YOLO's text.
 *
 * Every reader returns a finished set, which the caller destroys before the context. On failure the set is NULL.
 * ATTN_ERROR_FORMAT: a file is invalid; the message names the file and the element of the list, or the line.
 * ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_MEMORY: a file cannot be read. */
#ifndef ATTN_APPS_DETECTOR_BOXES_FILES_H
#define ATTN_APPS_DETECTOR_BOXES_FILES_H

#include "data/boxes.h"
#include "io/input.h"

/* Reads COCO's annotations from a file, or from annotations.json in a folder. A folder without this file is read by
 * attn__yolo_read. */
attn_status attn__boxes_read(attn__box_set **set, attn_context *context, const char *path);

/* Reads COCO's annotations of objects. An annotation without area gets the area of its box, and an annotation
 * without iscrowd is no crowd. Segmentations are skipped. The set's folder is the folder of the file. */
attn_status attn__coco_read(attn__box_set **set, attn_context *context, const char *path);
/* Like attn__coco_read, but parses text in memory. The set has no folder. */
attn_status attn__coco_parse(attn__box_set **set, const attn__input *text);
/* Writes a finished set as one line of JSON. Errors: ATTN_ERROR_IO, ATTN_ERROR_MEMORY. */
attn_status attn__coco_write(const attn__box_set *set, const char *path);

/* The detections in a file. The caller frees them with attn__detections_free. */
typedef struct attn__detections {
    attn__detection *of; /* detections, whose image and category are indices in the set */
    int64_t n;
    /* number of detections whose category the set lacks; id of the first such category */
    int64_t left_out, unknown;
} attn__detections;
/* Reads COCO's results: a list of {image_id, category_id, bbox, score}. ATTN_ERROR_FORMAT also if the set lacks an
 * image. */
attn_status attn__coco_results_read(attn__detections *detections, const attn__box_set *set, const char *path);
/* Like attn__coco_results_read, but parses text in memory. */
attn_status attn__coco_results_parse(attn__detections *detections, const attn__box_set *set, const attn__input *text);
/* Frees the detections and empties the list. */
void attn__detections_free(attn_context *context, attn__detections *detections);
/* Writes detections, whose image and category are ids in this function. Errors: ATTN_ERROR_IO, ATTN_ERROR_MEMORY. */
attn_status attn__coco_results_write(attn_context *context, const char *path, const attn__detection *detections,
                                     int64_t n);

/* Reads a folder of images, or a folder that contains images/, and text files of the same names in labels/. To find
 * labels/, the last component `images` of the path is replaced by `labels`. A line is "class cx cy width height", with
 * the class from 0 and the other numbers relative to the image. An image without a text file has no objects. Class
 * names are read from data.yaml or classes.txt, next to images/ or in it, or from labels/classes.txt; without these
 * files the names are numbers. Images get the ids 1 to n in the order of their names, and categories get their numbers
 * as ids. */
attn_status attn__yolo_read(attn__box_set **set, attn_context *context, const char *path);
/* Adds the objects of one text file to a set. `image` is the id of an image with this width and height. */
attn_status attn__yolo_parse(attn__box_set *set, const attn__input *text, int64_t image, int64_t width, int64_t height);

/* Draws n images of shapes (data/shapes.h), starting with number `first`, and writes them as PNGs 000000.png, ... with
 * annotations.json to a new folder. The ids of images are 1 to n. Errors: ATTN_ERROR_IO, ATTN_ERROR_MEMORY,
 * ATTN_ERROR_INTERRUPTED. */
attn_status attn__shapes_write(attn_context *context, const char *folder, uint64_t seed, uint64_t first, int64_t n);

#endif
