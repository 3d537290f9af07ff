/* SPDX-License-Identifier: MIT
 * image.h - the image decoders of attn_image_parse, and image operations. */
#ifndef ATTN_IO_IMAGE_H
#define ATTN_IO_IMAGE_H

#include "attn/image.h"
#include "io/input.h"

/* The decoded pixels of a file with 1 to 4 channels. 2 and 4 channels have alpha after grey or RGB. */
typedef struct attn__raster {
    int64_t width, height;
    int channels;
    unsigned char *pixels; /* allocated by the context, on failure too */
} attn__raster;

enum { ATTN__IMAGE_SIDE = 1000000 };

/* Checks a size from a file's header. ATTN_ERROR_FORMAT: no pixels. ATTN_ERROR_UNSUPPORTED: above the limit (0: the
 * default limit). */
attn_status attn__raster_check(const attn__input *input, uint64_t width, uint64_t height, int64_t limit);
/* Checks the size and allocates the pixels. */
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

/* Settings for fitting a picture to a size. The picture is resized, then its middle is cut out. */
typedef struct attn__image_fitting {
    attn_image_filter filter;
    /* true: width and height are resized independently; false: in proportion, so that the picture covers both */
    bool squash;
    int64_t side; /* size in pixels to resize to before the middle is cut out; 0: the requested size */
} attn__image_fitting;
/* Fits an image like attn_image_fit, with given settings. ATTN_ERROR_ARGUMENT also if a side is below the requested
 * one. */
attn_status attn__image_fit(attn_image *to, attn_context *context, const attn_image *from, int64_t width,
                            int64_t height, const attn__image_fitting *fitting);

/* Returns the orientation (1 to 8) in an EXIF block, with or without a leading "Exif" and two zeros. Returns 1 if the
 * block has no orientation or is damaged. */
int attn__exif_orientation(const uint8_t *data, size_t size);
/* Resizes a map [rows,columns,channels] of numbers with the bicubic filter of attn_image_resize. `from_size` and
 * `to_size` are rows and columns. */
attn_status attn__resize_map(attn_context *context, const float *from, const int64_t from_size[2], float *to,
                             const int64_t to_size[2], int64_t channels);
/* Rotates and mirrors the raster by an EXIF orientation. */
attn_status attn__raster_orient(attn__raster *raster, attn_context *context, int orientation);

/* Makes a black image. ATTN_ERROR_ARGUMENT: a side not in 1 to 1,000,000, or channels other than 1 and 3.
 * ATTN_ERROR_MEMORY. */
attn_status attn_image_alloc(attn_image *image, attn_context *context, int64_t width, int64_t height, int channels);
/* Converts the image to 1 or 3 channels, or copies an image that already has these. ATTN_ERROR_ARGUMENT: channels
 * neither 1 nor 3. ATTN_ERROR_MEMORY. */
attn_status attn_image_convert(attn_image *to, attn_context *context, const attn_image *from, int channels);
/* Encodes a PNG of 8 bits per sample. The caller frees the bytes. ATTN_ERROR_MEMORY. ATTN_ERROR_INTERNAL: the message
 * has libpng's own reason. */
attn_status attn_image_png(attn_bytes *png, attn_context *context, const attn_image *image);
/* Resizes the image. If it shrinks, the filter is widened by the factor, so that every pixel counts (anti-aliasing).
 * Rows are resized first, then columns, each rounded to 8 bits. Weights have 22 fractional bits and are normalized over
 * existing pixels. The result equals Pillow's resize up to version 12 (13 resizes columns first if that is less work).
 * ATTN_ERROR_ARGUMENT: a side out of range. */
attn_status attn_image_resize(attn_image *to, attn_context *context, const attn_image *from, int64_t width,
                              int64_t height, attn_image_filter filter);
/* Cuts out the rectangle whose upper left pixel is (x, y). ATTN_ERROR_ARGUMENT: the rectangle is not inside the
 * image. */
attn_status attn_image_crop(attn_image *to, attn_context *context, const attn_image *from, int64_t x, int64_t y,
                            int64_t width, int64_t height);
/* Arranges n images of one size as a table with `columns` images per row (0: about as many as rows). The table has a
 * border of `gap` white pixels, and each pixel is enlarged `zoom` times (0: once). ATTN_ERROR_ARGUMENT: no image, or
 * images that differ in size or channels. */
attn_status attn_image_sheet(attn_image *sheet, attn_context *context, const attn_image *images, int64_t n,
                             int64_t columns, int64_t gap, int64_t zoom);

/* Writes a lossless .webp animation of images of one size, which repeats forever. A single image gives a picture.
 * ATTN_ERROR_UNSUPPORTED: this build has no libwebpmux. ATTN_ERROR_ARGUMENT: sizes that the format does not allow. */
attn_status attn__webp_write(attn_context *context, const attn_image *images, int64_t n, int milliseconds,
                             const char *path);

/* Decodes a file in memory like attn_image_read. `name` is used in messages. */
attn_status attn_image_parse(attn_image *image, attn_context *context, const void *data, size_t size, const char *name,
                             const attn_image_options *options);

#endif
