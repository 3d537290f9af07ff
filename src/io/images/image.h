/* SPDX-License-Identifier: MIT
 * image.h - the decoders behind attn_image_parse. */
#ifndef ATTN_IO_IMAGE_H
#define ATTN_IO_IMAGE_H

#include "attn/image.h"
#include "io/input.h"

/* Channels of a file, 1 to 4, where 2 and 4 have alpha behind grey or RGB. */
typedef struct attn__raster {
    int64_t width, height;
    int channels;
    unsigned char *pixels; /* the context's, on failure too */
} attn__raster;

enum { ATTN__IMAGE_SIDE = 1000000 };

/* Whether a size that a file says is one that is read.  ATTN_ERROR_FORMAT: no pixels; ATTN_ERROR_UNSUPPORTED: beyond
 * the limit (0: the default one). */
attn_status attn__raster_check(const attn__input *input, uint64_t width, uint64_t height, int64_t limit);
/* Checks, and takes memory. */
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

/* How a picture is brought to a size: it is resized, then its middle is cut out. */
typedef struct attn__image_fitting {
    attn_image_filter filter;
    bool squash;  /* width and height are each resized on its own; else in proportion, so that both are covered */
    int64_t side; /* pixels to which they are resized, from which the middle is cut out; 0: as many as requested */
} attn__image_fitting;
/* attn_image_fit, by a fitting.  ATTN_ERROR_ARGUMENT: a side below the requested one, too. */
attn_status attn__image_fit(attn_image *to, attn_context *context, const attn_image *from, int64_t width,
                            int64_t height, const attn__image_fitting *fitting);

/* The orientation (1 to 8) in an EXIF block, with "Exif" and two zeros before it or without; 1 if it has none or is
 * damaged. */
int attn__exif_orientation(const uint8_t *data, size_t size);
/* A map [rows,columns,channels] of numbers, `from_size` its rows and columns, at another size by the bicubic filter of
 * attn_image_resize. */
attn_status attn__resize_map(attn_context *context, const float *from, const int64_t from_size[2], float *to,
                             const int64_t to_size[2], int64_t channels);
/* Turns and mirrors by an EXIF orientation. */
attn_status attn__raster_orient(attn__raster *raster, attn_context *context, int orientation);

/* Black.  ATTN_ERROR_ARGUMENT: a side not in 1 to 1,000,000, or channels other than 1 and 3; ATTN_ERROR_MEMORY. */
attn_status attn_image_alloc(attn_image *image, attn_context *context, int64_t width, int64_t height, int channels);
/* The image in 1 or 3 channels, a copy where it has them already.  ATTN_ERROR_ARGUMENT: channels neither 1 nor 3;
 * ATTN_ERROR_MEMORY. */
attn_status attn_image_convert(attn_image *to, attn_context *context, const attn_image *from, int channels);
/* As a PNG of 8 bits a sample.  The caller frees the bytes.  ATTN_ERROR_MEMORY; ATTN_ERROR_INTERNAL: libpng's own
 * reason. */
attn_status attn_image_png(attn_bytes *png, attn_context *context, const attn_image *image);
/* The image at another size.  Where it shrinks, the filter is widened by the factor, so that every pixel counts
 * (anti-aliasing); rows first, then columns, each rounded to 8 bits, with weights of 22 fractional bits that are
 * normalized over the pixels that exist: the same result as Pillow's resize up to version 12 (13 takes the columns
 * first where that is less work).  ATTN_ERROR_ARGUMENT: a side out of range. */
attn_status attn_image_resize(attn_image *to, attn_context *context, const attn_image *from, int64_t width,
                              int64_t height, attn_image_filter filter);
/* The rectangle whose upper left pixel is (x, y).  ATTN_ERROR_ARGUMENT: it is not inside the image. */
attn_status attn_image_crop(attn_image *to, attn_context *context, const attn_image *from, int64_t x, int64_t y,
                            int64_t width, int64_t height);
/* n images of one size as a table, `columns` side by side (0: about as many as rows), `gap` pixels of white around each,
 * each pixel `zoom` times as large (0: once).  ATTN_ERROR_ARGUMENT: none, or images that differ in size or channels. */
attn_status attn_image_sheet(attn_image *sheet, attn_context *context, const attn_image *images, int64_t n,
                             int64_t columns, int64_t gap, int64_t zoom);

/* Writes an animation of images of one size (of one: a picture) as .webp without loss; repeated forever.
 * ATTN_ERROR_UNSUPPORTED: this build has no libwebpmux; ATTN_ERROR_ARGUMENT: sizes that the format does not have. */
attn_status attn__webp_write(attn_context *context, const attn_image *images, int64_t n, int milliseconds,
                             const char *path);

/* attn_image_read from memory; `name` is used in messages. */
attn_status attn_image_parse(attn_image *image, attn_context *context, const void *data, size_t size, const char *name,
                             const attn_image_options *options);

#endif
