/* SPDX-License-Identifier: MIT
 * Reads Stockholm and Clustal files. These have blocks of "name sequence" lines, and a sequence may continue in the
 * next block. */
#include "data/alignment.h"
#include "data/lines.h"

#include <inttypes.h>
#include <stdlib.h>

static const char begin[] = "# STOCKHOLM", marks[] = "#=GC RF";

static bool is_blank(const char *line, size_t length)
{
    size_t i = 0;
    while (i < length && (line[i] == ' ' || line[i] == '\t'))
        i++;
    return i == length;
}

bool attn__is_stockholm(const char *text, size_t size)
{
    const char *line;
    size_t length, at = 0;
    while (attn__next_line(text, size, &at, &line, &length))
        if (!is_blank(line, length))
            return length >= sizeof begin - 1 && memcmp(line, begin, sizeof begin - 1) == 0;
    return false;
}

/* Returns whether the line contains `words`, ignoring case. `words` must be in lower case. */
static bool holds(const char *line, size_t length, const char *words)
{
    size_t n = strlen(words), same;
    for (size_t at = 0; at + n <= length; at++) {
        for (same = 0; same < n && (line[at + same] | 0x20) == (words[same] | 0x20);)
            same++;
        if (same == n)
            return true;
    }
    return false;
}

/* A header begins with the name of the program that wrote the file. For nearly all programs, the line is recognized by
 * the words that follow the name. */
static bool is_header(const char *line, size_t length)
{
    static const char *const programs[] = {"clustal", "muscle", "probcons", "kalign", "msaprobs", "biopython"};
    if (length == 0 || line[0] == '>' || line[0] == '#')
        return false;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        size_t n = strlen(programs[i]);
        if (length >= n && holds(line, n, programs[i]) && (length == n || line[n] == ' ' || line[n] == '\t'))
            return true;
    }
    return holds(line, length, "clustal") || holds(line, length, "multiple sequence alignment");
}

/* Returns the number of lines up to and including the header, or 0 if there is no header. */
static int64_t header_lines(const char *text, size_t size)
{
    const char *line;
    size_t length, at = 0;
    int64_t lines = 1;
    for (; attn__next_line(text, size, &at, &line, &length); lines++)
        if (!is_blank(line, length))
            return is_header(line, length) ? lines : 0;
    return 0;
}

bool attn__is_clustal(const char *text, size_t size)
{
    return header_lines(text, size) > 0;
}

typedef struct reading {
    attn__records *records;
    int64_t line, most;
    int64_t at; /* index in the block of the sequence that is expected next */
    /* first: this is the first block of the file; inside: a sequence of the current block was read */
    bool first, inside;
} reading;

/* The search begins with the sequence that is expected next, because every known program writes the sequences of all
 * blocks in the same order. */
static attn__record *find(reading *r, const char *name, size_t length)
{
    attn__records *all = r->records;
    for (int64_t tried = 0; tried < all->n; tried++) {
        attn__record *record = &all->items[(r->at + tried) % all->n];
        if (strlen(record->name) == length && memcmp(record->name, name, length) == 0) {
            r->at = record - all->items + 1;
            return record;
        }
    }
    return NULL;
}

/* Only the first `most` sequences are kept. Later sequences are skipped in every block. */
static attn_status take_sequence(reading *r, const char *line, size_t length)
{
    size_t name = 0;
    while (name < length && line[name] != ' ' && line[name] != '\t')
        name++;
    size_t rest = name;
    while (rest < length && (line[rest] == ' ' || line[rest] == '\t'))
        rest++;
    r->inside = true;
    if (rest >= length)
        return attn__fail(r->records->context, ATTN_ERROR_FORMAT, "%s:%" PRId64 ": no sequence follows the name '%.*s'",
                          r->records->source, r->line, (int)(name < 60 ? name : 60), line);
    attn__record *record = NULL;
    if (r->first && r->records->n < r->most) {
        record = attn__record_add(r->records, line, name, r->line);
        if (!record)
            return ATTN_ERROR_MEMORY;
    } else if (!r->first) {
        record = find(r, line, name);
        if (!record && r->records->n < r->most)
            return attn__fail(
                r->records->context, ATTN_ERROR_FORMAT,
                "%s:%" PRId64
                ": the sequence '%.*s' is missing in the first block; all blocks must have the same sequences",
                r->records->source, r->line, (int)(name < 60 ? name : 60), line);
    }
    return record ? attn__record_extend(r->records, record, line + rest, length - rest, r->line) : ATTN_OK;
}

/* Reads the marks of an RF line. RF may contain any characters, but only gaps differ in meaning. A gap is stored as
 * '.', and any other mark as 'X'. */
