/* SPDX-License-Identifier: MIT
 * Reads sentence pairs from tab-separated text. */
#include "data/pairs.h"

#include "base/hash.h"
#include "base/utf8.h"
#include "data/lines.h"

#include <inttypes.h>
#include <string.h>

attn_status attn__pairs_create(attn_pairs **pairs, attn_context *context, int64_t capacity)
{
    attn_pairs *p = attn__alloc_zero(context, sizeof *p);
    *pairs = NULL;
    if (!p)
        return ATTN_ERROR_MEMORY;
    p->context = context;
    p->capacity = capacity;
    p->items = attn__alloc(context, attn__size_mul((size_t)capacity, sizeof *p->items));
    p->hashes = attn__alloc(context, attn__size_mul((size_t)capacity, sizeof *p->hashes));
    p->links = attn__alloc_zero(context, attn__size_mul((size_t)capacity, sizeof *p->links));
    if (!p->items || !p->hashes || !p->links) {
        attn_pairs_destroy(p);
        return ATTN_ERROR_MEMORY;
    }
    *pairs = p;
    return ATTN_OK;
}

void attn_pairs_destroy(attn_pairs *pairs)
{
    if (!pairs)
        return;
    attn__free(pairs->context, pairs->text);
    attn__free(pairs->context, pairs->items);
    attn__free(pairs->context, pairs->hashes);
    attn__free(pairs->context, pairs->links);
    attn__free(pairs->context, pairs->link);
    attn__free(pairs->context, pairs);
}

void attn__pairs_copy(attn_pairs *part, const attn_pairs *all, int64_t i)
{
    part->items[part->n] = all->items[i];
    part->links[part->n] = all->links[i];
    part->hashes[part->n++] = all->hashes[i];
}

int64_t attn_pairs_size(const attn_pairs *pairs)
{
    return pairs->n;
}

attn_pair attn_pairs_get(const attn_pairs *pairs, int64_t i)
{
    return pairs->items[i];
}

const char *attn__pairs_side(const attn_pairs *pairs, int64_t i, attn_side side)
{
    return side == ATTN_SIDE_SOURCE ? pairs->items[i].source : pairs->items[i].target;
}

/* --------------------------------------------------------------------------------------------- reading */

typedef struct reader {
    attn_pairs *pairs;
    const char *name, *text;
    size_t size, at; /* size of the text, and offset of the next line */
    int64_t line;    /* number of the last line that was read, counted from 1 */
    int64_t most;    /* maximum number of non-empty lines that are used */
    attn_compat compat;
    size_t max_line;
    bool keep;
    attn_pairs_bad bad;
    char *out; /* address at which the next sentence is written */
} reader;

static attn_status fail_line(const reader *r, const char *what)
{
    return attn__fail(r->pairs->context, ATTN_ERROR_FORMAT, "%s:%" PRId64 ": %s", r->name, r->line, what);
}

/* Appends the text of one side of a pair to the stored sentences. If the normalized text is empty, *text becomes NULL.
 * *hash becomes the hash of the normalized text, even if the text is stored unchanged. */
static attn_status take_side(reader *r, const char *from, size_t length, const char **text, uint64_t *hash)
{
    size_t used = 0;
    attn_status status = attn_text_normalize(r->pairs->context, from, length, r->compat, r->out, 2 * length + 1, &used);
    *text = used ? r->out : NULL;
    *hash = used ? attn__hash_text(ATTN__HASH_BEGIN, r->out) : 0;
    if (r->keep && used) {
        while (*from == ' ')
            from++, length--;
        while (from[length - 1] == ' ')
            length--;
        memcpy(r->out, from, length);
        r->out[length] = '\0';
        used = length;
    }
    r->out += used + 1;
    return status;
}

static attn_status check_line(const reader *r, const char *line, size_t length)
{
    if (length > r->max_line)
        return attn__fail(r->pairs->context, ATTN_ERROR_FORMAT, "%s:%" PRId64 ": a line of %zu bytes, more than %zu",
                          r->name, r->line, length, r->max_line);
    size_t bad = attn__utf8_first_invalid(line, length);
    const char *zero = memchr(line, 0, length);
    if (bad != SIZE_MAX || zero)
        return attn__fail(r->pairs->context, ATTN_ERROR_FORMAT, "%s:%" PRId64 ": %s at byte %zu of the line", r->name,
                          r->line, bad != SIZE_MAX ? "invalid UTF-8" : "a zero byte",
                          bad != SIZE_MAX ? bad : (size_t)(zero - line));
    return ATTN_OK;
}

