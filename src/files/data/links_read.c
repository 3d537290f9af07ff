/* SPDX-License-Identifier: MIT
 * Reads word alignments from lines in Pharaoh's form, as fast_align writes them. */
#include "data/lines.h"
#include "data/pairs.h"
#include "data/token_words.h"

typedef struct reader {
    attn_pairs *pairs;
    const attn_pairs *kept;
    attn_compat compat;
    const char *name;
    int64_t i; /* index of the current pair, and of its line */
    attn__prepared_words side[2];
    attn__link *link;
    int64_t n;
} reader;

static attn_status add(reader *r, int64_t source, int64_t target)
{
    attn__link *larger = attn__grow(r->pairs->context, r->link, r->n, sizeof *larger);
    if (!larger)
        return ATTN_ERROR_MEMORY;
    r->link = larger;
    r->link[r->n++] = (attn__link){(int32_t)source, (int32_t)target};
    return ATTN_OK;
}

/* Adds a link between each normalized word of the source word and each normalized word of the target word. */
static attn_status take_pair(reader *r, const int64_t words[2])
{
    const int64_t *from = r->side[ATTN_SIDE_SOURCE].first + words[0], *to = r->side[ATTN_SIDE_TARGET].first + words[1];
    attn_status status = ATTN_OK;
    for (int64_t s = from[0]; s < from[1]; s++)
        for (int64_t t = to[0]; t < to[1] && status == ATTN_OK; t++)
            status = add(r, s, t);
    return status;
}

/* Reads a number without a sign. If the number is too large for any sentence, one fixed large value is returned.
 * Returns false if there is no number. */
static bool take_number(const char **at, const char *end, int64_t *number)
{
    const char *begin = *at;
    for (*number = 0; *at < end && **at >= '0' && **at <= '9'; ++*at)
        *number = *number < 100000000 ? 10 * *number + (**at - '0') : 1000000000;
    return *at > begin;
}

static attn_status take_text(reader *r, const char *text, size_t length)
{
    static const char *const names[2] = {"source", "target"};
    const char *at = text, *end = text + length;
    int64_t words[2];
    int shown = (int)(length < 60 ? length : 60);
    if (!take_number(&at, end, &words[0]) || at == end || *at++ != '-' || !take_number(&at, end, &words[1]) || at < end)
        return attn__fail(r->pairs->context, ATTN_ERROR_FORMAT,
                          "%s:%lld: \"%.*s\" is not a pair of word numbers, source-target, such as 0-0", r->name,
                          (long long)r->i + 1, shown, text);
    for (int side = 0; side < 2; side++) {
        if (words[side] >= r->side[side].n)
            return attn__fail(
                r->pairs->context, ATTN_ERROR_FORMAT,
                "%s:%lld: \"%.*s\" names a word that the %s sentence does not have; the %lld words of the "
                "sentence are numbered from 0",
                r->name, (long long)r->i + 1, shown, text, names[side], (long long)r->side[side].n);
    }
    return take_pair(r, words);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static attn_status take_line(reader *r, const char *line, size_t length)
{
    attn_status status = ATTN_OK;
    for (int side = 0; side < 2 && status == ATTN_OK; side++)
        status = attn__prepared_words_fill(&r->side[side], attn__pairs_side(r->kept, r->i, (attn_side)side),
                                           r->kept == r->pairs, r->compat);
    for (size_t at = 0, end; at < length && status == ATTN_OK; at = end) {
        end = at + 1;
        if (is_blank(line[at]))
            continue;
        while (end < length && !is_blank(line[end]))
            end++;
        status = take_text(r, line + at, end - at);
    }
    return status;
}

static attn_status take_lines(reader *r, const char *text, size_t size)
{
    const char *line = "";
    size_t length = 0, at = 0;
    attn_status status = ATTN_OK;
    for (r->i = 0; r->i < r->pairs->n && status == ATTN_OK; r->i++) {
        int64_t before = r->n;
        attn__next_line(text, size, &at, &line, &length);
        status = take_line(r, line, length);
        r->pairs->links[r->i].n = r->n - before;
    }
    for (int64_t i = 0, begin = 0; i < r->pairs->n && status == ATTN_OK; begin += r->pairs->links[i++].n)
        r->pairs->links[i].items = r->link ? r->link + begin : NULL;
    return status;
}

attn_status attn__pairs_link(attn_pairs *pairs, const attn_pairs *kept, attn_compat compat, const char *text,
                             size_t size, const char *name)
{
    const char *line;
    size_t length;
    int64_t lines = 0;
    for (size_t at = 0; attn__next_line(text, size, &at, &line, &length);)
        lines++;
    if (lines != pairs->lines && lines != pairs->n)
        return attn__fail(
            pairs->context, ATTN_ERROR_FORMAT,
            "%s: found %lld lines of word alignments for %lld sentence pairs; expected one line for each pair", name,
            (long long)lines, (long long)pairs->lines);
    reader r = {.pairs = pairs,
                .kept = kept,
                .compat = compat,
                .name = name,
                .side = {{.context = pairs->context}, {.context = pairs->context}}};
    attn_status status = take_lines(&r, text, size);
    for (int side = 0; side < 2; side++)
        attn__prepared_words_free(&r.side[side]);
    pairs->link = r.link;
    return status;
}
