/* SPDX-License-Identifier: MIT
 *
 * Reads and writes lexicons as text, in the form of Marian's lexical shortlists. Each line is one entry: a target
 * token, a source token and a probability.
 */
#include "data/lexicon.h"

#include "base/real.h"
#include "base/utf8.h"
#include "data/lines.h"
#include "data/vocab.h"

#include <stdio.h>
#include <stdlib.h>

attn_lexicon *attn__lexicon_create(attn_context *context, const attn_vocab *source, const attn_vocab *target)
{
    attn_lexicon *made = attn__alloc_zero(context, sizeof *made);
    if (!made)
        return NULL;
    *made = (attn_lexicon){.context = context, .source = source, .target = target};
    made->begin = attn__alloc_zero(context, attn__size_mul((size_t)attn_vocab_size(source) + 1, sizeof *made->begin));
    if (made->begin)
        return made;
    attn_lexicon_destroy(made);
    return NULL;
}

void attn_lexicon_destroy(attn_lexicon *lexicon)
{
    if (!lexicon)
        return;
    attn__free(lexicon->context, lexicon->entries);
    attn__free(lexicon->context, lexicon->begin);
    attn__free(lexicon->context, lexicon);
}

int64_t attn_lexicon_size(const attn_lexicon *lexicon)
{
    return lexicon->n;
}

attn_status attn__lexicon_add(attn_lexicon *l, attn__lexicon_entry entry)
{
    attn__lexicon_entry *longer = attn__grow(l->context, l->entries, l->n, sizeof *longer);
    if (!longer)
        return ATTN_ERROR_MEMORY;
    l->entries = longer;
    l->entries[l->n++] = entry;
    return ATTN_OK;
}

static int compare(const void *a, const void *b)
{
    const attn__lexicon_entry *x = a, *y = b;
    if (x->source != y->source)
        return x->source < y->source ? -1 : 1;
    if (x->probability != y->probability)
        return x->probability > y->probability ? -1 : 1;
    return (x->target > y->target) - (x->target < y->target);
}

void attn__lexicon_sort(attn_lexicon *l)
{
    int64_t at = 0;
    if (l->n > 0)
        qsort(l->entries, (size_t)l->n, sizeof *l->entries, compare);
    for (int64_t s = 0; s <= attn_vocab_size(l->source); s++) {
        while (at < l->n && l->entries[at].source < s)
            at++;
        l->begin[s] = at;
    }
}

void attn__lexicon_mark(const attn_lexicon *l, int32_t source, int64_t best, unsigned char *marks)
{
    for (int64_t i = l->begin[source]; i < l->begin[source + 1] && i - l->begin[source] < best; i++)
        marks[l->entries[i].target] = 1;
}

/* --------------------------------------------------------------------------------------------- reading */

enum { MOST_LINE = 4096 };

/* The fields are terminated by 0 in `copy`. */
typedef struct reader {
    attn_lexicon *lexicon;
    const char *name;
    int64_t number;
    char copy[MOST_LINE + 1];
    char *field[3];
} reader;

static attn_status refuse(const reader *r, const char *what)
{
    return attn__fail(r->lexicon->context, ATTN_ERROR_FORMAT, "%s:%lld: %s", r->name, (long long)r->number, what);
}

/* Returns false if the line does not have three fields. */
static bool split(reader *r)
{
    char *at = r->copy;
    int n = 0;
    while (*(at += strspn(at, " \t")) && n < 3) {
        r->field[n++] = at;
        at += strcspn(at, " \t");
        if (*at)
            *at++ = '\0';
    }
    return n == 3 && !*at;
}

/* If the vocabulary does not have the token, records an error and returns -1. */
static int32_t token(const reader *r, const attn_vocab *vocab, const char *text, const char *side)
{
    int32_t id = attn__words_find(&vocab->words, text, strlen(text));
    if (id < 0)
        attn__fail(r->lexicon->context, ATTN_ERROR_FORMAT, "%s:%lld: \"%.64s\" is not a token of the %s vocabulary",
                   r->name, (long long)r->number, text, side);
    return id;
}

