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
#include "io/json.h"

/* Reads the boxes of a data set. `path` is one of these:
 * - a file of COCO's annotations, or a folder with annotations.json or _annotations.coco.json
 * - a folder that attn__yolo_read reads
 * - data.yaml of YOLO, or a folder with data.yaml or with the folders train/, valid/ (or val/) and test/, as Roboflow
 *   exports them: `part` of it, "train" or "val"; *divided becomes true. `divided` may be NULL. */
attn_status attn__boxes_read(attn__box_set **set, attn_context *context, const char *path, const char *part,
                             bool *divided);
/* Reports whether a data set at `path` has a part of its own, as above. */
attn_status attn__boxes_have_part(bool *has, attn_context *context, const char *path, const char *part);
/* All values are texts as they are written. The caller frees the tree with json_decref. */
attn_status attn__data_yaml_read(json_t **root, attn_context *context, const char *path);

/* Reads COCO's annotations of objects. If an annotation has no area, the area of its box is used. If it has no iscrowd,
 * it is not a crowd. Segmentations are skipped. The set's folder is the folder of the file. */
attn_status attn__coco_read(attn__box_set **set, attn_context *context, const char *path);
/* Does the same as attn__coco_read for a text in memory. The set has no folder. */
attn_status attn__coco_parse(attn__box_set **set, const attn__input *text);
/* Writes a finished set as one line of JSON. May return ATTN_ERROR_IO and ATTN_ERROR_MEMORY. */
attn_status attn__coco_write(const attn__box_set *set, const char *path);

/* The detections in a file. The caller frees them with attn__detections_free. */
typedef struct attn__detections {
    attn__detection *of; /* the detections; their image and category are indices in the set */
    int64_t n;
    /* left_out: number of detections whose category is not in the set; unknown: id of the first of these categories */
    int64_t left_out, unknown;
} attn__detections;
/* Reads COCO's results: a list of {image_id, category_id, bbox, score}. Returns ATTN_ERROR_FORMAT also if the set
 * does not have an image of the list. */
attn_status attn__coco_results_read(attn__detections *detections, const attn__box_set *set, const char *path);
/* Does the same as attn__coco_results_read for a text in memory. */
attn_status attn__coco_results_parse(attn__detections *detections, const attn__box_set *set, const attn__input *text);
/* Frees the detections and empties the list. */
void attn__detections_free(attn_context *context, attn__detections *detections);
/* Image and category must be ids, not indices. May return ATTN_ERROR_IO and ATTN_ERROR_MEMORY. */
attn_status attn__coco_results_write(attn_context *context, const char *path, const attn__detection *detections,
                                     int64_t n);

/* Reads a folder of images, or a folder that contains a folder images/ or CVAT's obj_train_data/. For each image, also
 * of the folders in images/, the boxes are read from a text file of the same name in the folder labels/. To find
 * labels/, the last component `images` of the path is replaced by `labels`. Without labels/ the text files are beside
 * the images. A line is "class cx cy width height", or a class and the points of a polygon, whose box is taken. Classes
 * are counted from 0. The other values are relative to the size of the image. An image without a text file has no
 * objects; if no image has one, ATTN_ERROR_NOT_FOUND is returned. Class names are read from `yaml`, the file that named
 * the folder, if it is not NULL; else from data.yaml or classes.txt, next to images/ or in it, from labels/classes.txt,
 * from darknet's obj.names or _darknet.labels, or from a data.yaml one folder higher that names this folder as a part;
 * without these files the names are numbers. Images get the ids 1 to n in the order of their names, those of folders
 * last, and categories get their numbers as ids. */
attn_status attn__yolo_read(attn__box_set **set, attn_context *context, const char *path, const char *yaml);
/* Adds the objects in one text file to a set. `image` is the id of the image, which has this width and height. */
attn_status attn__yolo_parse(attn__box_set *set, const attn__input *text, int64_t image, int64_t width, int64_t height);

/* Draws n images of shapes (data/shapes.h), starting with number `first`, and writes them as PNGs 000000.png, ... with
 * annotations.json to a new folder. The ids of images are 1 to n. May return ATTN_ERROR_IO, ATTN_ERROR_MEMORY and
 * ATTN_ERROR_INTERRUPTED. */
attn_status attn__shapes_write(attn_context *context, const char *folder, uint64_t seed, uint64_t first, int64_t n);

#endif
