/* SPDX-License-Identifier: MIT
 *
 * Prepares pictures for a detector. Resizes pictures, and puts pictures of different sizes into one batch.
 */
#include "apps/detector/detector.h"

#include "base/context.h"
#include "io/images/image.h"
#include "tensor/tape_state.h"

#include <math.h>

const attn__picture_view attn__detr_view = {
    .size = 800, .longest = 1333, .mean = {0.485F, 0.456F, 0.406F}, .std = {0.229F, 0.224F, 0.225F}};

void attn__view_size(const attn__picture_view *view, int64_t width, int64_t height, int64_t *to_width,
                     int64_t *to_height)
{
    int64_t size = view->size > 0 ? view->size : width < height ? width : height;
    double shorter = (double)(width < height ? width : height), longer = (double)(width < height ? height : width);
    if (view->longest > 0 && longer / shorter * (double)size > (double)view->longest)
        /* rint rounds half to even, like Python's round */
        size = (int64_t)rint((double)view->longest * shorter / longer);
    size = size < 1 ? 1 : size;
    if ((width <= height && width == size) || (height <= width && height == size)) {
        *to_width = width;
        *to_height = height;
    } else {
        *to_width = width < height ? size : size * width / height;
        *to_height = width < height ? size * height / width : size;
    }
}

void attn__view_resize(attn__picture_view *view, int64_t size)
{
    double longest = view->size > 0 ? (double)view->longest * (double)size / (double)view->size : 0;
    view->longest = view->size > 0 ? llround(longest) : view->longest;
    view->size = size;
}

attn_status attn__view_prepare(const attn__picture_view *view, attn_context *context, const attn_image *image,
                               attn_image *prepared)
{
    attn_image coloured = {0};
    int64_t width, height;
    attn__view_size(view, image->width, image->height, &width, &height);
    *prepared = (attn_image){0};
    attn_status status = image->channels == 3 ? ATTN_OK : attn_image_convert(&coloured, context, image, 3);
    const attn_image *from = image->channels == 3 ? image : &coloured;
    if (status == ATTN_OK)
        status = attn_image_resize(prepared, context, from, width, height, ATTN_IMAGE_FILTER_BILINEAR);
    attn_image_free(context, &coloured);
    return status;
}

/* Copies the channels of one picture to its place in a batch. A plane of the batch has `rows` x `cols` pixels. */
static void place(const attn__picture_view *view, const attn_image *image, float *to, int64_t rows, int64_t cols)
{
    for (int c = 0; c < 3; c++) {
        for (int64_t y = 0; y < image->height; y++) {
            const unsigned char *from = image->pixels + y * image->width * 3 + c;
            float *row = to + (c * rows + y) * cols;
            for (int64_t x = 0; x < image->width; x++)
                row[x] = ((float)from[3 * x] / 255 - view->mean[c]) / view->std[c];
        }
    }
}

static attn_tensor *mask_of(attn_tape *tape, const attn_image *images, int64_t n, int64_t rows, int64_t cols)
{
    attn_tensor *mask = attn_tape_tensor(tape, ATTN_I32, 3, (int64_t[]){n, rows, cols}, NULL);
    int32_t *padding = mask ? attn_tensor_data(mask) : NULL;
    for (int64_t i = 0; padding && i < n * rows * cols; i++) {
        const attn_image *image = &images[i / (rows * cols)];
        padding[i] = i / cols % rows >= image->height || i % cols >= image->width;
    }
    return mask;
}

attn_tensor *attn__view_batch(const attn__picture_view *view, attn_tape *tape, const attn_image *images, int64_t n,
                              const int64_t *sides, attn_tensor **mask)
{
    int64_t rows = sides ? sides[0] : 1, cols = sides ? sides[1] : 1;
    bool alike = true;
    for (int64_t i = 0; i < n; i++) {
        rows = images[i].height > rows ? images[i].height : rows;
        cols = images[i].width > cols ? images[i].width : cols;
    }
    for (int64_t i = 0; i < n; i++)
        alike = alike && images[i].height == rows && images[i].width == cols;
    attn_tensor *x = attn_tape_tensor(tape, ATTN_F32, 4, (int64_t[]){n, 3, rows, cols}, NULL);
    for (int64_t i = 0; x && i < n; i++)
        place(view, &images[i], (float *)attn_tensor_data(x) + i * 3 * rows * cols, rows, cols);
    *mask = x && !alike ? mask_of(tape, images, n, rows, cols) : NULL;
    return alike || *mask ? x : NULL;
}