static attn_status take_line(reader *r, const char *line, size_t length)
{
    attn_status status = check_line(r, line, length);
    if (status != ATTN_OK)
        return status;
    const char *end = line + length, *tab = memchr(line, '\t', length);
    if (!tab)
        return fail_line(r, "no tab between two sentences");
    const char *second = tab + 1, *third = memchr(second, '\t', (size_t)(end - second));
    attn_pair *pair = &r->pairs->items[r->pairs->n];
    uint64_t unused;
    status = take_side(r, line, (size_t)(tab - line), &pair->source, &r->pairs->hashes[r->pairs->n]);
    if (status == ATTN_OK)
        status = take_side(r, second, (size_t)((third ? third : end) - second), &pair->target, &unused);
    if (status != ATTN_OK)
        return status;
    if (!pair->source || !pair->target)
        return fail_line(r, pair->source ? "nothing after the tab" : "nothing before the tab");
    r->pairs->n++;
    return ATTN_OK;
}

/* Skips an invalid line if the caller only counts such lines. Otherwise returns the error. */
static attn_status pass_over(const reader *r, attn_status status)
{
    attn_context *context = r->pairs->context;
    if (status != ATTN_ERROR_FORMAT || !r->bad.tell)
        return status;
    r->bad.tell(r->bad.user, r->line, attn_context_error(context));
    attn_context_clear_error(context);
    return ATTN_OK;
}

/* Counts the non-empty lines, but at most `most`. *bytes becomes the offset of the end of the last counted line. */
static int64_t count_lines(const char *text, size_t size, int64_t most, size_t *bytes)
{
    int64_t lines = 0;
    const char *line;
    size_t length;
    *bytes = 0;
    while (lines < most && attn__next_line(text, size, bytes, &line, &length))
        lines += length > 0;
    return lines;
}

static attn_status read_lines(reader *r)
{
    const char *line;
    size_t length;
    attn_status status = ATTN_OK;
    while (status == ATTN_OK && r->pairs->n < r->most && attn__next_line(r->text, r->size, &r->at, &line, &length)) {
        r->line++;
        if (length > 0)
            status = pass_over(r, take_line(r, line, length));
    }
    if (status == ATTN_OK && r->pairs->n == 0)
        status = attn__fail(r->pairs->context, ATTN_ERROR_FORMAT, "%s: no sentence pairs in it", r->name);
    return status;
}

attn_status attn_pairs_parse(attn_pairs **pairs, attn_context *context, const char *text, size_t size, const char *name,
                             const attn_pairs_options *options)
{
    attn__call_begin(context);
    static const attn_pairs_options defaults;
    const attn_pairs_options *o = options ? options : &defaults;
    *pairs = NULL;
    attn_status known = attn__check_choice(context, "compat", (int)o->compat, ATTN_COMPAT_D2L);
    if (known != ATTN_OK)
        return known;
    if (o->max_examples < 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "max_examples is negative: %" PRId64, o->max_examples);
    /* D2L compatibility uses one line more than the maximum, because it counts lines from 0. */
    int64_t most = o->max_examples ? o->max_examples + (o->compat == ATTN_COMPAT_D2L) : INT64_MAX;
    size_t bytes;
    int64_t lines = count_lines(text, size, o->bad.tell ? INT64_MAX : most, &bytes);
    reader r = {.name = name,
                .text = text,
                .size = size,
                .most = most,
                .compat = o->compat,
                .keep = o->keep_text,
                .bad = o->bad,
                .max_line = o->max_line ? o->max_line : 65536};
    attn_status status = attn__pairs_create(&r.pairs, context, lines + 1);
    if (status != ATTN_OK)
        return status;
    /* Normalization may insert a space before each byte. Each of the two sides ends with a 0. */
    r.out = r.pairs->text = attn__alloc(context, attn__size_add(attn__size_mul(bytes, 2), 2 * (size_t)lines + 2));
    status = r.out ? read_lines(&r) : ATTN_ERROR_MEMORY;
    r.pairs->lines = r.pairs->n < most ? r.pairs->n : count_lines(text, size, INT64_MAX, &bytes);
    if (status == ATTN_OK)
        *pairs = r.pairs;
    else
        attn_pairs_destroy(r.pairs);
    return status;
}