static attn_status take_marks(reading *r, const char *line, size_t length)
{
    attn_status status = ATTN_OK;
    for (size_t i = sizeof marks - 1; i < length && status == ATTN_OK; i++) {
        if (line[i] != ' ' && line[i] != '\t') {
            char mark = strchr(".-_~", line[i]) ? '.' : 'X';
            status = attn__record_extend(r->records, &r->records->marks, &mark, 1, r->line);
        }
    }
    return status;
}

static attn_status take_line(reading *r, const char *line, size_t length)
{
    if (is_blank(line, length)) {
        r->first = r->first && !r->inside;
        r->inside = false;
        r->at = 0;
        return ATTN_OK;
    }
    if (line[0] != '#')
        return take_sequence(r, line, length);
    bool marked = length > sizeof marks - 1 && memcmp(line, marks, sizeof marks - 1) == 0;
    return marked ? take_marks(r, line, length) : ATTN_OK;
}

/* Checks that only white space follows the end of the alignment. */
static attn_status check_end(reading *r, const char *text, size_t size, size_t at)
{
    const char *line;
    size_t length;
    while (attn__next_line(text, size, &at, &line, &length)) {
        r->line++;
        if (attn__is_stockholm(line, length))
            return attn__fail(r->records->context, ATTN_ERROR_FORMAT,
                              "%s:%" PRId64
                              ": found a second alignment, but a file must hold only one; split the file at the "
                              "lines //",
                              r->records->source, r->line);
        if (!is_blank(line, length))
            return attn__fail(r->records->context, ATTN_ERROR_FORMAT,
                              "%s:%" PRId64 ": found text after the line //, which ends the alignment",
                              r->records->source, r->line);
    }
    return ATTN_OK;
}

static int by_name(const void *a, const void *b)
{
    const attn__record *x = *(const attn__record *const *)a, *y = *(const attn__record *const *)b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->line > y->line) - (x->line < y->line);
}

/* Checks that no two sequences have the same name, because a name identifies one sequence in all blocks. */
static attn_status check_names(const attn__records *records)
{
    const attn__record **sorted = attn__alloc(records->context, attn__size_mul((size_t)records->n, sizeof *sorted));
    if (!sorted)
        return ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < records->n; i++)
        sorted[i] = &records->items[i];
    if (records->n > 0)
        qsort(sorted, (size_t)records->n, sizeof *sorted, by_name);
    attn_status status = ATTN_OK;
    for (int64_t i = 1; i < records->n && status == ATTN_OK; i++) {
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            status =
                attn__fail(records->context, ATTN_ERROR_FORMAT,
                           "%s:%" PRId64 ": found a second sequence of the name '%.60s'; the first is in line %" PRId64,
                           records->source, sorted[i]->line, sorted[i]->name, sorted[i - 1]->line);
    }
    attn__free(records->context, sorted);
    return status;
}

/* The line may end with the number of residues read so far, which is ignored. */
static attn_status take_clustal_line(reading *r, const char *line, size_t length)
{
    while (length > 0 && (line[length - 1] == ' ' || line[length - 1] == '\t'))
        length--;
    if (length == 0)
        return take_line(r, line, 0);
    if (line[0] == ' ' || line[0] == '\t')
        return ATTN_OK; /* skip the line that marks the agreement of the columns */
    size_t digits = length;
    while (digits > 0 && line[digits - 1] >= '0' && line[digits - 1] <= '9')
        digits--;
    if (digits < length && digits > 0 && (line[digits - 1] == ' ' || line[digits - 1] == '\t'))
        length = digits - 1;
    return take_sequence(r, line, length);
}

attn_status attn__records_read_clustal(attn__records *records, const char *text, size_t size, int64_t most)
{
    reading r = {.records = records, .most = most, .first = true};
    const char *line;
    size_t length, at = 0;
    attn_status status = ATTN_OK;
    int64_t header = header_lines(text, size);
    header = header ? header : 1; /* if no known header is found, the first line is the header of an unknown program */
    while (status == ATTN_OK && attn__next_line(text, size, &at, &line, &length))
        if (++r.line > header)
            status = take_clustal_line(&r, line, length);
    return status == ATTN_OK ? check_names(records) : status;
}

attn_status attn__records_read_stockholm(attn__records *records, const char *text, size_t size, int64_t most)
{
    reading r = {.records = records, .most = most, .first = true};
    const char *line;
    size_t length, at = 0;
    attn_status status = ATTN_OK;
    while (status == ATTN_OK && attn__next_line(text, size, &at, &line, &length)) {
        r.line++;
        if (length >= 2 && line[0] == '/' && line[1] == '/')
            break;
        status = take_line(&r, line, length);
    }
    if (status == ATTN_OK)
        status = check_end(&r, text, size, at);
    return status == ATTN_OK ? check_names(records) : status;
}
