/* SPDX-License-Identifier: MIT
 * Texts with the origins of their bytes, and lists of their parts. */
#include "data/tokenizer/parts.h"

#include "base/utf8.h"

#include <string.h>

bool attn__aligned_reserve(attn__aligned_text *text, size_t more)
{
    if (text->status != ATTN_OK)
        return false;
    if (text->n + more <= text->capacity)
        return true;
    size_t capacity = text->n + more + text->capacity;
    if (capacity < 256)
        capacity = 256;
    if (capacity > INT32_MAX) {
        text->status = attn__fail(text->context, ATTN_ERROR_ARGUMENT,
                                  "a normalized text needs more than the limit of 2147483647 bytes");
        return false;
    }
    char *bytes = attn__realloc(text->context, text->bytes, capacity);
    if (bytes)
        text->bytes = bytes;
    attn__origin *origins =
        bytes ? attn__realloc(text->context, text->origins, attn__size_mul(capacity, sizeof *origins)) : NULL;
    if (!origins) {
        text->status = ATTN_ERROR_MEMORY;
        return false;
    }
    text->origins = origins;
    text->capacity = capacity;
    return true;
}

void attn__aligned_put(attn__aligned_text *text, uint32_t code, attn__origin origin)
{
    if (!attn__aligned_reserve(text, 4))
        return;
    int n = attn__utf8_encode(code, text->bytes + text->n);
    for (int i = 0; i < n; i++)
        text->origins[text->n++] = origin;
}

void attn__aligned_append(attn__aligned_text *text, const char *bytes, size_t n, attn__origin origin)
{
    if (n == 0 || !attn__aligned_reserve(text, n))
        return;
    memcpy(text->bytes + text->n, bytes, n);
    for (size_t i = 0; i < n; i++)
        text->origins[text->n++] = origin;
}

void attn__aligned_copy(attn__aligned_text *text, const attn__aligned_text *from, size_t begin, size_t end)
{
    if (end <= begin || !attn__aligned_reserve(text, end - begin))
        return;
    memcpy(text->bytes + text->n, from->bytes + begin, end - begin);
    memcpy(text->origins + text->n, from->origins + begin, (end - begin) * sizeof *text->origins);
    text->n += end - begin;
}

/* Returns the length of the longest prefix that a valid sequence may have, at least 1 (Unicode, "maximal subpart"). */
static size_t invalid_length(const unsigned char *at, size_t n)
{
    unsigned lead = at[0], low = 0x80, high = 0xbf;
    size_t length = lead >= 0xc2 && lead < 0xe0   ? 2
                    : lead >= 0xe0 && lead < 0xf0 ? 3
                    : lead >= 0xf0 && lead < 0xf5 ? 4
                                                  : 1;
    if (lead == 0xe0)
        low = 0xa0;
    else if (lead == 0xed)
        high = 0x9f;
    else if (lead == 0xf0)
        low = 0x90;
    else if (lead == 0xf4)
        high = 0x8f;
    size_t i = 1;
    for (; i < length && i < n && at[i] >= low && at[i] <= high; i++)
        low = 0x80, high = 0xbf;
    return i;
}

void attn__aligned_decode(attn__aligned_text *text, const char *bytes, size_t n)
{
    if (!attn__aligned_reserve(text, n + 1))
        return;
    for (size_t i = 0; i < n;) {
        uint32_t code;
        size_t length = (size_t)attn__utf8_decode(bytes + i, bytes + n, &code);
        if (length == 0) {
            length = invalid_length((const unsigned char *)bytes + i, n - i);
            code = 0xfffd;
        }
        attn__aligned_put(text, code, (attn__origin){(uint32_t)i, (uint32_t)(i + length)});
        i += length;
    }
}

void attn__aligned_free(attn__aligned_text *text)
{
    attn__free(text->context, text->bytes);
    attn__free(text->context, text->origins);
    *text = (attn__aligned_text){.context = text->context};
}

void attn__aligned_swap(attn__aligned_text *a, attn__aligned_text *b)
{
    attn__aligned_text kept = *a;
    *a = *b;
    *b = kept;
}

void attn__pieces_add(attn__pieces *pieces, size_t begin, size_t end, int32_t id)
{
    if (begin == end || pieces->text.status != ATTN_OK)
        return;
    if (pieces->n == pieces->capacity) {
        size_t capacity = 2 * pieces->capacity + 64;
        attn__piece *items =
            attn__realloc(pieces->text.context, pieces->items, attn__size_mul(capacity, sizeof *items));
        if (!items) {
            pieces->text.status = ATTN_ERROR_MEMORY;
            return;
        }
        pieces->items = items;
        pieces->capacity = capacity;
    }
    pieces->items[pieces->n++] = (attn__piece){.begin = (uint32_t)begin, .end = (uint32_t)end, .id = id};
}

void attn__pieces_clear(attn__pieces *pieces)
{
    pieces->n = 0;
    pieces->text.n = 0;
}

void attn__pieces_free(attn__pieces *pieces)
{
    attn__free(pieces->text.context, pieces->items);
    attn__aligned_free(&pieces->text);
    pieces->items = NULL;
    pieces->n = pieces->capacity = 0;
}
