/* SPDX-License-Identifier: MIT
 *
 * Reads images from files of any supported format, and converts them to the requested number of channels.
 */
#include "io/images/image.h"
#include "base/downloaded.h"

#include <string.h>

enum { DEFAULT_LIMIT = 1 << 26 };

void attn_image_free(attn_context *context, attn_image *image)
{
    attn__free(context, image->pixels);
    *image = (attn_image){0};
}

attn_status attn_image_alloc(attn_image *image, attn_context *context, int64_t width, int64_t height, int channels)
{
    ATTN__CALL(context);
    *image = (attn_image){0};
    if (width < 1 || height < 1 || width > ATTN__IMAGE_SIDE || height > ATTN__IMAGE_SIDE)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "the image has %lld x %lld pixels; each side must be 1 to %d",
                          (long long)width, (long long)height, (int)ATTN__IMAGE_SIDE);
    if (channels != 1 && channels != 3)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "the image has %d channels; expected 1 or 3", channels);
    size_t size = attn__size_mul(attn__size_mul((size_t)width, (size_t)height), (size_t)channels);
    unsigned char *pixels = attn__alloc_zero(context, size);
    if (!pixels)
        return ATTN_ERROR_MEMORY;
    *image = (attn_image){width, height, channels, pixels};
    return ATTN_OK;
}

attn_status attn__raster_check(const attn__input *input, uint64_t width, uint64_t height, int64_t limit)
{
    uint64_t most = limit > 0 ? (uint64_t)limit : DEFAULT_LIMIT;
    if (width == 0 || height == 0)
        return attn__fail(input->context, ATTN_ERROR_FORMAT,
                          "%s: the image has %llu x %llu pixels; at least 1 x 1 is needed", input->name,
                          (unsigned long long)width, (unsigned long long)height);
    if (width > ATTN__IMAGE_SIDE || height > ATTN__IMAGE_SIDE)
        return attn__fail(input->context, ATTN_ERROR_UNSUPPORTED,
                          "%s: the image has %llu x %llu pixels; each side must be at most %d", input->name,
                          (unsigned long long)width, (unsigned long long)height, (int)ATTN__IMAGE_SIDE);
    const uint64_t pixels = width * height;
    if (pixels > most)
        return attn__fail(input->context, ATTN_ERROR_UNSUPPORTED,
                          "%s: the image has %llu x %llu = %llu pixels; at most %llu are supported", input->name,
                          (unsigned long long)width, (unsigned long long)height, (unsigned long long)pixels,
                          (unsigned long long)most);
    return ATTN_OK;
}

attn_status attn__raster_begin(attn__raster *raster, const attn__input *input, uint64_t width, uint64_t height,
                               int channels, int64_t limit)
{
    attn_status status = attn__raster_check(input, width, height, limit);
    if (status != ATTN_OK)
        return status;
    raster->width = (int64_t)width;
    raster->height = (int64_t)height;
    raster->channels = channels;
    raster->pixels = attn__alloc(input->context, (size_t)(width * height) * (size_t)channels);
    return raster->pixels ? ATTN_OK : ATTN_ERROR_MEMORY;
}

/* ------------------------------------------------------------------------------------------- channels */

static unsigned char over_white(unsigned value, unsigned alpha)
{
    return (unsigned char)((value * alpha + 255 * (255 - alpha) + 127) / 255);
}

