/* SPDX-License-Identifier: MIT
 *
 * classify.h - the image classifier: trained from labelled images, saved in a directory, used to classify
 * pictures and to show its attention.
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
#include "attn/models.h"
#include "attn/plot.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attn_classifier attn_classifier;

/* A classifier from its directory; the caller destroys it.  ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT,
 * ATTN_ERROR_SHAPE (parameters that are not those of the config), ATTN_ERROR_MEMORY. `names`: a names file of io.h,
 * or the name of one that is built in, for weights of foreign names; NULL: none. Settings that follow from such a
 * file's shapes may be absent from config.json, which may be missing; without "class_names" classes are named by their
 * numbers, without "mean" and "std" pixels run from -1 to 1. ATTN_ERROR_FORMAT also: the names file, or what it leaves
 * out. */
ATTN_API attn_status attn_classifier_load(attn_classifier **classifier, attn_context *context, const char *path,
                                          const char *names);
ATTN_API void attn_classifier_destroy(attn_classifier *classifier); /* NULL is allowed */
/* The name of class i, which the classifier owns. */
ATTN_API const char *attn_classifier_class_name(const attn_classifier *classifier, int64_t i); /* NULL past the end */

typedef struct attn_prediction {
    int32_t label;
    double probability;
} attn_prediction;
/* The `top` likeliest classes of each of n images, best first, guesses[i * top + rank].  Images of any size and
 * number of channels are brought to the model's (attn_image_fit, bicubic, where config.json names nothing else).  ATTN_ERROR_ARGUMENT: top not in 1 to the
 * number of classes; ATTN_ERROR_UNSUPPORTED: the weights hold NaN or infinity, so that there are no probabilities. */
ATTN_API attn_status attn_classifier_classify(attn_classifier *classifier, const attn_image *images, int64_t n,
                                              int64_t top, attn_prediction *guesses);

/* Which attention is drawn.  Zero means the default in each field; all count from 1. */
typedef struct attn_classifier_view {
    int64_t layer; /* 0: all of them (vit: rollout; else a panel each) */
    int64_t head;  /* 0: a panel for each of the layer, or the mean of them where all layers are drawn */
    /* The query's cell, in the grid of the layer, or of the first one where all are drawn (coarser grids use the cell
     * that contains it); 0: the class token, or the middle. */
    int64_t query_row, query_col;
    int64_t reserved[4];
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
