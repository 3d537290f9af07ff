/* SPDX-License-Identifier: MIT
 *
 * classify.h - the image classifier. It is trained from labelled images (trainer.h, kind "classify") and saved in a
 * directory. It classifies pictures and shows its attention.
 *
 * A classifier's directory holds
 *     config.json          the architecture, its settings, the image size, mean and deviation, the class names
 *     model.safetensors    the parameters that were best on the validation part
 * and the files for resuming a training: training.json, checkpoint.safetensors and history.tsv (see translate.h).
 *
 * Data is a folder, of one of three kinds:
 *   - IDX files: train-images*, train-labels*, t10k-images*, t10k-labels*, plain or gzip (MNIST,
 *     Fashion-MNIST); if there is only one of the two pairs, a part of it is kept for testing;
 *   - CIFAR-10's binary records: files *.bin or *.bin.gz whose names have "data_batch" or "train", and "test", in them;
 *   - folders train/CLASS/ and test/CLASS/ (or val/, valid/, validation/) of PNG, JPEG, WebP, BMP and PNM files, or
 *     only CLASS/.  Without a test folder a part is kept for testing.  Classes are sorted by name.  Other files are
 *     ignored and counted; names that begin with a dot are ignored without being counted.
 * classes.txt in the folder has the class names of the first two kinds, one per line.
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

/* Loads a classifier; the caller destroys it. `path` is a directory of attn, or a Vision Transformer of Hugging Face or
 * timm: a directory, or a file of weights, with the settings beside it. Its classes, pixels and number of heads are
 * those of its own settings. ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO, ATTN_ERROR_FORMAT, ATTN_ERROR_SHAPE (parameters that
 * do not match the config), ATTN_ERROR_UNSUPPORTED and ATTN_ERROR_ARGUMENT (a Vision Transformer with parts that a
 * plain one does not have, or without a number of heads or a head), ATTN_ERROR_MEMORY. `names` is a names
 * file of io.h, or the name of a built-in one, for weights with foreign names; NULL: none. With `names`, settings that
 * follow from the shapes of the weights may be absent from config.json, and the file itself may be missing. If
 * config.json has no "class_names", classes are named by their numbers. If it has no "mean" and "std", pixels run from
 * -1 to 1. ATTN_ERROR_FORMAT also: a malformed names file, or a tensor without a rule. */
ATTN_API attn_status attn_classifier_load(attn_classifier **classifier, attn_context *context, const char *path,
                                          const char *names);
ATTN_API void attn_classifier_destroy(attn_classifier *classifier); /* Destroys a classifier. NULL is allowed. */
/* Returns the name of class i, which the classifier owns. Returns NULL past the end. */
ATTN_API const char *attn_classifier_class_name(const attn_classifier *classifier, int64_t i);

typedef struct attn_prediction {
    int32_t label;
    double probability;
    int64_t reserved[2]; /* 0 */
} attn_prediction;
/* Writes the `top` most likely classes of each of n images, best first, to guesses[i * top + rank]. Images of any size
 * and number of channels are converted to the model's size and channels (attn_image_fit, bicubic unless config.json
 * names another filter). ATTN_ERROR_ARGUMENT: top is not in 1 to the number of classes. ATTN_ERROR_UNSUPPORTED: the
 * weights hold NaN or infinity, so that no probabilities exist. */
ATTN_API attn_status attn_classifier_classify(attn_classifier *classifier, const attn_image *images, int64_t n,
                                              int64_t top, attn_prediction *guesses);

/* Selects the attention to draw. Zero means the default in each field. Layers, heads and cells are counted from 1. */
typedef struct attn_classifier_view {
    /* number of the layer; 0: all layers, as rollout for vit, and as a panel for each layer in other models */
    int64_t layer;
    /* number of the head; 0: a panel for each head of the layer. If all layers are drawn, 0 means the mean of the
     * heads. */
    int64_t head;
    /* The query's cell in the grid of the layer. If all layers are drawn, it is a cell of the first layer's grid,
     * and a coarser grid uses the cell that contains it. 0: the class token, or the middle cell. */
    int64_t query_row, query_col;
    int64_t reserved[4];
} attn_classifier_view;
/* Draws the attention of the classifier on a picture: first the picture, then panels with the weights in red over the
 * picture in grey. The colours of a panel run from 0 to its largest weight, which is printed.
 *   vit        attention rollout (Abnar and Zuidema 2020, arXiv:2005.00928): the product over the layers of
 *              (mean over heads + identity) / 2, at the row of the class token; or the heads of one layer
 *   sasa       the window of one position in each layer; at the border part of the window is outside the picture
 *   nonlocal   the keys of one position in each non-local block
 *   axial      the row and the column of one position in each block; where they cross, the larger weight
 * If the format is ATTN_PLOT_HTML, the result is an interactive page with all layers and heads, whatever `view`
 * selects. `guess` (may be NULL) gets the predicted class. `view` may be NULL. ATTN_ERROR_ARGUMENT: no such layer, head
 * or cell. ATTN_ERROR_UNSUPPORTED: the architecture returns no attention weights, or the model's weights hold NaN or
 * infinity. */
ATTN_API attn_status attn_classifier_render_attention(attn_classifier *classifier, const attn_image *image,
                                                      const attn_classifier_view *view, attn_plot_format format,
                                                      attn_bytes *picture, attn_prediction *guess);

#ifdef __cplusplus
}
#endif
#endif
