/* SPDX-License-Identifier: MIT
 *
 * eval_images.h - attn eval for models of images: classifiers, generators and detections.
 */
#ifndef CLI_EVAL_IMAGES_H
#define CLI_EVAL_IMAGES_H

#include "command.h"
#include "apps/run/run.h"

/* Evaluates the classifier in cli->words[0] on a part of `data` and prints the result. Returns an exit code. */
int cli_eval_images(const cli_call *cli, const char *data, attn_split part, const char *part_name);

/* Evaluates a generator on a part of `data`. Prints bits per dimension, and for comparison the bits of a model with
 * independent pixels. Returns an exit code. */
int cli_eval_generator(const cli_call *cli, const char *data, attn_split part, const char *part_name);

/* Runs COCO's evaluation of a file of results against the annotations of a file or folder. Returns an exit code. */
int cli_eval_boxes(const cli_call *cli, const char *results, const char *annotations);

#endif
