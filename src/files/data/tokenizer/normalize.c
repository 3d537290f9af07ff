/* SPDX-License-Identifier: MIT
 *
 * The normalizers of tokenizer.json. Each one writes a new text. A character that replaces another one, or that is
 * added, has the origin of the character from which it is made. */
#include "data/tokenizer/parts.h"

#include "base/utf8.h"
#include "data/tokenizer/unicode.h"

#include <string.h>

/* Reads the character at *at, moves *at behind it, and returns its code point. The text is valid UTF-8. */
static uint32_t next_code(const attn__aligned_text *in, size_t *at)
{
    uint32_t code;
    int n = attn__utf8_decode(in->bytes + *at, in->bytes + in->n, &code);
    *at += n ? (size_t)n : 1;
    return code;
}

static bool is_chinese(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
           (c >= 0x2a700 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) || (c >= 0xf900 && c <= 0xfaff) ||
           (c >= 0x2f800 && c <= 0x2fa1f);
}

/* Returns the character that Nmt makes of one, or UINT32_MAX if Nmt removes the character. */
static uint32_t nmt(uint32_t c)
{
    if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f)
        return UINT32_MAX;
    bool space = c == '\t' || c == '\n' || c == '\f' || c == '\r' || c == 0x1680 || (c >= 0x200b && c <= 0x200f) ||
                 c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd;
    return space ? ' ' : c;
}

/* Applies the normalizers that look at one character at a time. */
static void by_character(attn__normalizer_kind kind, attn__aligned_text *out, const attn__aligned_text *in)
{
    uint32_t lower[2];
    for (size_t at = 0; at < in->n;) {
        attn__origin origin = in->origins[at];
        uint32_t c = next_code(in, &at);
        switch (kind) {
        case ATTN__NORMALIZE_BERT_CLEAN:
            if (attn__unicode_space(c) && (!attn__unicode_control(c) || c == '\t' || c == '\n' || c == '\r'))
                attn__aligned_put(out, ' ', origin);
            else if (c != 0 && c != 0xfffd && !attn__unicode_control(c))
                attn__aligned_put(out, c, origin);
            break;
        case ATTN__NORMALIZE_BERT_CHINESE:
            if (is_chinese(c))
                attn__aligned_put(out, ' ', origin);
            attn__aligned_put(out, c, origin);
            if (is_chinese(c))
                attn__aligned_put(out, ' ', origin);
            break;
        case ATTN__NORMALIZE_BERT_ACCENTS:
            if (!attn__unicode_nonspacing(c))
                attn__aligned_put(out, c, origin);
            break;
        case ATTN__NORMALIZE_STRIP_ACCENTS:
            if (!attn__unicode_mark(c))
                attn__aligned_put(out, c, origin);
            break;
        case ATTN__NORMALIZE_LOWERCASE:
            for (int i = 0, n = attn__unicode_lower(c, lower); i < n; i++)
                attn__aligned_put(out, lower[i], origin);
            break;
        default: /* ATTN__NORMALIZE_NMT */
            c = nmt(c);
            if (c != UINT32_MAX)
                attn__aligned_put(out, c, origin);
        }
    }
}

/* --------------------------------------------------------------------------------------------- normal forms */

/* A letter replaces a character of the text (change = 0), or that character and the next -change ones, or was added
 * (change = 1). `tokenizers` keeps this number when marks are sorted, and finds origins by it. */
typedef struct letter {
    uint32_t code;
    int class, change;
} letter;

typedef struct letters {
    attn_context *context;
    letter *items, *sorted; /* sorted: room for a run of marks */
    size_t n, capacity;
} letters;

static bool add_letter(letters *l, uint32_t code, int change)
{
    if (l->n == l->capacity) {
        size_t capacity = 2 * l->capacity + 256;
        letter *items = attn__realloc(l->context, l->items, attn__size_mul(capacity, sizeof *items));
        if (!items)
            return false;
        l->items = items;
        l->capacity = capacity;
    }
    l->items[l->n++] = (letter){code, attn__unicode_combining_class(code), change};
    return true;
}

static attn_status decompose(letters *l, const attn__aligned_text *in, bool compatibility)
{
    for (size_t at = 0; at < in->n;) {
        uint32_t parts[ATTN__LONGEST_DECOMPOSITION];
        uint32_t code = next_code(in, &at);
        int n = attn__unicode_decompose(code, compatibility, parts);
        for (int i = 0; i < n; i++)
            if (!add_letter(l, parts[i], i > 0))
                return ATTN_ERROR_MEMORY;
    }
    return ATTN_OK;
}

