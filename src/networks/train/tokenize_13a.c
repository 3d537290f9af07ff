/* SPDX-License-Identifier: MIT
 *
 * Applies the rules of mteval-v13a. Each rule is one pass over the text and inserts spaces. After a match of two
 * characters, the next match begins after both, as in the original. This makes a difference for texts such as "a..". */
#include "train/tokenize_13a.h"

#include "base/context.h"

#include <string.h>

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool stop(char c)
{
    return c == '.' || c == ',';
}

/* Returns whether c is ASCII punctuation other than the apostrophe, comma, dash and period. */
static bool symbol(char c)
{
    return c != '\0' && strchr("{|}~[\\]^_` !\"#$%&()*+:;<=>?@/", c) != NULL;
}

/* A pass reads n bytes of `in`, writes `out`, which must be large enough, and returns the length of the output. */
typedef size_t pass(const char *in, size_t n, char *out);

static size_t symbols_apart(const char *in, size_t n, char *out)
{
    size_t o = 0;
    for (size_t i = 0; i < n; i++) {
        bool apart = symbol(in[i]);
        if (apart)
            out[o++] = ' ';
        out[o++] = in[i];
        if (apart)
            out[o++] = ' ';
    }
    return o;
}

static size_t stops_after_nondigits_apart(const char *in, size_t n, char *out)
{
    size_t o = 0;
    for (size_t i = 0; i < n; i++) {
        out[o++] = in[i];
        if (!digit(in[i]) && i + 1 < n && stop(in[i + 1])) {
            out[o++] = ' ';
            out[o++] = in[++i];
            out[o++] = ' ';
        }
    }
    return o;
}

static size_t stops_before_nondigits_apart(const char *in, size_t n, char *out)
{
    size_t o = 0;
    for (size_t i = 0; i < n; i++) {
        if (stop(in[i]) && i + 1 < n && !digit(in[i + 1])) {
            out[o++] = ' ';
            out[o++] = in[i++];
            out[o++] = ' ';
        }
        out[o++] = in[i];
    }
    return o;
}

static size_t dashes_after_digits_apart(const char *in, size_t n, char *out)
{
    size_t o = 0;
    for (size_t i = 0; i < n; i++) {
        out[o++] = in[i];
        if (digit(in[i]) && i + 1 < n && in[i + 1] == '-') {
            out[o++] = ' ';
            out[o++] = in[++i];
            out[o++] = ' ';
        }
    }
    return o;
}

/* Changes the text in place. Replaces entities such as "&lt;" by one ASCII character. Removes the mark of skipped
 * segments. Removes each hyphen at the end of a line, together with the line end. Returns the new length. */
static size_t resolve_entities(char *text, size_t n)
{
    static const struct {
        const char *entity, *text;
    } table[] = {{"<skipped>", ""}, {"-\n", ""}, {"&quot;", "\""}, {"&amp;", "&"}, {"&lt;", "<"}, {"&gt;", ">"}};
    for (size_t rule = 0; rule < sizeof table / sizeof *table; rule++) {
        size_t length = strlen(table[rule].entity), o = 0;
        for (size_t i = 0; i < n;) {
            if (n - i >= length && memcmp(text + i, table[rule].entity, length) == 0) {
                if (*table[rule].text)
                    text[o++] = *table[rule].text;
                i += length;
            } else {
                text[o++] = text[i++];
            }
        }
        n = o;
    }
    return n;
}

size_t attn__space_at(const char *s)
{
    unsigned char c = (unsigned char)s[0], d = c ? (unsigned char)s[1] : 0, e = d ? (unsigned char)s[2] : 0;
    if (c == ' ' || (c >= 9 && c <= 13) || (c >= 28 && c <= 31))
        return 1;
    if (c == 0xC2 && (d == 0x85 || d == 0xA0)) /* next line (U+0085) and no-break space (U+00A0) */
        return 2;
    if (c == 0xE1 && d == 0x9A && e == 0x80) /* ogham space */
        return 3;
    if (c == 0xE2 && d == 0x80 && (e <= 0x8A || e == 0xA8 || e == 0xA9 || e == 0xAF) && e >= 0x80) /* U+2000.. */
        return 3;
    return (c == 0xE2 && d == 0x81 && e == 0x9F) || (c == 0xE3 && d == 0x80 && e == 0x80) ? 3 : 0;
}

static size_t trimmed(const char *line)
{
    size_t n = 0;
    for (size_t i = 0, space; line[i]; i += space ? space : 1) {
        space = attn__space_at(line + i);
        n = space ? n : i + 1;
    }
    return n;
}

static void split(attn__tokens *words, char *text)
{
    while (*text) {
        size_t space = attn__space_at(text);
        if (space) {
            memset(text, 0, space);
            text += space;
            continue;
        }
        words->word[words->n++] = text;
        while (*text && !attn__space_at(text))
            text++;
    }
}

attn_status attn__tokenize_13a(attn__tokens *words, attn_context *context, const char *line)
{
    static pass *const passes[] = {symbols_apart, stops_after_nondigits_apart, stops_before_nondigits_apart,
                                   dashes_after_digits_apart};
    size_t n = trimmed(line);
    /* the buffer has 5n bytes, because each character can get at most two spaces before and two after it */
    size_t room = attn__size_add(attn__size_mul(n, 5), 16);
    *words = (attn__tokens){0};
    words->buffer = attn__alloc(context, room);
    char *other = attn__alloc(context, room);
    words->word = attn__alloc(context, attn__size_mul(room, sizeof *words->word) / 2);
    if (!words->buffer || !other || !words->word) {
        attn__free(context, other);
        attn__tokens_free(words, context);
        return ATTN_ERROR_MEMORY;
    }
    char *from = words->buffer, *to = other;
    from[0] = ' ';
    memcpy(from + 1, line, n);
    n = resolve_entities(from, n + 1);
    from[n++] = ' ';
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        n = passes[i](from, n, to);
        char *swap = from;
        from = to;
        to = swap;
    }
    from[n] = '\0'; /* four passes swap the buffers four times, so the text is in words->buffer again */
    attn__free(context, other);
    split(words, words->buffer);
    return ATTN_OK;
}

void attn__tokens_free(attn__tokens *words, attn_context *context)
{
    attn__free(context, words->buffer);
    attn__free(context, words->word);
    *words = (attn__tokens){0};
}
