/* SPDX-License-Identifier: MIT
 *
 * Reads the formats PGM and PPM of netpbm, as text (P2, P3) and as bytes (P5, P6), with samples up to 65535.
 */
#include "io/images/image.h"

#include <string.h>

typedef struct reader {
    const attn__input *input;
    size_t at;
    uint32_t most; /* value of a white sample */
} reader;

static bool is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Returns whether c is a supported format number, which is '2', '3', '5' or '6'. */
static bool is_kind(uint8_t c)
{
    return c == '2' || c == '3' || c == '5' || c == '6';
}

bool attn__pnm_matches(const attn__input *input)
{
    return input->size >= 3 && input->data[0] == 'P' && is_kind(input->data[1]) &&
           (is_space(input->data[2]) || input->data[2] == '#');
}

/* White space and comments before the number are skipped. A comment extends from # to the end of the line. */
static attn_status read_number(reader *r, uint32_t *value)
{
    const attn__input *in = r->input;
    while (r->at < in->size && (is_space(in->data[r->at]) || in->data[r->at] == '#')) {
        bool comment = in->data[r->at] == '#';
        do
            r->at++;
        while (comment && r->at < in->size && in->data[r->at] != '\n');
    }
    size_t start = r->at;
    for (*value = 0; r->at < in->size && in->data[r->at] >= '0' && in->data[r->at] <= '9'; r->at++) {
        *value = *value * 10 + (uint32_t)(in->data[r->at] - '0');
        if (*value > 100000000)
            return attn__input_fail(in, ATTN_ERROR_FORMAT, start, "pnm: a number is above 100000000, the limit");
    }
    if (r->at == in->size && start == r->at)
        return attn__input_fail(in, ATTN_ERROR_FORMAT, r->at, "pnm: the file is cut off");
    return start < r->at ? ATTN_OK
                         : attn__input_fail(in, ATTN_ERROR_FORMAT, r->at,
                                            "pnm: expected a number, found the byte 0x%02x", in->data[r->at]);
}

static unsigned char scaled(const reader *r, uint32_t value)
{
    return (unsigned char)((value * 255 + r->most / 2) / r->most);
}

static attn_status read_text(reader *r, unsigned char *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t value = 0;
        attn_status status = read_number(r, &value);
        if (status != ATTN_OK)
            return status;
        if (value > r->most)
            return attn__input_fail(r->input, ATTN_ERROR_FORMAT, r->at,
                                    "pnm: a sample is %u, above the file's maximum, %u", value, r->most);
        to[i] = scaled(r, value);
    }
    return ATTN_OK;
}

static attn_status read_bytes(reader *r, unsigned char *to, size_t n)
{
    size_t wide = r->most > 255 ? 2 : 1;
    const uint8_t *from = r->input->data + r->at;
    for (size_t i = 0; i < n; i++, from += wide) {
        uint32_t value = wide == 2 ? (uint32_t)from[0] << 8 | from[1] : from[0];
        if (value > r->most)
            return attn__input_fail(r->input, ATTN_ERROR_FORMAT, r->at + i * wide,
                                    "pnm: a sample is %u, above the file's maximum, %u", value, r->most);
        to[i] = scaled(r, value);
    }
    return ATTN_OK;
}

static attn_status read_header(reader *r, uint32_t *width, uint32_t *height)
{
    attn_status status = read_number(r, width);
    if (status == ATTN_OK)
        status = read_number(r, height);
    if (status == ATTN_OK)
        status = read_number(r, &r->most);
    if (status == ATTN_OK && (r->most < 1 || r->most > 65535))
        status = attn__input_fail(r->input, ATTN_ERROR_FORMAT, r->at,
                                  "pnm: the maximum sample is %u; it must be 1 to 65535", r->most);
    return status;
}

attn_status attn__pnm_read(attn__raster *raster, const attn__input *input, int64_t limit)
{
    reader r = {.input = input, .at = 2};
    uint32_t width = 0, height = 0;
    char kind = (char)input->data[1];
    bool text = kind == '2' || kind == '3';
    int channels = kind == '3' || kind == '6' ? 3 : 1;
    attn_status status = read_header(&r, &width, &height);
    if (status == ATTN_OK)
        status = attn__raster_check(input, width, height, limit);
    if (status != ATTN_OK)
        return status;
    r.at += !text; /* skip the single white-space character that precedes the bytes */
    size_t n = (size_t)width * height * (size_t)channels;
    /* least number of bytes of the samples; in text, a sample has at least one digit, and a space between two
     * samples */
    size_t least = text ? 2 * n - 1 : n * (r.most > 255 ? 2 : 1);
    if (r.at > input->size || input->size - r.at < least)
        return attn__input_fail(input, ATTN_ERROR_FORMAT, input->size, "pnm: the file is cut off");
    status = attn__raster_begin(raster, input, width, height, channels, limit);
    if (status != ATTN_OK)
        return status;
    return text ? read_text(&r, raster->pixels, n) : read_bytes(&r, raster->pixels, n);
}
