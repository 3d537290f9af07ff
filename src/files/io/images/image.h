/* SPDX-License-Identifier: MIT
 *
 * image.h - the image decoders, and operations on images. attn_image_parse chooses the decoder. */
#ifndef ATTN_IO_IMAGE_H
#define ATTN_IO_IMAGE_H

#include "attn/image.h"
#include "io/input.h"

/* The decoded pixels of a file, with 1 to 4 channels. The channels are grey (1), grey and alpha (2), RGB (3), or RGB
 * and alpha (4). */
typedef struct attn__raster {
    int64_t width, height;
    int channels;
    unsigned char *pixels; /* allocated by the context; must be freed even if decoding failed */
} attn__raster;

enum { ATTN__IMAGE_SIDE = 1000000 };

/* Checks the size that a file's header declares. ATTN_ERROR_FORMAT: the image has no pixels. ATTN_ERROR_UNSUPPORTED:
 * the size is above `limit` (0: the default limit). */
attn_status attn__raster_check(const attn__input *input, uint64_t width, uint64_t height, int64_t limit);
attn_status attn__raster_begin(attn__raster *raster, const attn__input *input, uint64_t width, uint64_t height,
                               int channels, int64_t limit);

bool attn__png_matches(const attn__input *input);
attn_status attn__png_read(attn__raster *raster, const attn__input *input, int64_t limit);
bool attn__jpeg_matches(const attn__input *input);
attn_status attn__jpeg_read(attn__raster *raster, const attn__input *input, int64_t limit);
bool attn__bmp_matches(const attn__input *input);
attn_status attn__bmp_read(attn__raster *raster, const attn__input *input, int64_t limit);
bool attn__webp_matches(const attn__input *input);
attn_status attn__webp_read(attn__raster *raster, const attn__input *input, int64_t limit);
bool attn__pnm_matches(const attn__input *input);
attn_status attn__pnm_read(attn__raster *raster, const attn__input *input, int64_t limit);

/* How a picture is fitted to a requested size. The picture is first resized, and then its middle is cut out. */
typedef struct attn__image_fitting {
    attn_image_filter filter;
    /* true: width and height are resized by different factors, each to `side`; false: they are resized by the same
     * factor, and neither becomes shorter than `side` */
    bool squash;
    /* length in pixels to which the picture is resized before its middle is cut out; 0: the requested size */
    int64_t side;
} attn__image_fitting;
/* Fits an image like attn_image_fit, but with these settings. ATTN_ERROR_ARGUMENT is also returned if a side of the
 * resized picture is shorter than the requested side. */
attn_status attn__image_fit(attn_image *to, attn_context *context, const attn_image *from, int64_t width,
                            int64_t height, const attn__image_fitting *fitting);

/* Returns the orientation (1 to 8) in an EXIF block. The block may begin with "Exif" and two zeros. Returns 1 if the
 * block has no orientation or is damaged. */
int attn__exif_orientation(const uint8_t *data, size_t size);
/* Resizes a map [rows,columns,channels] of floats with the bicubic filter of attn_image_resize. `from_size` and
 * `to_size` each hold the number of rows and the number of columns. */
attn_status attn__resize_map(attn_context *context, const float *from, const int64_t from_size[2], float *to,
                             const int64_t to_size[2], int64_t channels);
attn_status attn__raster_orient(attn__raster *raster, attn_context *context, int orientation);

/* Makes a black image. ATTN_ERROR_ARGUMENT: a side is not in 1 to 1,000,000, or `channels` is neither 1 nor 3.
 * ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn_image_alloc(attn_image *image, attn_context *context, int64_t width, int64_t height, int channels);
/* Makes a copy of the image that has 1 or 3 channels. ATTN_ERROR_ARGUMENT: `channels` is neither 1 nor 3.
 * ATTN_ERROR_MEMORY: there is no memory. */
attn_status attn_image_convert(attn_image *to, attn_context *context, const attn_image *from, int channels);
/* Encodes the image as a PNG of 8 bits per sample. The caller frees the bytes. ATTN_ERROR_MEMORY: there is no
 * memory. ATTN_ERROR_INTERNAL: libpng failed; the message contains libpng's reason. */
attn_status attn_image_png(attn_bytes *png, attn_context *context, const attn_image *image);
/* First rows are resized, then columns. Both results are rounded to 8 bits. If the image shrinks, the filter is widened
 * by the same factor, so that every pixel contributes to the result (anti-aliasing). Weights have 22 fractional bits.
 * At the border, only weights of existing pixels count, and they are normalized. The result equals that of Pillow up to
 * version 12. Pillow 13 resizes columns first if that is less work. ATTN_ERROR_ARGUMENT: a side is out of range. */
attn_status attn_image_resize(attn_image *to, attn_context *context, const attn_image *from, int64_t width,
                              int64_t height, attn_image_filter filter);
/* Cuts out the rectangle whose upper left pixel is (x, y). ATTN_ERROR_ARGUMENT: the rectangle is not inside the
 * image. */
attn_status attn_image_crop(attn_image *to, attn_context *context, const attn_image *from, int64_t x, int64_t y,
                            int64_t width, int64_t height);
/* Arranges n images of the same size as a table with `columns` images per row. If `columns` is 0, the table has about
 * as many columns as rows. Between and around the images there are `gap` white pixels. Each pixel of an image becomes a
 * square of `zoom` x `zoom` pixels (0 means 1). ATTN_ERROR_ARGUMENT: there is no image, or the images differ in size or
 * channels. */
attn_status attn_image_sheet(attn_image *sheet, attn_context *context, const attn_image *images, int64_t n,
                             int64_t columns, int64_t gap, int64_t zoom);

/* Writes images of the same size as a lossless .webp animation that repeats forever. A single image is written as a
 * still picture. ATTN_ERROR_UNSUPPORTED: this build has no libwebpmux. ATTN_ERROR_ARGUMENT: the format does not allow
 * this size. */
attn_status attn__webp_write(attn_context *context, const attn_image *images, int64_t n, int milliseconds,
                             const char *path);

/* Decodes an image file that is in memory, like attn_image_read. `name` is used in messages. */
attn_status attn_image_parse(attn_image *image, attn_context *context, const void *data, size_t size, const char *name,
                             const attn_image_options *options);

#endif
