/* SPDX-License-Identifier: MIT
 *
 * fuzz.h - functions that all fuzz targets use. They make a context, and check at the end that all memory was freed.
 */
#ifndef ATTN_FUZZ_H
#define ATTN_FUZZ_H

#include "data/sentences.h"
#include "attn/io.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Makes a context with a fixed instruction set. Detecting the best set would take most of the time, and readers of
 * files compute nothing. */
static inline attn_context *fuzz_context(void)
{
    attn_context *context = NULL;
    if (attn_context_create(&context, &(attn_context_options){.threads = 1, .isa = "scalar"}) != ATTN_OK)
        abort();
    return context;
}

/* Destroys the context. If memory was leaked, or an input was refused without a message, aborts the program. */
static inline int fuzz_end(attn_context *context)
{
    size_t held = 0;
    attn_context_memory(context, &held, NULL, NULL);
    if (held != 0 || (attn_context_status(context) != ATTN_OK && !*attn_context_error(context)))
        abort();
    attn_context_destroy(context);
    return 0;
}

#endif
