/* SPDX-License-Identifier: MIT
 *
 * The pre-tokenizers of tokenizer.json, which split a text into the pieces that the model sees one by one. */
#include "data/tokenizer/parts.h"

#include "base/utf8.h"
#include "data/tokenizer/unicode.h"

#include <string.h>

/* A place in a piece from which delimiters are searched. */
typedef struct scan {
    const attn__splitter *s;
    const char *bytes; /* of the piece */
    size_t size;
    int64_t steps;
} scan;

static uint32_t code_at(const scan *c, size_t at, size_t *length)
{
    uint32_t code = (unsigned char)c->bytes[at];
    *length = 1;
    if (code >= 0x80) {
        int n = attn__utf8_decode(c->bytes + at, c->bytes + c->size, &code);
        *length = n ? (size_t)n : 1;
    }
    return code;
}

static bool is_delimiter(const scan *c, uint32_t code)
{
    switch (c->s->kind) {
    case ATTN__SPLIT_SPACES:
        return attn__unicode_space(code);
    case ATTN__SPLIT_PUNCTUATION:
        return attn__unicode_punctuation(code);
    default: /* ATTN__SPLIT_DIGITS */
        return attn__unicode_numeric(code);
    }
}

/* 0: space, 1: word, 2: other. */
static int word_class(uint32_t code)
{
    return attn__unicode_word(code, true) ? 1 : attn__unicode_space(code) ? 0 : 2;
}

/* Finds the next match that begins at or after `from`. */
static bool find(scan *c, size_t from, size_t *begin, size_t *end)
{
    size_t length;
    if (c->s->kind == ATTN__SPLIT_PATTERN)
        return attn__regex_find(c->s->pattern, c->bytes, c->size, from, begin, end, &c->steps);
    if (c->s->kind == ATTN__SPLIT_METASPACE) {
        size_t n = strlen(c->s->content);
        for (size_t at = from; at + n <= c->size; at++) {
            if (memcmp(c->bytes + at, c->s->content, n) == 0) {
                *begin = at;
                *end = at + n;
                return true;
            }
        }
        return false;
    }
    for (size_t at = from; at < c->size; at += length) {
        uint32_t code = code_at(c, at, &length);
        if (c->s->kind != ATTN__SPLIT_WORDS) {
            if (!is_delimiter(c, code))
                continue;
            *begin = at;
            *end = at + length;
            return true;
        }
        int class = word_class(code);
        if (class == 0)
            continue;
        *begin = at;
        for (*end = at + length; *end < c->size && word_class(code_at(c, *end, &length)) == class;)
            *end += length;
        return true;
    }
    return false;
}

/* Receives the parts of a piece in order, and adds them to the pieces as the behavior tells. */
typedef struct sink {
    attn__pieces *out;
    attn__behavior behavior;
    size_t offset; /* of the piece in the text */
    size_t begin, end;
    bool open, match, invert; /* open: [begin, end) waits for what follows */
} sink;

static void flush(sink *k)
{
    if (k->open)
        attn__pieces_add(k->out, k->offset + k->begin, k->offset + k->end, -1);
    k->open = false;
}

static void receive(sink *k, size_t begin, size_t end, bool match)
{
    if (begin == end)
        return;
    match = match != k->invert;
    bool joins = false;
    switch (k->behavior) {
    case ATTN__SPLIT_REMOVED:
        if (match)
            return;
        break;
    case ATTN__SPLIT_ISOLATED:
        break;
    case ATTN__SPLIT_CONTIGUOUS:
        joins = k->open && k->match == match;
        break;
    case ATTN__SPLIT_MERGED_WITH_PREVIOUS:
        joins = k->open && match && !k->match;
        break;
    case ATTN__SPLIT_MERGED_WITH_NEXT:
        joins = k->open && !match && k->match;
        break;
    }
    if (!joins) {
        flush(k);
        k->begin = begin;
    }
    k->end = end;
    k->open = true;
    k->match = match;
}