/* Sorts each run of marks by combining class. Marks of one class keep their order. Counting keeps long runs fast. */
static attn_status order_marks(letters *l)
{
    for (size_t begin = 0; begin < l->n; begin++) {
        size_t end = begin, count[257] = {0};
        bool ordered = true;
        for (; end < l->n && l->items[end].class != 0; end++)
            ordered = ordered && (end == begin || l->items[end - 1].class <= l->items[end].class);
        if (!ordered) {
            if (!l->sorted)
                l->sorted = attn__alloc(l->context, attn__size_mul(l->n, sizeof *l->sorted));
            if (!l->sorted)
                return ATTN_ERROR_MEMORY;
            for (size_t i = begin; i < end; i++)
                count[l->items[i].class + 1]++;
            for (int i = 0; i < 256; i++)
                count[i + 1] += count[i];
            for (size_t i = begin; i < end; i++)
                l->sorted[count[l->items[i].class]++] = l->items[i];
            memcpy(l->items + begin, l->sorted, (end - begin) * sizeof *l->sorted);
        }
        begin = end > begin ? end - 1 : begin;
    }
    return ATTN_OK;
}

/* Composes in place (Unicode, definition D117). */
static void compose(letters *l)
{
    size_t n = 0, starter = SIZE_MAX;
    int last = -1; /* class of the last letter behind the starter; -1: none */
    for (size_t i = 0; i < l->n; i++) {
        letter this = l->items[i];
        bool blocked = last >= 0 && last >= this.class;
        uint32_t whole = starter != SIZE_MAX && !blocked ? attn__unicode_compose(l->items[starter].code, this.code) : 0;
        if (whole) {
            l->items[starter].code = whole;
            l->items[starter].change += this.change - 1;
            continue;
        }
        if (this.class == 0) {
            starter = n;
            last = -1;
        } else
            last = this.class;
        l->items[n++] = this;
    }
    l->n = n;
}

/* An added letter has the origin of the character before it. */
static void write_letters(const letters *l, attn__aligned_text *out, const attn__aligned_text *in)
{
    size_t at = 0;
    for (size_t i = 0; i < l->n; i++) {
        const letter *this = &l->items[i];
        size_t origin = this->change > 0 && at > 0 ? at - 1 : at < in->n ? at : in->n - 1;
        attn__aligned_put(out, this->code, in->origins[origin]);
        for (int taken = this->change > 0 ? 1 : this->change; taken <= 0 && at < in->n; taken++)
            next_code(in, &at);
    }
}

static bool is_ascii(const attn__aligned_text *in)
{
    unsigned char all = 0;
    for (size_t i = 0; i < in->n; i++)
        all |= (unsigned char)in->bytes[i];
    return all < 0x80;
}

static void normal_form(attn__aligned_text *out, const attn__aligned_text *in, bool compatibility, bool composed)
{
    if (is_ascii(in)) {
        attn__aligned_copy(out, in, 0, in->n);
        return;
    }
    letters l = {.context = in->context};
    attn_status status = decompose(&l, in, compatibility);
    if (status == ATTN_OK)
        status = order_marks(&l);
    if (status == ATTN_OK && composed)
        compose(&l);
    if (status == ATTN_OK)
        write_letters(&l, out, in);
    else
        out->status = status;
    attn__free(l.context, l.items);
    attn__free(l.context, l.sorted);
}

/* ------------------------------------------------------------------------------------------------ the others */

static void strip(const attn__normalize_step *n, attn__aligned_text *out, const attn__aligned_text *in)
{
    size_t begin = 0, end = in->n;
    for (size_t at = 0; n->left && at < in->n; begin = at)
        if (!attn__unicode_space(next_code(in, &at)))
            break;
    while (n->right && end > begin) {
        size_t at = end;
        do
            at--;
        while (((unsigned char)in->bytes[at] & 0xc0) == 0x80);
        size_t after = at;
        if (!attn__unicode_space(next_code(in, &after)))
            break;
        end = at;
    }
    attn__aligned_copy(out, in, begin, end);
}

static void replace(const attn__normalize_step *n, attn__aligned_text *out, const attn__aligned_text *in)
{
    size_t done = 0, begin, end;
    int64_t steps = attn__regex_steps(in->n);
    while (attn__regex_find(n->pattern, in->bytes, in->n, done, &begin, &end, &steps)) {
        attn__aligned_copy(out, in, done, begin);
        attn__aligned_append(out, n->content, n->content_size, in->origins[end - 1]);
        done = end;
    }
    attn__aligned_copy(out, in, done, in->n);
    if (steps <= 0 && out->status == ATTN_OK)
        out->status = attn__fail(
            out->context, ATTN_ERROR_FORMAT,
            "the pattern of the normalizer Replace takes more than the limit of %lld steps for a text of %zu bytes",
            (long long)attn__regex_steps(in->n), in->n);
}

