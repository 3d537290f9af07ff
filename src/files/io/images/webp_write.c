/* SPDX-License-Identifier: MIT
 * Writes animations as WebP files with libwebp and libwebpmux, if the build has these libraries. */
#include "io/images/image.h"

#ifdef ATTN_HAVE_WEBPMUX
#include <limits.h>
#include <webp/encode.h>
#include <webp/mux.h>

enum { MOST_SIDE = WEBP_MAX_DIMENSION };

static attn_status fail(attn_context *context, const char *path, const char *why)
{
    return attn__fail(context, ATTN_ERROR_INTERNAL, "%s: libwebp: %s", path, why);
}

/* Copies the samples of an image to a picture of libwebp, whose memory libwebp allocates. */
static bool import(WebPPicture *picture, attn_context *context, const attn_image *image)
{
    attn_image colours = {0};
    if (!WebPPictureInit(picture) || attn_image_convert(&colours, context, image, 3) != ATTN_OK)
        return false;
    picture->use_argb = 1;
    picture->width = (int)image->width;
    picture->height = (int)image->height;
    bool done = WebPPictureImportRGB(picture, colours.pixels, 3 * (int)image->width) != 0;
    attn_image_free(context, &colours);
    return done;
}

static attn_status add_frame(WebPAnimEncoder *encoder, attn_context *context, const attn_image *image, int at,
                             const char *path)
{
    WebPConfig lossless;
    WebPPicture picture = {0};
    if (!WebPConfigInit(&lossless) || !WebPConfigLosslessPreset(&lossless, 6))
        return fail(context, path, "this libwebp has another version than the one attn was built for");
    bool done = import(&picture, context, image);
    attn_status status = done ? ATTN_OK : attn__call_status(context);
    if (done && !WebPAnimEncoderAdd(encoder, &picture, at, &lossless))
        status = fail(context, path, WebPAnimEncoderGetError(encoder));
    else if (!done && status == ATTN_OK)
        status = attn__fail_memory(context, (size_t)picture.width * (size_t)picture.height * 4);
    WebPPictureFree(&picture);
    return status;
}

static attn_status assemble(WebPAnimEncoder *encoder, attn_context *context, const attn_image *images, int64_t n,
                            int milliseconds, const char *path)
{
    attn_status status = ATTN_OK;
    WebPData data;
    WebPDataInit(&data);
    for (int64_t i = 0; i < n && status == ATTN_OK; i++)
        status = add_frame(encoder, context, &images[i], (int)i * milliseconds, path);
    if (status == ATTN_OK &&
        (!WebPAnimEncoderAdd(encoder, NULL, (int)n * milliseconds, NULL) || !WebPAnimEncoderAssemble(encoder, &data)))
        status = fail(context, path, WebPAnimEncoderGetError(encoder));
    if (status == ATTN_OK)
        status = attn_file_write(context, path, data.bytes, data.size);
    WebPDataClear(&data);
    return status;
}

attn_status attn__webp_write(attn_context *context, const attn_image *images, int64_t n, int milliseconds,
                             const char *path)
{
    WebPAnimEncoderOptions options;
    if (images->width > MOST_SIDE || images->height > MOST_SIDE)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "%s: the frames have %lld x %lld pixels; WebP supports at most %d pixels a side", path,
                          (long long)images->width, (long long)images->height, (int)MOST_SIDE);
    if (n > INT_MAX / milliseconds)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "%s: the animation has %lld frames of %d ms; WebP supports at most 24 days", path,
                          (long long)n, milliseconds);
    if (!WebPAnimEncoderOptionsInit(&options))
        return fail(context, path, "this libwebp has another version than the one attn was built for");
    WebPAnimEncoder *encoder = WebPAnimEncoderNew((int)images->width, (int)images->height, &options);
    if (!encoder)
        return attn__fail_memory(context, sizeof options);
    attn_status status = assemble(encoder, context, images, n, milliseconds, path);
    WebPAnimEncoderDelete(encoder);
    return status;
}

#else

attn_status attn__webp_write(attn_context *context, const attn_image *images, int64_t n, int milliseconds,
                             const char *path)
{
    (void)images;
    (void)n;
    (void)milliseconds;
    return attn__fail(context, ATTN_ERROR_UNSUPPORTED,
                      "%s: this build has no libwebpmux; write the sheet as .png, .ppm or .pgm", path);
}

#endif
