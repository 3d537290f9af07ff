/* SPDX-License-Identifier: MIT
 *
 * Tests the planner's wisdom. If it was read, it is written and read again.
 */
#include "fuzz.h"

#include <string.h>

static char *terminated(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    attn_context *context = fuzz_context(), *other = fuzz_context();
    char *text = terminated(data, size);
    if (attn_wisdom_import(context, text) == ATTN_OK) {
        size_t length = attn_wisdom_export(context, NULL, 0);
        char *first = malloc(length + 1), *second = malloc(length + 1);
        if (!first || !second || attn_wisdom_export(context, first, length + 1) != length ||
            attn_wisdom_import(other, first) != ATTN_OK || attn_wisdom_export(other, second, length + 1) != length ||
            strcmp(first, second) != 0)
            abort();
        free(first);
        free(second);
    } else if (!*attn_context_error(context)) {
        abort();
    }
    free(text);
    attn_context_destroy(context);
    attn_context_destroy(other);
    return 0;
}