/* Returns the replacement of the shortest prefix that the trie has, or NULL. Units are those of the library Darts. */
static const char *precompiled(const attn__normalize_step *n, const char *bytes, size_t size)
{
    size_t at = 0;
    for (size_t i = 0; i <= size; i++) {
        if (at >= n->nunits)
            return NULL;
        uint32_t unit = n->units[at];
        if (i > 0 && (unit & 0x800000ffu) != (unsigned char)bytes[i - 1])
            return NULL;
        at ^= (size_t)(unit >> 10) << ((unit & 0x200u) >> 6);
        if (i > 0 && (unit >> 8 & 1)) {
            size_t text = at < n->nunits ? n->units[at] & 0x7fffffffu : SIZE_MAX;
            return text < n->texts_size ? n->texts + text : NULL;
        }
        if (i == size || bytes[i] == '\0')
            return NULL;
        at ^= (unsigned char)bytes[i];
    }
    return NULL;
}

/* Writes the replacement of bytes [begin, end) of `in`. Its characters have the origins of the characters that they
 * replace, one by one; further characters have the origin of the last one. */
static void put_replacement(attn__aligned_text *out, const attn__aligned_text *in, size_t begin, size_t end,
                            const char *text)
{
    const char *stop = text + strlen(text);
    size_t at = begin, last = begin;
    while (text < stop) {
        uint32_t code;
        int n = attn__utf8_decode(text, stop, &code);
        if (at < end) {
            last = at;
            next_code(in, &at);
        }
        attn__aligned_put(out, n ? code : 0xfffd, in->origins[last]);
        text += n ? n : 1;
    }
}

/* Replaces grapheme clusters of less than 6 bytes, or else single characters, as `tokenizers` does. SentencePiece
 * itself replaces the longest prefix. */
static void precompile(const attn__normalize_step *n, attn__aligned_text *out, const attn__aligned_text *in)
{
    for (size_t begin = 0; begin < in->n;) {
        size_t end = begin;
        int32_t state = 0;
        uint32_t before = next_code(in, &end);
        while (end < in->n) {
            size_t after = end;
            uint32_t code = next_code(in, &after);
            if (attn__unicode_grapheme_ends(before, code, &state))
                break;
            before = code;
            end = after;
        }
        const char *whole = end - begin < 6 ? precompiled(n, in->bytes + begin, end - begin) : NULL;
        if (whole)
            put_replacement(out, in, begin, end, whole);
        for (size_t at = begin; at < end && !whole;) {
            size_t after = at;
            next_code(in, &after);
            const char *text = precompiled(n, in->bytes + at, after - at);
            if (text)
                put_replacement(out, in, at, after, text);
            else
                attn__aligned_copy(out, in, at, after);
            at = after;
        }
        begin = end;
    }
}

void attn__byte_level(attn__aligned_text *out, const attn__aligned_text *in, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) {
        unsigned byte = (unsigned char)in->bytes[i];
        uint32_t code = byte;
        /* bytes that are no printable characters of Latin-1 become U+0100 and up, in order */
        if (byte <= ' ')
            code = 0x100 + byte;
        else if (byte >= 0x7f && byte <= 0xa0)
            code = 0x121 + (byte - 0x7f);
        else if (byte == 0xad)
            code = 0x143;
        attn__aligned_put(out, code, in->origins[i]);
    }
}

void attn__normalize(const attn__tokenizer *t, attn__aligned_text *text, attn__aligned_text *scratch)
{
    for (int64_t i = 0; i < t->nnormalizers && text->status == ATTN_OK && text->n > 0; i++) {
        const attn__normalize_step *n = &t->normalizers[i];
        scratch->n = 0;
        attn__aligned_reserve(scratch, text->n + 16);
        switch (n->kind) {
        case ATTN__NORMALIZE_FORM:
            normal_form(scratch, text, n->compatibility, n->composed);
            break;
        case ATTN__NORMALIZE_STRIP:
            strip(n, scratch, text);
            break;
        case ATTN__NORMALIZE_REPLACE:
            replace(n, scratch, text);
            break;
        case ATTN__NORMALIZE_PREPEND:
            attn__aligned_append(scratch, n->content, n->content_size, text->origins[0]);
            attn__aligned_copy(scratch, text, 0, text->n);
            break;
        case ATTN__NORMALIZE_PRECOMPILED:
            precompile(n, scratch, text);
            break;
        case ATTN__NORMALIZE_BYTE_LEVEL:
            attn__byte_level(scratch, text, 0, text->n);
            break;
        default:
            by_character(n->kind, scratch, text);
        }
        attn__aligned_swap(text, scratch);
    }
}