static void split_piece(const attn__splitter *s, attn__pieces *out, size_t offset, size_t size)
{
    const char *bytes = out->text.bytes + offset;
    scan c = {.s = s, .bytes = bytes, .size = size, .steps = attn__regex_steps(size)};
    sink k = {.out = out, .behavior = s->behavior, .offset = offset, .invert = s->invert};
    size_t done = 0, begin, end;
    while (done < size && find(&c, done, &begin, &end)) {
        receive(&k, done, begin, false);
        receive(&k, begin, end, true);
        done = end;
    }
    receive(&k, done, size, false);
    flush(&k);
    if (c.steps <= 0 && out->text.status == ATTN_OK)
        out->text.status = attn__fail(
            out->text.context, ATTN_ERROR_FORMAT,
            "the pattern of the pre-tokenizer Split takes more than the limit of %lld steps for a text of %zu bytes",
            (long long)attn__regex_steps(size), size);
}

/* Writes the piece with the splitter's changes of its text. */
static void write_piece(const attn__splitter *s, attn__aligned_text *out, const attn__aligned_text *in,
                        const attn__piece *piece)
{
    if (s->kind == ATTN__SPLIT_BYTE_LEVEL) {
        attn__byte_level(out, in, piece->begin, piece->end);
        return;
    }
    attn__origin first = in->origins[piece->begin];
    if (s->kind == ATTN__SPLIT_SPACE_BEFORE) {
        if (in->bytes[piece->begin] != ' ')
            attn__aligned_append(out, " ", 1, first);
        attn__aligned_copy(out, in, piece->begin, piece->end);
        return;
    }
    size_t n = strlen(s->content), rest = piece->end - piece->begin;
    const char *bytes = in->bytes + piece->begin;
    bool has = bytes[0] == ' ' || (rest >= n && memcmp(bytes, s->content, n) == 0);
    if (!has && (s->prepend == ATTN__PREPEND_ALWAYS || (s->prepend == ATTN__PREPEND_FIRST && first.begin == 0)))
        attn__aligned_append(out, s->content, n, first);
    for (size_t i = piece->begin; i < piece->end; i++)
        if (in->bytes[i] == ' ')
            attn__aligned_append(out, s->content, n, in->origins[i]);
        else
            attn__aligned_copy(out, in, i, i + 1);
}

static bool changes_text(const attn__splitter *s)
{
    return s->kind == ATTN__SPLIT_BYTE_LEVEL || s->kind == ATTN__SPLIT_SPACE_BEFORE || s->kind == ATTN__SPLIT_METASPACE;
}

void attn__split(const attn__tokenizer *t, attn__pieces *pieces, attn__pieces *scratch)
{
    for (int64_t i = 0; i < t->nsplitters && pieces->text.status == ATTN_OK; i++) {
        const attn__splitter *s = &t->splitters[i];
        bool splits = s->kind != ATTN__SPLIT_BYTE_LEVEL && s->kind != ATTN__SPLIT_SPACE_BEFORE &&
                      !(s->kind == ATTN__SPLIT_METASPACE && s->whole);
        attn__pieces_clear(scratch);
        if (!changes_text(s))
            attn__aligned_swap(&scratch->text, &pieces->text);
        for (size_t j = 0; j < pieces->n && scratch->text.status == ATTN_OK; j++) {
            attn__piece piece = pieces->items[j];
            if (changes_text(s)) {
                size_t begin = scratch->text.n;
                if (piece.id < 0)
                    write_piece(s, &scratch->text, &pieces->text, &piece);
                else
                    attn__aligned_copy(&scratch->text, &pieces->text, piece.begin, piece.end);
                piece.begin = (uint32_t)begin;
                piece.end = (uint32_t)scratch->text.n;
            }
            if (piece.id < 0 && splits)
                split_piece(s, scratch, piece.begin, piece.end - piece.begin);
            else
                attn__pieces_add(scratch, piece.begin, piece.end, piece.id);
        }
        attn__pieces kept = *pieces;
        *pieces = *scratch;
        *scratch = kept;
    }
}
