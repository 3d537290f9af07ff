/* SPDX-License-Identifier: MIT
 *
 * classify.h - the image classifier: trained from labelled images, saved in a directory, used to classify pictures, to
 * measure accuracy and to show its attention.
 *
 * A classifier's directory holds
 *     config.json          the architecture, its settings, the size of images, mean and deviation, names of the classes
 *     model.safetensors    the parameters that were best on the validation part
 * and what a training needs to go on: training.json, checkpoint.safetensors and history.tsv, as a translator's does.
 *
 * Data is a folder, of one of three kinds:
 *   - IDX files: train-images*, train-labels*, t10k-images*, t10k-labels*, plain or gzip (MNIST, Fashion-MNIST); of only
 *     one such pair a part is kept for testing;
 *   - CIFAR-10's binary records: files *.bin or *.bin.gz whose names have "data_batch" or "train", and "test", in them;
 *   - folders train/CLASS/ and test/CLASS/ (or val/, valid/, validation/) of PNG, JPEG, WebP, BMP and PNM files, or CLASS/ alone, of which a part is
 *     kept for testing.  Classes are sorted by name; other files are passed over and counted, names that begin with a dot
 *     are not there.
 * classes.txt in the folder, a name a line, names the classes of the first two kinds.
 *
 * One thread at a time uses a context and what was made from it; different contexts are independent. */
#ifndef ATTN_CLASSIFY_H
#define ATTN_CLASSIFY_H

#include "attn/image.h"
#include "attn/image_data.h"
#include "attn/models.h"
#include "attn/plot.h"
#include "attn/train.h"
#include "attn/translate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------------------------------- training */

/* The settings of a training; see attn_translator_keys.  Its *n keys stay for ever. */
ATTN_API const attn_setting *attn_classifier_keys(int *n);
/* `given` (may be NULL) with every other key filled in.  Defaults depend on "model".  ATTN_ERROR_ARGUMENT. */
ATTN_API attn_status attn_classifier_settings(attn_config **settings, attn_context *context, const attn_config *given);

/* Settings and sizes of a run, known before it starts.  It and what it points to are valid only until `begin`
 * returns. */
typedef struct attn_classifier_run_info {
    const attn_config *settings; /* resolved */
    attn_image_shape shape;
    int64_t classes, train_images, valid_images, test_images;
    int64_t parameters;
    int64_t steps_per_epoch, epochs, first_epoch; /* first_epoch counts from 1 */
    const char *taken;  /* where each parameter comes from, a line each, where a checkpoint was begun with; else NULL */
    bool warmup_fitted; /* "warmup" of the settings was too long for so few steps, and is a share of them now */
    /* Files in class folders whose ending is not a picture's, and folders next to train/ that are not read: how much,
     * and the path of the first. */
    int64_t passed_over;
    const char *passed_first;
} attn_classifier_run_info;

typedef struct attn_classifier_job {
    const char *data;            /* a folder; when resuming NULL: that of the training */
    const char *directory;       /* made if it is not there */
    const attn_config *settings; /* when resuming only "epochs", "patience" and "save_every" count */
    bool resume;
    /* Called after each step and epoch; false stops the run, which can be resumed.  progress->metric is the accuracy in
     * validation, 0 to 1.  May be NULL. */
    bool (*progress)(void *user, const attn_progress *progress);
    void (*begin)(void *user, const attn_classifier_run_info *info); /* once before the first step; may be NULL */
    void *user;
} attn_classifier_job;

/* Trains and leaves the directory complete.  Statuses as of attn_translator_train.  ATTN_ERROR_ARGUMENT: data that are no
 * labelled images. */
ATTN_API attn_status attn_classifier_train(attn_context *context, const attn_classifier_job *job);

/* -------------------------------------------------------------------------------------------- using one */

typedef struct attn_classifier attn_classifier;

/* Whether the directory's config.json is a classifier's; false also where it cannot be read. */
ATTN_API bool attn_classifier_is_at(attn_context *context, const char *directory);
/* A classifier from its directory; the caller destroys it.  ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT,
 * ATTN_ERROR_SHAPE (parameters that are not those of the config), ATTN_ERROR_MEMORY. `names`: a names file of io.h,
 * or the name of one that is built in, for weights of foreign names; NULL: none. Settings that follow from such a
 * file's shapes may be absent from config.json, which may be missing; without "class_names" classes are named by their
 * numbers, without "mean" and "std" pixels run from -1 to 1. ATTN_ERROR_FORMAT also: the names file, or what it leaves
 * out. */
