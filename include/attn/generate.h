/* SPDX-License-Identifier: MIT
 *
 * generate.h - the generator of images: a distribution over images. It is trained from examples (trainer.h, kind
 * "images") and saved in a directory. It draws new images and completes images whose first rows are given.
 *
 *     attn_train(context, &(attn_trainer_job){.kind = "images", .data = "fashion_mnist", .directory = "clothes"});
 *     attn_generator_load(&generator, context, "clothes", NULL);
 *     attn_generator_draw(generator, 16, &(attn_generator_options){.seed = 1}, images);
 *
 * The model is the axial transformer (Ho et al. 2019, arXiv:1912.12180).  A sample of 8 bits becomes one of K levels,
 * which is sample * K / 256 rounded down. Level k becomes the sample 255 k / (K - 1). So with 256 levels nothing is
 * lost.
 *
 * A generator's directory holds
 *     config.json          the architecture with its settings, and how the images were divided
 *     model.safetensors    the moving average of the parameters that was best on the validation part
 * and the files for resuming a training: training.json, checkpoint.safetensors and history.tsv.
 *
 * Data is a folder as classify.h describes it. Labels are ignored, and the folder (or its train/ and test/) may hold
 * pictures without class folders. With the setting "video", each subfolder of the folder, or of its train/ and test/,
 * is a video. Its frames are its pictures in the order of their names. Videos may also come from a .npy file of shape
 * (videos, frames, channels, height, width) with bytes or real numbers from 0 to 1. A video is drawn frame by frame.
 * Each frame depends on all frames before it.
 *
 * One thread at a time uses a context and what was made from it; different contexts are independent. */
#ifndef ATTN_GENERATE_H
#define ATTN_GENERATE_H

#include "attn/image.h"
#include "attn/models.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attn_generator attn_generator;

/* Loads a generator from its directory; the caller destroys it. ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT,
 * ATTN_ERROR_SHAPE (parameters that do not match the config), ATTN_ERROR_MEMORY. `names` is a names file of io.h, or
 * the name of a built-in one, for weights with foreign names; NULL: none. With `names`, settings that follow from the
 * shapes of the weights may be absent from config.json, and the file itself may be missing. ATTN_ERROR_FORMAT also: a
 * malformed names file, or a tensor without a rule. */
ATTN_API attn_status attn_generator_load(attn_generator **generator, attn_context *context, const char *path,
                                         const char *names);
ATTN_API void attn_generator_destroy(attn_generator *generator); /* Destroys a generator. NULL is allowed. */
/* Returns the number of images that each drawn example has: the frames of a video, or 1. */
ATTN_API int64_t attn_generator_frames(const attn_generator *generator);
/* Options for drawing. Zero means the default in each field. */
typedef struct attn_generator_options {
    uint64_t seed;      /* for any number of threads, the same seed gives the same images */
    double temperature; /* divisor of the logits; 0 means 1 */
    int64_t frames;     /* number of given frames, for attn_generator_complete with videos */
    int64_t reserved[3];
} attn_generator_options;
/* Draws n images, which the caller frees with attn_image_free. On an error, the images are empty. If the model makes
 * videos, draws n videos, one after the other. `images` then has room for all frames of each video ("frames" in
 * config.json). Each row is reported to the function of attn_context_set_progress. If that function returns false,
 * the result is ATTN_ERROR_INTERRUPTED. Image i gets the same noise for any n. `options` may be NULL.
 * ATTN_ERROR_ARGUMENT: n is below 1, or the temperature is negative or NaN. */
ATTN_API attn_status attn_generator_draw(attn_generator *generator, int64_t n, const attn_generator_options *options,
                                         attn_image *images);
/* Draws the rows below the first `rows` of `given`. `given` is first converted to the model's size (attn_image_fit,
 * bicubic). The first rows of `done` are copied from this image with all 8 bits of its samples, not reduced to levels.
 * If the model makes videos, `given` has options->frames images, and `done` gets all frames. In the last given frame,
 * only the first `rows` rows are kept. `options` may be NULL, unless the model makes videos. ATTN_ERROR_ARGUMENT: rows
 * is not in 0 to the height, the temperature is negative or NaN, or, with videos, frames is not in 1 to the model's
 * number of frames. */
ATTN_API attn_status attn_generator_complete(attn_generator *generator, const attn_image *given, int64_t rows,
                                             const attn_generator_options *options, attn_image *done);

#ifdef __cplusplus
}
#endif
#endif
