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
/* A map [n,n,channels] of numbers at another size, [side,side,channels], by the bicubic filter of attn_image_resize. */
attn_status attn__resize_map(attn_context *context, const float *from, int64_t n, float *to, int64_t side,
                             int64_t channels);
/* Turns and mirrors by an EXIF orientation. */
attn_status attn__raster_orient(attn__raster *raster, attn_context *context, int orientation);

#endif
