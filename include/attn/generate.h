/* SPDX-License-Identifier: MIT
 *
 * generate.h - the generator of images: a distribution over images trained from examples, saved in a directory, used to
 * draw new images and to complete given rows.
 *
 *     attn_train(context, &(attn_trainer_job){.kind = "images", .data = "fashion_mnist", .directory = "clothes"});
 *     attn_generator_load(&generator, context, "clothes", NULL);
 *     attn_generator_draw(generator, 16, &(attn_generator_options){.seed = 1}, images);
 *
 * The model is the axial transformer (Ho et al. 2019, arXiv:1912.12180).  Samples of 8 bits become
 * one of K levels, sample * K / 256 rounded down, and level k becomes 255 k / (K - 1) again: 256 levels lose nothing.
 *
 * A generator's directory holds
 *     config.json          the architecture with its settings, and how the images were divided
 *     model.safetensors    the parameters: the moving average of the training's that was best on the validation part
 * and what a training needs to go on: training.json, checkpoint.safetensors and history.tsv.
 *
 * Data is a folder as classify.h describes it; labels are passed over, and pictures may also be in it (or in train/ and
 * test/) without class folders.  With the setting "video" each folder in it (or in train/ and test/) is a video, whose
 * frames are its pictures in the order of their names; a file .npy of (videos, frames, channels, height, width), bytes
 * or real numbers from 0 to 1, has videos too.  A video is drawn frame after frame, each given all before it.
 *
 * One thread at a time uses a context and what was made from it; different contexts are independent.
 */
#ifndef ATTN_GENERATE_H
#define ATTN_GENERATE_H

#include "attn/image.h"
#include "attn/models.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attn_generator attn_generator;

/* A generator from its directory; the caller destroys it.  ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT,
 * ATTN_ERROR_SHAPE (parameters that are not those of the config), ATTN_ERROR_MEMORY. `names`: a names file of io.h,
 * or the name of one that is built in, for weights of foreign names; NULL: none. Settings that follow from such a
 * file's shapes may be absent from config.json, which may be missing. ATTN_ERROR_FORMAT also: the names file, or what
 * it leaves out. */
ATTN_API attn_status attn_generator_load(attn_generator **generator, attn_context *context, const char *path,
                                         const char *names);
ATTN_API void attn_generator_destroy(attn_generator *generator); /* NULL is allowed */
/* Zero means the default in each field. */
typedef struct attn_generator_options {
    uint64_t seed;      /* the same seed gives the same images, with any number of threads */
    double temperature; /* the logits are divided by it; 0: 1 */
    int64_t frames;     /* attn_generator_complete, of videos: how many are given */
    int64_t reserved[3];
} attn_generator_options;
/* Draws n images, which the caller frees with attn_image_free; on an error they are empty.  A model of videos draws n of
 * them, and `images` has room for all frames of each ("frames" in config.json), one video after the other.  Reports each
 * row to the function of attn_context_set_progress; if that returns false: ATTN_ERROR_INTERRUPTED.  The first of them have
 * the same noise for any n.  `options` may be NULL.  ATTN_ERROR_ARGUMENT: n < 1, a temperature that is not above 0. */
ATTN_API attn_status attn_generator_draw(attn_generator *generator, int64_t n, const attn_generator_options *options,
                                         attn_image *images);
/* Draws the rows below the first `rows` of `given`, which is brought to the model's size first (attn_image_fit, bicubic).
 * The first rows of `done` are those of the image that was given, before its samples became levels.  For a model of videos
 * `given` has options->frames images, and `done` gets all frames; of the last one given the first `rows` rows stay.
 * ATTN_ERROR_ARGUMENT: rows not in 0 to the height, frames not in 1 to the model's. */
ATTN_API attn_status attn_generator_complete(attn_generator *generator, const attn_image *given, int64_t rows,
                                             const attn_generator_options *options, attn_image *done);

#ifdef __cplusplus
}
#endif
#endif
