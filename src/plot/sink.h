/* SPDX-License-Identifier: MIT
 *
 * sink.h - a growing output buffer, to which pictures and pages are written.
 */
#ifndef ATTN_PLOT_SINK_H
#define ATTN_PLOT_SINK_H

#include "attn/plot.h"
#include "base/context.h"

typedef struct attn__sink {
    attn_context *context;
    attn_bytes *picture;
    size_t capacity;
    attn_status status; /* errors stick */
} attn__sink;

void attn__sink_put(attn__sink *sink, const void *data, size_t size);
void attn__sink_text(attn__sink *sink, const char *text);
void attn__sink_number(attn__sink *sink, double value);
/* Writes a text as a quoted JSON string that is safe inside an HTML script. If the text is NULL, writes null. */
void attn__sink_json(attn__sink *sink, const char *text);
void attn__sink_base64(attn__sink *sink, const void *data, size_t size);

#endif
