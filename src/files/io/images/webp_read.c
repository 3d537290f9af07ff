/* SPDX-License-Identifier: MIT
 * Reads WebP files with libwebp, if the build has libwebp. */
#include "io/images/image.h"

#include <string.h>
#ifdef ATTN_HAVE_WEBP
#include <webp/decode.h>
#endif

bool attn__webp_matches(const attn__input *input)
{
    return input->size >= 12 && memcmp(input->data, "RIFF", 4) == 0 && memcmp(input->data + 8, "WEBP", 4) == 0;
}

#ifdef ATTN_HAVE_WEBP

/* Returns the orientation in the EXIF chunk. A chunk has a name, a length, and that number of bytes. A padding byte
 * follows if the length is odd. */
static int orientation_of(const attn__input *input)
{
    size_t at = 12;
    while (at + 8 <= input->size) {
        size_t size = attn__read_u32(input->data + at + 4), room = input->size - at - 8;
        if (size > room)
            break;
        const uint8_t *data = input->data + at + 8;
        if (memcmp(input->data + at, "EXIF", 4) == 0)
            return attn__exif_orientation(data, size);
        at += 8 + size + (size & 1);
    }
    return 1;
}

static attn_status fail_damaged(const attn__input *input)
{
    return attn__input_fail(input, ATTN_ERROR_FORMAT, input->size, "webp: the file is damaged or cut off");
}

attn_status attn__webp_read(attn__raster *raster, const attn__input *input, int64_t limit)
{
    WebPBitstreamFeatures about;
    if (WebPGetFeatures(input->data, input->size, &about) != VP8_STATUS_OK || about.width < 1 || about.height < 1)
        return fail_damaged(input);
    if (about.has_animation)
        return attn__input_fail(input, ATTN_ERROR_UNSUPPORTED, 12, "webp: animations are not supported");
    int channels = about.has_alpha ? 4 : 3;
    attn_status status =
        attn__raster_begin(raster, input, (uint64_t)about.width, (uint64_t)about.height, channels, limit);
    if (status != ATTN_OK)
        return status;
    size_t line = (size_t)about.width * (size_t)channels, size = line * (size_t)about.height;
    const uint8_t *done = about.has_alpha
                              ? WebPDecodeRGBAInto(input->data, input->size, raster->pixels, size, (int)line)
                              : WebPDecodeRGBInto(input->data, input->size, raster->pixels, size, (int)line);
    return done ? attn__raster_orient(raster, input->context, orientation_of(input)) : fail_damaged(input);
}

#else

attn_status attn__webp_read(attn__raster *raster, const attn__input *input, int64_t limit)
{
    (void)raster;
    (void)limit;
    return attn__input_fail(input, ATTN_ERROR_UNSUPPORTED, 0,
                            "webp: this build has no libwebp; use PNG, JPEG, BMP or PNM");
}

#endif
