/* SPDX-License-Identifier: MIT */
#include "base/utf8.h"

/* Returns the length in bytes of the UTF-8 sequence whose first byte is `lead`. Returns 0 if `lead` is a
 * continuation byte, or 0xf8 or more. */
static int sequence_length(unsigned lead)
{
    if (lead < 0x80)
        return 1;
    if (lead < 0xc0 || lead >= 0xf8)
        return 0;
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

int attn__utf8_decode(const char *text, const char *end, uint32_t *code)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned lead = (unsigned char)*text;
    int n = sequence_length(lead);
    if (n <= 1) {
        *code = lead;
        return n;
    }
    if (end - text < n)
        return 0;
    uint32_t value = lead & (0x7fu >> n);
    for (int i = 1; i < n; i++) {
        unsigned next = (unsigned char)text[i];
        if ((next & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (next & 0x3f);
    }
    *code = value;
    return value < smallest[n] || value > 0x10ffff || (value >= 0xd800 && value < 0xe000) ? 0 : n;
}

int attn__utf8_encode(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    int n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)((0xf00u >> n & 0xf0u) | code);
    return n;
}

size_t attn__utf8_first_invalid(const char *text, size_t size)
{
    const char *p = text, *end = text + size;
    while (p < end) {
        uint32_t code;
        int n = attn__utf8_decode(p, end, &code);
        if (!n)
            return (size_t)(p - text);
        p += n;
    }
    return SIZE_MAX;
}
