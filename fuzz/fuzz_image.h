/* SPDX-License-Identifier: MIT
 *
 * fuzz_image.h - tests one kind of image file. The format's first bytes are always right, so that the fuzzer does not
 * spend time on them. If an image was read, it is written, read again and compared.
 */
#ifndef ATTN_FUZZ_IMAGE_H
#define ATTN_FUZZ_IMAGE_H

#include "fuzz.h"

#include "attn/image.h"
#include "io/images/image.h"

#include <string.h>

static inline void fuzz_image_again(attn_context *context, const attn_image *image)
{
    attn_bytes png = {0};
    attn_image again = {0};
    size_t size = (size_t)image->width * (size_t)image->height * (size_t)image->channels;
    if (attn_image_png(&png, context, image) != ATTN_OK ||
        attn_image_parse(&again, context, png.data, png.size, "again", NULL) != ATTN_OK ||
        memcmp(again.pixels, image->pixels, size) != 0)
        abort();
    attn_image_free(context, &again);
    attn_bytes_free(context, &png);
}

static inline int fuzz_image(const char *signature, size_t length, const uint8_t *data, size_t size)
{
    attn_context *context = fuzz_context();
    attn_image_options options = {.limit = 1 << 14};
    attn_image image = {0};
    uint8_t *file = malloc(size + length);
    if (!file)
        abort();
    memcpy(file, data, size);
    memcpy(file, signature, length);
    attn_status status = attn_image_parse(&image, context, file, size > length ? size : length, "fuzz", &options);
    if (status == ATTN_OK)
        fuzz_image_again(context, &image);
    attn_image_free(context, &image);
    free(file);
    return fuzz_end(context);
}

#endif
