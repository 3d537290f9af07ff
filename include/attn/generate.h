/* SPDX-License-Identifier: MIT
 *
 * generate.h - the generator of images: a distribution over images trained from examples, saved in a directory, used to
 * draw new images, to complete given rows, and to measure how many bits an image costs.
 *
 *     attn_generator_train(context, &(attn_generator_job){.data = "fashion_mnist", .directory = "clothes"});
 *     attn_generator_load(&generator, context, "clothes", NULL);
 *     attn_generator_draw(generator, 16, &(attn_generator_options){.seed = 1}, images);
 *
 * The model is the axial transformer (axial_transformer.h; Ho et al. 2019, arXiv:1912.12180).  Samples of 8 bits become
 * one of K levels, sample * K / 256 rounded down, and level k becomes 255 k / (K - 1) again: 256 levels lose nothing.
 *
 * A generator's directory holds
 *     config.json          the architecture with its settings, and how the images were divided
 *     model.safetensors    the parameters: the moving average of the training's that was best on the validation part
 * and what a training needs to go on: training.json, checkpoint.safetensors and history.tsv.
 *
 * Data is a folder as classify.h describes it; labels are passed over, and pictures may also be in it (or in train/ and
 * test/) without class folders.
 *
 * One thread at a time uses a context and what was made from it; different contexts are independent.
 */
#ifndef ATTN_GENERATE_H
#define ATTN_GENERATE_H

#include "attn/image.h"
#include "attn/image_data.h"
#include "attn/models.h"
#include "attn/train.h"
#include "attn/translate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------------------------------- training */

/* The settings of a training; see attn_translator_keys.  Its *n keys stay for ever. */
ATTN_API const attn_setting *attn_generator_keys(int *n);
/* `given` (may be NULL) with every other key filled in.  ATTN_ERROR_ARGUMENT. */
ATTN_API attn_status attn_generator_settings(attn_config **settings, attn_context *context, const attn_config *given);

/* Settings and sizes of a run, known before it starts.  It and what it points to are valid only until `begin`
 * returns. */
typedef struct attn_generator_run_info {
    const attn_config *settings; /* resolved */
    attn_image_shape shape;
    int64_t levels, train_images, valid_images, test_images;
    int64_t parameters;
    int64_t steps_per_epoch, epochs, first_epoch; /* first_epoch counts from 1 */
    bool warmup_fitted; /* "warmup" of the settings was too long for so few steps, and is a share of them now */
    /* Files in class folders whose ending is not a picture's, and folders next to train/ that are not read: how much,
     * and the path of the first. */
    int64_t passed_over;
    const char *passed_first;
} attn_generator_run_info;

typedef struct attn_generator_job {
    const char *data;            /* a folder; when resuming NULL: that of the training */
    const char *directory;       /* made if it is not there */
    const attn_config *settings; /* when resuming only "epochs", "patience" and "save_every" count */
    bool resume;
    /* Called after each step and epoch; false stops the run, which can be resumed.  Losses are bits per dimension.  May
     * be NULL. */
    bool (*progress)(void *user, const attn_progress *progress);
    void (*begin)(void *user, const attn_generator_run_info *info); /* once before the first step; may be NULL */
    void *user;
} attn_generator_job;

/* Trains and leaves the directory complete.  A step predicts one channel of each image, chosen at random, which estimates
 * the loss without bias; validation all of them.  Statuses as of attn_translator_train.  ATTN_ERROR_ARGUMENT: data that
 * are no images. */
ATTN_API attn_status attn_generator_train(attn_context *context, const attn_generator_job *job);

/* -------------------------------------------------------------------------------------------- using one */

typedef struct attn_generator attn_generator;

/* Whether the directory's config.json is a generator's; false also where it cannot be read. */
ATTN_API bool attn_generator_is_at(attn_context *context, const char *directory);
/* A generator from its directory; the caller destroys it.  ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT,
 * ATTN_ERROR_SHAPE (parameters that are not those of the config), ATTN_ERROR_MEMORY. `names`: a names file of io.h,
 * or the name of one that is built in, for weights of foreign names; NULL: none. Settings that follow from such a
 * file's shapes may be absent from config.json, which may be missing. ATTN_ERROR_FORMAT also: the names file, or what
 * it leaves out. */
ATTN_API attn_status attn_generator_load(attn_generator **generator, attn_context *context, const char *path,
                                         const char *names);
ATTN_API void attn_generator_destroy(attn_generator *generator); /* NULL is allowed */
/* Its model, which it owns. */
ATTN_API attn_model *attn_generator_model(const attn_generator *generator);
ATTN_API attn_image_shape attn_generator_shape(const attn_generator *generator);
ATTN_API int64_t attn_generator_levels(const attn_generator *generator);

/* Zero means the default in each field. */
typedef struct attn_generator_options {
    uint64_t seed;      /* the same seed gives the same images, with any number of threads */
    double temperature; /* the logits are divided by it; 0: 1 */
    bool slow;          /* the definition: the whole model for each pixel; the same images, to compare times */
    /* Called with the rows drawn and all there are, of all channels; false stops with ATTN_ERROR_INTERRUPTED.  May
     * be NULL. */
    bool (*progress)(void *user, int64_t done, int64_t total);
    void *user;
} attn_generator_options;
/* Draws n images, which the caller frees with attn_image_free; on an error they are empty.  The first of them have
 * the same noise for any n.  `options` may be NULL.  ATTN_ERROR_ARGUMENT: n < 1, a temperature that is not above 0. */
ATTN_API attn_status attn_generator_draw(attn_generator *generator, int64_t n, const attn_generator_options *options,
                                         attn_image *images);
/* Draws the rows below the first `rows` of `given`, which is brought to the model's size first (attn_image_fit, bicubic).
 * The first rows of `done` are those of the image that was given, before its samples became levels.  ATTN_ERROR_ARGUMENT:
 * rows not in 0 to the height. */
ATTN_API attn_status attn_generator_complete(attn_generator *generator, const attn_image *given, int64_t rows,
                                             const attn_generator_options *options, attn_image *done);

typedef struct attn_generator_score {
    int64_t images, dims;     /* numbers of an image: width * height * channels */
    double bits;              /* mean of -log2 p: bits per dimension */
    double baseline;          /* the same of independent pixels: each number's histogram over the training part, one
                                 added to every count */
    double images_per_second; /* measured, of the model */
} attn_generator_score;
/* Measures the bits per dimension of the images of a part of the data, which is divided as in the training.
 * ATTN_ERROR_ARGUMENT: no such data, or images that do not fit; ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT,
 * ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_generator_evaluate(attn_generator *generator, const char *data, attn_split part,
                                             attn_generator_score *score);

#ifdef __cplusplus
}
#endif
#endif
