/* SPDX-License-Identifier: MIT */
#include "plot/sink.h"

#include "base/real.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void attn__sink_put(attn__sink *sink, const void *data, size_t size)
{
    attn_bytes *picture = sink->picture;
    size_t need = attn__size_add(picture->size, size);
    if (sink->status != ATTN_OK || size == 0)
        return;
    if (need >= sink->capacity) { /* a zero byte follows the last byte */
        size_t capacity = attn__size_add(need, need);
        void *larger = attn__realloc(sink->context, picture->data, capacity);
        if (!larger) {
            sink->status = ATTN_ERROR_MEMORY;
            return;
        }
        picture->data = larger;
        sink->capacity = capacity;
    }
    memcpy(picture->data + picture->size, data, size);
    picture->size = need;
    picture->data[need] = '\0';
}

void attn__sink_text(attn__sink *sink, const char *text)
{
    attn__sink_put(sink, text, strlen(text));
}

/* Six digits. */
void attn__sink_number(attn__sink *sink, double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.6g", isfinite(value) ? value : 0);
    attn__text_points(text);
    attn__sink_text(sink, text);
}

/* Writes a text as a JSON string. '<' is escaped, because it could end the script element of the HTML page. */
void attn__sink_json(attn__sink *sink, const char *text)
{
    if (!text) {
        attn__sink_text(sink, "null");
        return;
    }
    attn__sink_text(sink, "\"");
    for (const char *c = text; *c; c++) {
        char escaped[8];
        if (*c == '"' || *c == '\\' || *c == '<' || (unsigned char)*c < ' ') {
            snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)(unsigned char)*c);
            attn__sink_text(sink, escaped);
        } else {
            attn__sink_put(sink, c, 1);
        }
    }
    attn__sink_text(sink, "\"");
}

void attn__sink_base64(attn__sink *sink, const void *data, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *from = data;
    char block[1024];
    size_t used = 0;
    for (size_t i = 0; i < size; i += 3) {
        unsigned a = from[i], b = i + 1 < size ? from[i + 1] : 0, c = i + 2 < size ? from[i + 2] : 0;
        block[used++] = digits[a >> 2];
        block[used++] = digits[(a & 3) << 4 | b >> 4];
        block[used++] = i + 1 < size ? digits[(b & 15) << 2 | c >> 6] : '=';
        block[used++] = i + 2 < size ? digits[c & 63] : '=';
        if (used == sizeof block || i + 3 >= size) {
            attn__sink_put(sink, block, used);
            used = 0;
        }
    }
}
