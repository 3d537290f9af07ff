/* SPDX-License-Identifier: MIT
 *
 * boxes_files.h - files of labelled boxes and of detections: COCO's JSON, YOLO's text.
 *
 * Every reader returns a finished set, which the caller destroys before the context; NULL on failure. ATTN_ERROR_FORMAT
 * names the file and the element of the list, or the line; ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_MEMORY. */
#ifndef ATTN_APPS_DETECTOR_BOXES_FILES_H
#define ATTN_APPS_DETECTOR_BOXES_FILES_H

#include "data/boxes.h"
#include "io/input.h"

/* Reads COCO's annotations from a file, or from annotations.json in a folder; any other folder is read by
 * attn__yolo_read. */
attn_status attn__boxes_read(attn__box_set **set, attn_context *context, const char *path);

/* Reads COCO's annotations of objects. An annotation without area gets the area of its box, and one without iscrowd is
 * no crowd. Segmentations are skipped. The folder of the set is the file's folder. */
attn_status attn__coco_read(attn__box_set **set, attn_context *context, const char *path);
/* The same from memory, without a folder. */
attn_status attn__coco_parse(attn__box_set **set, const attn__input *text);
/* Writes a finished set as one line of JSON.  ATTN_ERROR_IO; ATTN_ERROR_MEMORY. */
attn_status attn__coco_write(const attn__box_set *set, const char *path);

/* Detections of a file, which the caller frees with attn__detections_free. */
typedef struct attn__detections {
    attn__detection *of; /* indices of image and category in the set */
    int64_t n;
    /* number of detections with categories that the set lacks; the id of the first of these categories */
    int64_t left_out, unknown;
} attn__detections;
/* Reads COCO's results: a list of {image_id, category_id, bbox, score}. ATTN_ERROR_FORMAT also: an image that the set
 * lacks. */
attn_status attn__coco_results_read(attn__detections *detections, const attn__box_set *set, const char *path);
/* The same from memory. */
attn_status attn__coco_results_parse(attn__detections *detections, const attn__box_set *set, const attn__input *text);
void attn__detections_free(attn_context *context, attn__detections *detections); /* empties the list */
/* Writes the detections; image and category are ids here. ATTN_ERROR_IO; ATTN_ERROR_MEMORY. */
attn_status attn__coco_results_write(attn_context *context, const char *path, const attn__detection *detections,
                                     int64_t n);

/* Reads a folder of images, or one with images/ in it, and text files of the same names in labels/: the last component
 * `images` of the path is replaced by `labels`. A line is "class cx cy width height", with the class from 0 and the
 * other numbers relative to the image. An image without a text file has no objects. Class names are read from data.yaml
 * or classes.txt, next to images/ or in it, or from labels/classes.txt; without these they are numbers. Images get the
 * ids 1 to n in the order of their names; categories get their numbers as ids. */
attn_status attn__yolo_read(attn__box_set **set, attn_context *context, const char *path);
/* Adds the objects of one text file to a set; `image` is the id of an image with this width and height. */
attn_status attn__yolo_parse(attn__box_set *set, const attn__input *text, int64_t image, int64_t width, int64_t height);

/* Draws n images of shapes (data/shapes.h), from number `first` on, and writes them as PNGs 000000.png, ... with
 * annotations.json to a new folder. The ids of images are 1 to n. ATTN_ERROR_IO; ATTN_ERROR_MEMORY;
 * ATTN_ERROR_INTERRUPTED. */
attn_status attn__shapes_write(attn_context *context, const char *folder, uint64_t seed, uint64_t first, int64_t n);

#endif