/* In these files, "NULL" is the empty word. Its entries are skipped, because a shortlist does not need them. */
static attn_status take_line(reader *r)
{
    if (!split(r))
        return refuse(r, "expected three fields: a target token, a source token and a probability");
    char *end;
    double probability = attn__real_of_text(r->field[2], &end);
    if (*end || end == r->field[2] || !(probability >= 0 && probability <= 1))
        return attn__fail(r->lexicon->context, ATTN_ERROR_FORMAT, "%s:%lld: \"%.64s\" is not a probability from 0 to 1",
                          r->name, (long long)r->number, r->field[2]);
    if (strcmp(r->field[0], "NULL") == 0 || strcmp(r->field[1], "NULL") == 0)
        return ATTN_OK;
    int32_t target = token(r, r->lexicon->target, r->field[0], "target");
    int32_t source = target < 0 ? -1 : token(r, r->lexicon->source, r->field[1], "source");
    return source < 0 ? ATTN_ERROR_FORMAT
                      : attn__lexicon_add(r->lexicon, (attn__lexicon_entry){source, target, (float)probability});
}

static attn_status read_line(reader *r, const char *line, size_t length)
{
    if (length > MOST_LINE)
        return attn__fail(r->lexicon->context, ATTN_ERROR_FORMAT,
                          "%s:%lld: the line has %zu bytes; at most %d are supported", r->name, (long long)r->number,
                          length, MOST_LINE);
    if (memchr(line, '\0', length))
        return refuse(r, "the line has a zero byte");
    size_t bad = attn__utf8_first_invalid(line, length);
    if (bad != SIZE_MAX)
        return attn__fail(r->lexicon->context, ATTN_ERROR_FORMAT, "%s:%lld: invalid UTF-8 at byte %zu", r->name,
                          (long long)r->number, bad + 1);
    memcpy(r->copy, line, length);
    r->copy[length] = '\0';
    return r->copy[strspn(r->copy, " \t")] ? take_line(r) : ATTN_OK;
}

attn_status attn_lexicon_parse(attn_lexicon **lexicon, attn_context *context, const char *text, size_t size,
                               const char *name, const attn_vocab *source, const attn_vocab *target)
{
    ATTN__CALL(context);
    reader r = {.lexicon = attn__lexicon_create(context, source, target), .name = name};
    attn_status status = r.lexicon ? ATTN_OK : ATTN_ERROR_MEMORY;
    const char *line;
    size_t length;
    *lexicon = NULL;
    for (size_t at = 0; status == ATTN_OK && attn__next_line(text, size, &at, &line, &length);) {
        r.number++;
        status = read_line(&r, line, length);
    }
    if (status == ATTN_OK && r.lexicon->n == 0)
        status = attn__fail(context, ATTN_ERROR_FORMAT, "%s: the lexicon has no entries", name);
    if (status != ATTN_OK) {
        attn_lexicon_destroy(r.lexicon);
        return status;
    }
    attn__lexicon_sort(r.lexicon);
    *lexicon = r.lexicon;
    return ATTN_OK;
}

/* --------------------------------------------------------------------------------------------- writing */

attn_status attn_lexicon_format(const attn_lexicon *l, attn_bytes *file)
{
    enum { NUMBER = 32 };
    size_t room = 1, used = 0;
    for (int64_t i = 0; i < l->n; i++)
        room += strlen(attn_vocab_token(l->target, l->entries[i].target)) +
                strlen(attn_vocab_token(l->source, l->entries[i].source)) + NUMBER;
    char *made = attn__alloc(l->context, room);
    *file = (attn_bytes){0};
    if (!made)
        return ATTN_ERROR_MEMORY;
    made[0] = '\0';
    for (int64_t i = 0; i < l->n; i++) {
        const attn__lexicon_entry *e = &l->entries[i];
        char number[NUMBER];
        snprintf(number, sizeof number, "%.7g", (double)e->probability);
        attn__text_points(number);
        used += (size_t)snprintf(made + used, room - used, "%s %s %s\n", attn_vocab_token(l->target, e->target),
                                 attn_vocab_token(l->source, e->source), number);
    }
    *file = (attn_bytes){made, used};
    return ATTN_OK;
}