ATTN_API attn_status attn_classifier_load(attn_classifier **classifier, attn_context *context, const char *path,
                                          const char *names);
ATTN_API void attn_classifier_destroy(attn_classifier *classifier); /* NULL is allowed */
/* Its model, which it owns. */
ATTN_API attn_model *attn_classifier_model(const attn_classifier *classifier);
ATTN_API attn_image_shape attn_classifier_shape(const attn_classifier *classifier);
ATTN_API int64_t attn_classifier_class_count(const attn_classifier *classifier);
/* The name of class i, which the classifier owns. */
ATTN_API const char *attn_classifier_class_name(const attn_classifier *classifier, int64_t i); /* 0 <= i < classes */

typedef struct attn_prediction {
    int32_t label;
    double probability;
} attn_prediction;
/* The `top` likeliest classes of each of n images, best first, guesses[i * top + rank].  Images of any size and
 * number of channels are brought to the model's (attn_image_fit, bicubic, where config.json names nothing else).  ATTN_ERROR_ARGUMENT: top not in 1 to the
 * number of classes; ATTN_ERROR_UNSUPPORTED: the weights hold NaN or infinity, so that there are no probabilities. */
ATTN_API attn_status attn_classifier_classify(attn_classifier *classifier, const attn_image *images, int64_t n,
                                              int64_t top, attn_prediction *guesses);

/* How a picture compares with those of the training: the first of "border" (mean of the outermost pixels), "brightness"
 * (mean of all) and "contrast" (standard deviation) that is outside the range of all of theirs. */
typedef struct attn_likeness {
    const char *unlike;     /* NULL: within all three, or the classifier has no record of its training pictures (made
                             * elsewhere) */
    double found, min, max; /* of that statistic, 0 black to 1 white: the picture's, and the training's range */
    bool inverted;          /* the picture's negative would be within */
} attn_likeness;
/* ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_classifier_compare(const attn_classifier *classifier, const attn_image *image,
                                             attn_likeness *likeness);

typedef struct attn_classifier_score {
    int64_t images, correct;
    double loss; /* nats an image */
    double images_per_second;
    int64_t classes;
    int64_t *confusion;  /* [classes][classes]: of images of class (row), how many were taken for (column) */
    int64_t passed_over; /* files in class folders that are no pictures by their ending */
} attn_classifier_score;
/* Classifies a part of the data as the training divided it.  The caller frees with attn_classifier_score_free.
 * ATTN_ERROR_ARGUMENT: no such data, or other classes; ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT,
 * ATTN_ERROR_MEMORY, ATTN_ERROR_UNSUPPORTED as above. */
ATTN_API attn_status attn_classifier_evaluate(attn_classifier *classifier, const char *data, attn_split part,
                                              attn_classifier_score *score);
ATTN_API void attn_classifier_score_free(attn_context *context, attn_classifier_score *score);

/* Which attention is drawn.  Zero means the default in each field; all count from 1. */
typedef struct attn_classifier_view {
    int64_t layer; /* 0: all of them (vit: rollout; else a panel each) */
    int64_t head;  /* 0: a panel for each of the layer, or the mean of them where all layers are drawn */
    /* The query's cell, in the grid of the layer, or of the first one where all are drawn (coarser grids use the cell
     * that contains it); 0: the class token, or the middle. */
    int64_t query_row, query_col;
} attn_classifier_view;
/* Draws what the classifier attends to on a picture: the picture, and panels with it in grey and the weights in red
 * over it, each from 0 to its largest, which is printed.
 *   vit        attention rollout (Abnar and Zuidema 2020, arXiv:2005.00928): the product over the layers of
 *              (mean over heads + identity) / 2, its row of the class token; or the heads of one layer
 *   sasa       the window of one position in each layer; at the border part of it is outside the picture
 *   nonlocal   the keys of one position in each non-local block
 *   axial      the row and the column of one position in each block; where they cross, the larger weight
 * As ATTN_PLOT_HTML it is a page to explore with all layers and heads, whatever `view` chooses.  `guess` (may be
 * NULL) gets what it takes the picture for.  `view` may be NULL.  ATTN_ERROR_ARGUMENT: there is no such layer, head
 * or cell; ATTN_ERROR_UNSUPPORTED: the architecture gives no weights, or as above. */
ATTN_API attn_status attn_classifier_render_attention(attn_classifier *classifier, const attn_image *image,
                                                      const attn_classifier_view *view, attn_plot_format format,
                                                      attn_bytes *picture, attn_prediction *guess);

#ifdef __cplusplus
}
#endif
#endif