/* The weights of the colours are those of Pillow and sum to 65536. */
static unsigned char luma(unsigned red, unsigned green, unsigned blue)
{
    return (unsigned char)((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16);
}

static void convert_pixel(const unsigned char *from, int channels, unsigned char *to, int wanted)
{
    bool colour = channels > 2;
    unsigned alpha = channels == 2 ? from[1] : channels == 4 ? from[3] : 255;
    unsigned char c[3];
    for (int i = 0; i < 3; i++)
        c[i] = over_white(from[colour ? i : 0], alpha);
    if (wanted == 3)
        memcpy(to, c, 3);
    else
        to[0] = colour ? luma(c[0], c[1], c[2]) : c[0];
}

static attn_status convert(attn_image *to, attn_context *context, const attn__raster *from, int channels)
{
    attn_status status = attn_image_alloc(to, context, from->width, from->height, channels);
    size_t pixels = (size_t)(from->width * from->height);
    for (size_t i = 0; status == ATTN_OK && i < pixels; i++)
        convert_pixel(from->pixels + i * (size_t)from->channels, from->channels, to->pixels + i * (size_t)channels,
                      channels);
    return status;
}

attn_status attn_image_convert(attn_image *to, attn_context *context, const attn_image *from, int channels)
{
    ATTN__CALL(context);
    attn__raster raster = {from->width, from->height, from->channels, from->pixels};
    return convert(to, context, &raster, channels);
}

/* Converts the raster to the image. If the raster already has the requested number of channels, its pixels are not
 * copied. */
static attn_status deliver(attn_image *image, attn_context *context, attn__raster *raster, int channels)
{
    int wanted = channels ? channels : raster->channels > 2 ? 3 : 1;
    if (wanted != raster->channels)
        return convert(image, context, raster, wanted);
    *image = (attn_image){raster->width, raster->height, wanted, raster->pixels};
    raster->pixels = NULL;
    return ATTN_OK;
}

/* --------------------------------------------------------------------------------------------- reading */

static attn_status decode(attn__raster *raster, const attn__input *input, int64_t limit)
{
    if (attn__png_matches(input))
        return attn__png_read(raster, input, limit);
    if (attn__jpeg_matches(input))
        return attn__jpeg_read(raster, input, limit);
    if (attn__pnm_matches(input))
        return attn__pnm_read(raster, input, limit);
    if (attn__webp_matches(input))
        return attn__webp_read(raster, input, limit);
    if (attn__bmp_matches(input))
        return attn__bmp_read(raster, input, limit);
    attn_status status = attn__check_downloaded(input->context, input->name, input->data, input->size);
    if (status != ATTN_OK)
        return status;
    return attn__fail(input->context, ATTN_ERROR_FORMAT, "%s: %s", input->name,
                      input->size ? "not an image in PNG, JPEG, WebP, BMP or PNM format"
                                  : "the file is empty, not an image");
}

attn_status attn_image_parse(attn_image *image, attn_context *context, const void *data, size_t size, const char *name,
                             const attn_image_options *options)
{
    ATTN__CALL(context);
    attn_image_options o = options ? *options : (attn_image_options){0};
    attn__input input = {.context = context, .name = name, .data = data, .size = size};
    attn__raster raster = {0};
    *image = (attn_image){0};
    if (ATTN__CHECK_RESERVED(context, options, attn_image_options) != ATTN_OK)
        return ATTN_ERROR_ARGUMENT;
    if (o.channels != 0 && o.channels != 1 && o.channels != 3)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "an image with %d channels is requested; expected 1 or 3",
                          o.channels);
    attn_status status = decode(&raster, &input, o.limit);
    if (status == ATTN_OK)
        status = deliver(image, context, &raster, o.channels);
    attn__free(context, raster.pixels);
    return status;
}

attn_status attn_image_read(attn_image *image, attn_context *context, const char *path,
                            const attn_image_options *options)
{
    ATTN__CALL(context);
    attn_bytes bytes = {0};
    *image = (attn_image){0};
    attn_status status = attn_file_read(&bytes, context, path, 0);
    if (status == ATTN_OK)
        status = attn_image_parse(image, context, bytes.data, bytes.size, path, options);
    attn_bytes_free(context, &bytes);
    return status;
}

/* Converts the image to one plane per channel, which is the input format of convolutions and patch embeddings. */
void attn_image_planes(const attn_image *image, const float *mean, const float *std, float *out)
{
    size_t pixels = (size_t)(image->width * image->height), channels = (size_t)image->channels;
    for (size_t c = 0; c < channels; c++) {
        float shift = mean ? mean[c] : 0, divisor = std ? std[c] : 1;
        for (size_t i = 0; i < pixels; i++)
            out[c * pixels + i] = ((float)image->pixels[i * channels + c] / 255 - shift) / divisor;
    }
}
