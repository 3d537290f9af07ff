/* SPDX-License-Identifier: MIT
 * Reads the orientation of the camera from an EXIF block, and rotates pixels accordingly. The block has the structure
 * of TIFF 6.0, and the orientation is a tag of EXIF 2.3. */
#include "io/images/image.h"

#include <string.h>

enum { TAG_ORIENTATION = 0x0112, ENTRY = 12 };

/* Returns the bytes of a value of TIFF type 1 (BYTE), 3 (SHORT) or 4 (LONG). Returns 0 for other types. EXIF requires
 * SHORT for the orientation, but some programs write LONG. */
static int bytes_of(uint32_t type)
{
    return type == 1 ? 1 : type == 3 ? 2 : type == 4 ? 4 : 0;
}

static uint32_t number(const uint8_t *p, int bytes, bool big)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint32_t)p[i] << 8 * (big ? bytes - 1 - i : i);
    return value;
}

int attn__exif_orientation(const uint8_t *data, size_t size)
{
    /* six bytes, because the constant has an explicit zero and a terminating zero */
    static const uint8_t head[6] = "Exif\0";
    if (size > sizeof head && memcmp(data, head, sizeof head) == 0) {
        data += sizeof head;
        size -= sizeof head;
    }
    if (size < 8 || (memcmp(data, "MM\0*", 4) != 0 && memcmp(data, "II*\0", 4) != 0))
        return 1;
    bool big = data[0] == 'M';
    size_t at = number(data + 4, 4, big);
    if (at > size - 2)
        return 1;
    uint32_t entries = number(data + at, 2, big);
    for (at += 2; entries > 0 && size - at >= ENTRY; entries--, at += ENTRY) {
        int bytes = bytes_of(number(data + at + 2, 2, big));
        if (number(data + at, 2, big) != TAG_ORIENTATION || bytes == 0)
            continue;
        uint32_t value = number(data + at + 8, bytes, big);
        return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

/* Returns the index in `from` of the pixel that is at row y and column x after the rotation. Each orientation combines
 * up to three operations: transposing the picture, reversing its rows, and reversing its columns. */
static size_t source(const attn__raster *from, int orientation, int64_t y, int64_t x)
{
    static const struct way {
        /* rows: the order of the rows is reversed; columns: the order of the columns is reversed */
        bool transposed, rows, columns;
    } ways[9] = {{0}, {0, 0, 0}, {0, 0, 1}, {0, 1, 1}, {0, 1, 0}, {1, 0, 0}, {1, 1, 0}, {1, 1, 1}, {1, 0, 1}};
    struct way way = ways[orientation];
    int64_t row = way.transposed ? x : y, column = way.transposed ? y : x;
    row = way.rows ? from->height - 1 - row : row;
    column = way.columns ? from->width - 1 - column : column;
    return (size_t)(row * from->width + column);
}

attn_status attn__raster_orient(attn__raster *raster, attn_context *context, int orientation)
{
    if (orientation <= 1)
        return ATTN_OK;
    bool transposed = orientation >= 5;
    attn__raster to = {.channels = raster->channels,
                       .width = transposed ? raster->height : raster->width,
                       .height = transposed ? raster->width : raster->height};
    size_t channels = (size_t)to.channels;
    to.pixels = attn__alloc(context, (size_t)(to.width * to.height) * channels);
    if (!to.pixels)
        return ATTN_ERROR_MEMORY;
    unsigned char *pixel = to.pixels;
    for (int64_t y = 0; y < to.height; y++)
        for (int64_t x = 0; x < to.width; x++, pixel += channels)
            memcpy(pixel, raster->pixels + source(raster, orientation, y, x) * channels, channels);
    attn__free(context, raster->pixels);
    *raster = to;
    return ATTN_OK;
}
