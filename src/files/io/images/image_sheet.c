/* SPDX-License-Identifier: MIT */
#include "io/images/image.h"

#include <math.h>
#include <string.h>

static attn_status check(attn_context *context, const attn_image *images, int64_t n, int64_t gap, int64_t zoom)
{
    if (n < 1)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "a sheet of %lld images is requested; at least 1 is needed",
                          (long long)n);
    if (gap < 0 || gap > 1000)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "the distance between the images of a sheet is %lld pixels; it must be 0 to 1000",
                          (long long)gap);
    if (zoom < 0 || zoom > 1000)
        return attn__fail(context, ATTN_ERROR_ARGUMENT,
                          "the factor by which the images of a sheet are enlarged is %lld; it must be 0 to 1000",
                          (long long)zoom);
    for (int64_t i = 1; i < n; i++) {
        if (images[i].width != images[0].width || images[i].height != images[0].height ||
            images[i].channels != images[0].channels)
            return attn__fail(
                context, ATTN_ERROR_ARGUMENT,
                "the images of a sheet must have the same size and channels: images[%lld] has %lld x %lld x %d, but "
                "images[0] has %lld x %lld x %d",
                (long long)i, (long long)images[i].width, (long long)images[i].height, images[i].channels,
                (long long)images[0].width, (long long)images[0].height, images[0].channels);
    }
    return ATTN_OK;
}

static void place(attn_image *sheet, const attn_image *image, int64_t x0, int64_t y0, int64_t zoom)
{
    size_t channels = (size_t)image->channels;
    for (int64_t y = 0; y < image->height * zoom; y++) {
        for (int64_t x = 0; x < image->width * zoom; x++)
            memcpy(sheet->pixels + (size_t)((y0 + y) * sheet->width + x0 + x) * channels,
                   image->pixels + (size_t)(y / zoom * image->width + x / zoom) * channels, channels);
    }
}

attn_status attn_image_sheet(attn_image *sheet, attn_context *context, const attn_image *images, int64_t n,
                             int64_t columns, int64_t gap, int64_t zoom)
{
    ATTN__CALL(context);
    *sheet = (attn_image){0};
    attn_status status = check(context, images, n, gap, zoom);
    if (status != ATTN_OK)
        return status;
    zoom = zoom ? zoom : 1;
    columns = columns > 0 ? columns : (int64_t)ceil(sqrt((double)n));
    columns = columns < n ? columns : n;
    int64_t rows = (n + columns - 1) / columns;
    int64_t across = images->width * zoom + gap, down = images->height * zoom + gap;
    status = attn_image_alloc(sheet, context, columns * across + gap, rows * down + gap, images->channels);
    if (status != ATTN_OK)
        return status;
    memset(sheet->pixels, 255, (size_t)sheet->width * (size_t)sheet->height * (size_t)sheet->channels);
    for (int64_t i = 0; i < n; i++)
        place(sheet, &images[i], gap + i % columns * across, gap + i / columns * down, zoom);
    return ATTN_OK;
}
