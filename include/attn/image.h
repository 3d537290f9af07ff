/* SPDX-License-Identifier: MIT
 *
 * image.h - pictures as pixels. The functions read PNG, JPEG, WebP, BMP and PNM files, resize pictures, and convert
 * them to the channel planes that a model reads.
 *
 *     attn_image image = {0}, small = {0};
 *     attn_image_read(&image, context, "cat.jpg", &(attn_image_options){.channels = 3});
 *     attn_image_fit(&small, context, &image, 224, 224, ATTN_IMAGE_FILTER_BICUBIC);
 *     attn_image_planes(&small, mean, std, x);
 *
 * Files may be hostile. So sizes are checked before memory is allocated, and a damaged or truncated file is refused as
 * a whole. Messages name the file and its fault. No state is kept between calls; different contexts are independent.
 *
 * One thread at a time uses a context. An image is plain data that belongs to the caller. */
#ifndef ATTN_IMAGE_H
#define ATTN_IMAGE_H

#include "attn/io.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An image with eight bits for each sample: pixels[(y * width + x) * channels + c], allocated by the context. A
 * function that fills an image overwrites its pointer without freeing the old memory, so begin with {0}. An image that
 * a program gives to a function may have pixels in the program's own memory, which attn_image_free must not free. */
typedef struct attn_image {
    int64_t width, height;
    int channels; /* 1: grey; 3: red, green and blue */
    unsigned char *pixels;
} attn_image;

/* Frees the pixels and empties the image. The image may be empty already. */
ATTN_API void attn_image_free(attn_context *context, attn_image *image);

/* Options for reading. Zero means the default in each field. */
typedef struct attn_image_options {
    /* number of channels, 1 or 3, to which the image is converted; 0: 1 if the file is grey, otherwise 3 */
    int channels;
    int64_t limit; /* maximum number of pixels; 0: 67,108,864 */
    int64_t reserved[4];
} attn_image_options;

/* Reads a PNG, a JPEG, a WebP, a BMP or a PNM file (P2, P3, P5, P6). The first bytes of the file determine its format.
 *   - More than 8 bits per sample are rounded to 8 bits. Palettes and samples of fewer bits are expanded to 8 bits.
 *   - Transparent pixels are blended with white.
 *   - Colour becomes grey by ITU-R 601: (19595 R + 38470 G + 7471 B) / 65536, rounded to the nearest.
 *   - JPEG in CMYK or YCCK (inverted as Adobe writes it, or not inverted) becomes RGB: R = C K / 255 of the inverted
 *     values.
 *   - JPEG and WebP are rotated or mirrored by their EXIF orientation.
 *   - BMP is read with 1, 4, 8, 24 and 32 bits per pixel, uncompressed.
 *   - WebP needs libwebp in the build. An animation is refused.
 *   - Colour profiles and gamma are ignored: samples are treated as sRGB.
 * `options` may be NULL. ATTN_ERROR_NOT_FOUND, ATTN_ERROR_IO; ATTN_ERROR_FORMAT: an unknown format, or a damaged or
 * truncated file; ATTN_ERROR_UNSUPPORTED: more pixels than the limit; ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_image_read(attn_image *image, attn_context *context, const char *path,
                                     const attn_image_options *options);

/* Writes a file in the format of the path's ending: .png, .ppm, .pgm or .pnm. ATTN_ERROR_ARGUMENT: another ending, a
 * number of channels that is not 1 or 3, a colour image as .pgm, a grey one as .ppm, or a side below 1. ATTN_ERROR_IO.
 * ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_image_write(attn_context *context, const attn_image *image, const char *path);

/* -------------------------------------------------------------------------------------------- geometry */

typedef enum attn_image_filter {
    ATTN_IMAGE_FILTER_BILINEAR = 0, /* triangle filter of half-width 1 */
    ATTN_IMAGE_FILTER_BICUBIC       /* cubic filter (Keys 1981) with a = -0.5 and half-width 2 */
} attn_image_filter;

/* Resizes an image in proportion until it covers width x height. Then crops the middle. ATTN_ERROR_ARGUMENT: a side
 * is below 1. ATTN_ERROR_MEMORY. */
ATTN_API attn_status attn_image_fit(attn_image *to, attn_context *context, const attn_image *from, int64_t width,
                                    int64_t height, attn_image_filter filter);

/* Fills `out` with channels * height * width numbers: out[c][y][x] = (pixel / 255 - mean[c]) / std[c]. If mean is
 * NULL, it counts as 0. If std is NULL, it counts as 1. */
ATTN_API void attn_image_planes(const attn_image *image, const float *mean, const float *std, float *out);

#ifdef __cplusplus
}
#endif
#endif
