/* SPDX-License-Identifier: MIT
 *
 * Reads BMP files without compression. They have 1, 4 or 8 bits per pixel and a palette, or 24 or 32 bits per pixel. */
#include "io/images/image.h"

#include <string.h>

enum { FILE_HEADER = 14, LEAST_HEADER = 40, BIT_FIELDS = 3, ALPHA_FIELDS = 6 };

typedef struct header {
    size_t pixels, palette; /* offset of the pixels in the file, and offset of the palette */
    uint32_t colours;
    int64_t width, height;
    bool down, alpha; /* down: the first row in the file is the top row; alpha: the fourth byte of a pixel is alpha */
    int bits;
} header;

bool attn__bmp_matches(const attn__input *input)
{
    return input->size >= 2 && input->data[0] == 'B' && input->data[1] == 'M';
}

static attn_status refuse(const attn__input *input, size_t offset, const char *what, long long found,
                          const char *wanted)
{
    return attn__input_fail(input, ATTN_ERROR_UNSUPPORTED, offset, "bmp: %s is %lld; supported: %s", what, found,
                            wanted);
}

/* Checks the header's bit masks of red, green, blue and alpha. Only the usual masks are accepted. */
static attn_status read_masks(const attn__input *input, size_t size, header *h)
{
    const uint8_t *p = input->data + FILE_HEADER + LEAST_HEADER;
    if (input->size < FILE_HEADER + LEAST_HEADER + 12)
        return attn__input_fail(input, ATTN_ERROR_FORMAT, input->size, "bmp: the header is cut off");
    bool four = size >= LEAST_HEADER + 16 && input->size >= FILE_HEADER + LEAST_HEADER + 16;
    if (h->bits != 32)
        return refuse(input, FILE_HEADER + LEAST_HEADER, "the number of bits a pixel with bit fields", h->bits, "32");
    if (attn__read_u32(p) != 0xff0000 || attn__read_u32(p + 4) != 0xff00 || attn__read_u32(p + 8) != 0xff)
        return attn__input_fail(
            input, ATTN_ERROR_UNSUPPORTED, FILE_HEADER + LEAST_HEADER,
            "bmp: the bit masks of red, green and blue are 0x%x, 0x%x and 0x%x; supported: 0xff0000, "
            "0xff00 and 0xff",
            attn__read_u32(p), attn__read_u32(p + 4), attn__read_u32(p + 8));
    h->alpha = four && attn__read_u32(p + 12) == 0xff000000;
    return ATTN_OK;
}

static attn_status read_header(const attn__input *input, header *h)
{
    const uint8_t *p = input->data;
    if (input->size < FILE_HEADER + LEAST_HEADER)
        return attn__input_fail(input, ATTN_ERROR_FORMAT, input->size, "bmp: the header is cut off");
    uint32_t size = attn__read_u32(p + 14), method = attn__read_u32(p + 30);
    int32_t height = (int32_t)attn__read_u32(p + 22);
    h->pixels = attn__read_u32(p + 10);
    h->palette = attn__size_add(FILE_HEADER, size);
    h->width = (int32_t)attn__read_u32(p + 18);
    h->height = height < 0 ? -(int64_t)height : height;
    h->down = height < 0;
    h->bits = attn__read_u16(p + 28);
    h->colours = attn__read_u32(p + 46);
    if (size < LEAST_HEADER)
        return refuse(input, FILE_HEADER, "the size of the header", size, "40 or more");
    if (h->bits != 1 && h->bits != 4 && h->bits != 8 && h->bits != 24 && h->bits != 32)
        return refuse(input, 28, "the number of bits a pixel", h->bits, "1, 4, 8, 24 or 32");
    if (method == BIT_FIELDS || method == ALPHA_FIELDS)
        return read_masks(input, size, h);
    return method == 0 ? ATTN_OK : refuse(input, 30, "the compression", method, "0 (none), 3 or 6 (bit fields)");
}

/* Rows are padded to a multiple of 4 bytes. */
static size_t row_bytes(const header *h)
{
    return ((size_t)h->width * (size_t)h->bits + 31) / 32 * 4;
}

static attn_status check(const attn__input *input, header *h, int64_t limit)
{
    if (h->width < 0)
        return attn__input_fail(input, ATTN_ERROR_FORMAT, 18, "bmp: the width is %lld; it must not be negative",
                                (long long)h->width);
    attn_status status = attn__raster_check(input, (uint64_t)h->width, (uint64_t)h->height, limit);
    if (status != ATTN_OK)
        return status;
    if (h->pixels > input->size || input->size - h->pixels < row_bytes(h) * (size_t)h->height)
        return attn__input_fail(input, ATTN_ERROR_FORMAT, input->size, "bmp: the file is cut off");
    if (h->bits > 8)
        return ATTN_OK;
    uint32_t most = (uint32_t)1 << h->bits;
    if (h->colours == 0)
        h->colours = most;
    if (h->colours > most)
        return attn__input_fail(input, ATTN_ERROR_FORMAT, 46,
                                "bmp: the palette has %u colours; with %d bits a pixel at most %u are possible",
                                h->colours, h->bits, most);
    if (h->palette > input->size || (input->size - h->palette) / 4 < h->colours)
        return attn__input_fail(input, ATTN_ERROR_FORMAT, 46, "bmp: the palette of %u colours is cut off", h->colours);
    return ATTN_OK;
}

static attn_status read_row(const attn__input *input, const header *h, const uint8_t *row, unsigned char *to)
{
    int step = h->alpha ? 4 : 3;
    for (int64_t x = 0; x < h->width; x++, to += step) {
        const uint8_t *pixel = row + x * h->bits / 8;
        if (h->bits <= 8) {
            unsigned shift = 8 - (unsigned)h->bits - (unsigned)(x * h->bits % 8);
            unsigned index = (unsigned)*pixel >> shift & ((1u << h->bits) - 1);
            if (index >= h->colours)
                return attn__input_fail(input, ATTN_ERROR_FORMAT, (size_t)(pixel - input->data),
                                        "bmp: a pixel has colour %u, but the palette has %u colours", index,
                                        h->colours);
            pixel = input->data + h->palette + 4 * (size_t)index;
        }
        to[0] = pixel[2], to[1] = pixel[1], to[2] = pixel[0];
        if (h->alpha)
            to[3] = pixel[3];
    }
    return ATTN_OK;
}

attn_status attn__bmp_read(attn__raster *raster, const attn__input *input, int64_t limit)
{
    header h = {0};
    attn_status status = read_header(input, &h);
    if (status == ATTN_OK)
        status = check(input, &h, limit);
    if (status == ATTN_OK)
        status = attn__raster_begin(raster, input, (uint64_t)h.width, (uint64_t)h.height, h.alpha ? 4 : 3, limit);
    size_t line = (size_t)h.width * (h.alpha ? 4 : 3);
    for (int64_t y = 0; y < h.height && status == ATTN_OK; y++) {
        int64_t from = h.down ? y : h.height - 1 - y;
        status = read_row(input, &h, input->data + h.pixels + (size_t)from * row_bytes(&h),
                          raster->pixels + (size_t)y * line);
    }
    return status;
}
