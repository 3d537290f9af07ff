/* SPDX-License-Identifier: MIT
 *
 * Arranges the sequences of a file as rows of equal length. Which columns the rows have depends on the format.
 */
#include "data/alignment.h"
#include "base/downloaded.h"
#include "data/lines.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static bool is_gap(char c)
{
    return c == '-' || c == '.' || c == '~' || c == '_';
}

static char upper(char c)
{
    return is_gap(c) ? '-' : c == '*' ? 'X' : is_lower(c) ? (char)(c - 'a' + 'A') : c;
}

static bool is_insertion(char c)
{
    return is_lower(c) || c == '.' || c == '*';
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcasecmp(text + n - m, end) == 0;
}

static bool name_says(const char *source, const char *end)
{
    char zipped[16];
    snprintf(zipped, sizeof zipped, "%s.gz", end);
    return ends_with(source, end) || ends_with(source, zipped);
}

size_t attn_alignment_ending(const char *name)
{
    static const char *const endings[] = {".a3m", ".a2m", ".fasta", ".fas", ".fa",
                                          ".afa", ".pir", ".sto",   ".stk", ".aln"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (name_says(name, endings[i]))
            return strlen(endings[i]) + (ends_with(name, ".gz") ? 3 : 0);
    return 0;
}

bool attn_alignment_is(const char *text, size_t size)
{
    size = attn__without_final_nuls(text, size);
    return attn__is_stockholm(text, size) || attn__is_clustal(text, size) || attn__is_records(text, size);
}

/* Determines the format from the name or from the rows. If rows differ in length, the format is A3M. If rows have
 * equal length and contain '.' and lower-case letters, it is A2M or a FASTA file with dots for gaps. Such a FASTA
 * file is read as A2M, which gives the same columns if the query has no gaps. */
attn_alignment_format attn__records_format(const attn__records *records)
{
    if (name_says(records->source, ".a3m"))
        return ATTN_ALIGNMENT_A3M;
    if (name_says(records->source, ".a2m"))
        return ATTN_ALIGNMENT_A2M;
    bool dots = false, lower = false;
    for (int64_t i = 0; i < records->n; i++) {
        const attn__record *r = &records->items[i];
        if (r->length != records->items[0].length)
            return ATTN_ALIGNMENT_A3M;
        for (size_t c = 0; c < r->length; c++) {
            dots |= r->text[c] == '.';
            lower |= is_lower(r->text[c]);
        }
    }
    return dots && lower ? ATTN_ALIGNMENT_A2M : ATTN_ALIGNMENT_FASTA;
}

static void drop_insertions(attn__records *records)
{
    for (int64_t i = 0; i < records->n; i++) {
        attn__record *r = &records->items[i];
        size_t kept = 0;
        for (size_t c = 0; c < r->length; c++)
            if (!is_insertion(r->text[c]))
                r->text[kept++] = r->text[c];
        r->length = kept;
    }
}

static bool are_even(const attn__records *records)
{
    for (int64_t i = 1; i < records->n; i++)
        if (records->items[i].length != records->items[0].length)
            return false;
    return true;
}

static void cut(attn__record *record, size_t length)
{
    record->length = record->length < length ? record->length : length;
}

/* A stop is a '*' after the last residue of a row. If rows have equal length including their stops, each stop becomes a
 * gap, and columns at the end with only stops and gaps are removed. Otherwise the stop is removed from each row that
 * has one. */
static void drop_final_stops(attn__records *records)
{
    bool even = are_even(records);
    size_t longest = 0, stop = SIZE_MAX;
    for (int64_t i = 0; i < records->n; i++) {
        attn__record *r = &records->items[i];
        size_t end = r->length;
        while (end > 0 && (r->text[end - 1] == '*' || (even && is_gap(r->text[end - 1])))) {
            if (r->text[--end] == '*') {
                r->text[end] = '-';
                stop = end < stop ? end : stop;
            }
        }
        longest = end > longest ? end : longest;
        r->length = even ? r->length : end;
    }
    for (int64_t i = 0; even && stop != SIZE_MAX && i <= records->n; i++)
        cut(i < records->n ? &records->items[i] : &records->marks, longest > stop ? longest : stop);
}

/* Stores the residues of the first sequence, and the number of the residue at each of its characters. */
static attn_status number_query(attn__records *records, attn_alignment_format format)
{
    const attn__record *r = &records->items[0];
    int64_t n = 0;
    size_t kept = 0;
    records->query = attn__alloc(records->context, r->length + 1);
    records->numbers = attn__alloc(records->context, attn__size_mul(r->length + 1, sizeof *records->numbers));
    if (!records->query || !records->numbers)
        return ATTN_ERROR_MEMORY;
    for (size_t c = 0; c < r->length; c++) {
        bool inserted = format == ATTN_ALIGNMENT_A3M && is_insertion(r->text[c]);
        bool residue = !is_gap(r->text[c]) && !(inserted && r->text[c] == '*');
        if (residue)
            records->query[n++] = upper(r->text[c]);
        if (!inserted)
            records->numbers[kept++] = residue ? n : 0;
    }
    records->query[n] = 0;
    return ATTN_OK;
}

static attn_status check_lengths(const attn__records *records, attn_alignment_format format)
{
    const attn__record *first = &records->items[0];
    for (int64_t i = 0; i < records->n; i++) {
        const attn__record *r = &records->items[i];
        if (r->length == 0 && format == ATTN_ALIGNMENT_A3M && r->capacity > 0)
            return attn__fail(
                records->context, ATTN_ERROR_FORMAT,
                "%s:%" PRId64
                ": sequence '%.60s' has only lower-case residues, which are insertions in a3m; --format fasta reads "
                "them as columns",
                records->source, r->line, r->name);
        if (r->length == 0)
            return attn__fail(records->context, ATTN_ERROR_FORMAT, "%s:%" PRId64 ": sequence '%.60s' is empty",
                              records->source, r->line, r->name);
        if (r->length != first->length)
            return attn__fail(
                records->context, ATTN_ERROR_FORMAT,
                "%s:%" PRId64 ": sequence '%.60s' has %zu columns, but the first sequence has %zu%s", records->source,
                r->line, r->name, r->length, first->length,
                format == ATTN_ALIGNMENT_A3M
                    ? "; in a3m, lower-case letters, '.' and '*' are insertions, which do not count as columns"
                    : "; the sequences must be aligned");
    }
    return ATTN_OK;
}

/* Returns whether column c of the file is a column of the alignment. */
static bool is_column(const attn__records *records, attn_alignment_format format, bool query_columns, size_t c)
{
    char query = records->items[0].text[c];
    if (query_columns && is_gap(query))
        return false;
    switch (format) {
    case ATTN_ALIGNMENT_A2M:
        return query != '.';
    case ATTN_ALIGNMENT_STOCKHOLM:
        return records->marks.length ? records->marks.text[c] == 'X' : !is_gap(query);
    default:
        return true;
    }
}

static attn_status check_marks(const attn__records *records)
{
    if (records->marks.length == 0 || records->marks.length == records->items[0].length)
        return ATTN_OK;
    return attn__fail(records->context, ATTN_ERROR_FORMAT,
                      "%s: the line #=GC RF has %zu columns, but the sequences have %zu", records->source,
                      records->marks.length, records->items[0].length);
}

static attn_status check(attn__records *records, attn_alignment_format format)
{
    if (records->n == 0)
        return attn__fail(records->context, ATTN_ERROR_FORMAT, "%s: the file has no sequences", records->source);
    if (format != ATTN_ALIGNMENT_A3M)
        drop_final_stops(records);
    attn_status status = number_query(records, format);
    if (status != ATTN_OK)
        return status;
    if (format == ATTN_ALIGNMENT_A3M)
        drop_insertions(records);
    status = check_lengths(records, format);
    return status == ATTN_OK ? check_marks(records) : status;
}

attn_alignment *attn__alignment_create(attn_context *context, attn_alignment_format format, int64_t rows,
                                       int64_t columns)
{
    attn_alignment *a = attn__alloc_zero(context, sizeof *a);
    if (!a)
        return NULL;
    *a = (attn_alignment){.context = context, .format = format, .rows = rows, .columns = columns};
    a->names = attn__alloc_zero(context, attn__size_mul((size_t)rows, sizeof *a->names));
    a->cells = attn__alloc_zero(context, attn__size_mul((size_t)rows, (size_t)columns + 1));
    a->numbers = attn__alloc(context, attn__size_mul((size_t)columns, sizeof *a->numbers));
    if (!a->names || !a->cells || !a->numbers) {
        attn_alignment_destroy(a);
        return NULL;
    }
    return a;
}

/* Copies the file's columns that belong to the alignment into a row. */
static void fill(attn_alignment *a, attn__records *records, bool query_columns, int64_t row)
{
    char *to = attn__alignment_cells(a, row);
    const char *from = records->items[row].text;
    for (size_t c = 0; c < records->items[0].length; c++)
        if (is_column(records, a->format, query_columns, c))
            *to++ = upper(from[c]);
    a->names[row] = records->items[row].name;
    records->items[row].name = NULL;
}

static attn_status arrange(attn_alignment **alignment, attn__records *records, attn_alignment_format format,
                           bool query_columns)
{
    attn_status status = check(records, format);
    if (status != ATTN_OK)
        return status;
    int64_t columns = 0;
    for (size_t c = 0; c < records->items[0].length; c++)
        columns += is_column(records, format, query_columns, c);
    if (columns == 0)
        return attn__fail(records->context, ATTN_ERROR_FORMAT,
                          format == ATTN_ALIGNMENT_STOCKHOLM && records->marks.length
                              ? "%s: the line #=GC RF marks no residue of the query '%.60s' as a column"
                              : "%s: the query '%.60s' has only gaps, so that no columns are left",
                          records->source, records->items[0].name);
    attn_alignment *a = attn__alignment_create(records->context, format, records->n, columns);
    if (!a)
        return ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < records->n; i++)
        fill(a, records, query_columns, i);
    a->query = records->query;
    records->query = NULL;
    for (size_t c = 0, to = 0; c < records->items[0].length; c++)
        if (is_column(records, format, query_columns, c))
            a->numbers[to++] = records->numbers[c];
    *alignment = a;
    return ATTN_OK;
}

/* NUL bytes at its end are allowed, because databases of HH-suite (ffindex) end each alignment with a NUL byte. */
static attn_status check_nul(const attn__records *records, const char *text, size_t size)
{
    const char *nul = size ? memchr(text, 0, size) : NULL, *line;
    int64_t lines = 0;
    size_t length, at = 0;
    if (!nul)
        return ATTN_OK;
    while (at <= (size_t)(nul - text) && attn__next_line(text, size, &at, &line, &length))
        lines++;
    return attn__fail(
        records->context, ATTN_ERROR_FORMAT,
        "%s:%" PRId64
        ": found a zero byte; if the file is a database of alignments, extract one of them with ffindex_get",
        records->source, lines);
}

attn_status attn_alignment_parse(attn_alignment **alignment, attn_context *context, const char *text, size_t size,
                                 const char *name, const attn_alignment_options *options)
{
    ATTN__CALL(context);
    static const attn_alignment_options defaults;
    const attn_alignment_options *o = options ? options : &defaults;
    *alignment = NULL;
    attn_status known =
        attn__check_choice(context, "the format of an alignment", (int)o->format, ATTN_ALIGNMENT_CLUSTAL);
    if (known != ATTN_OK)
        return known;
    if (o->max_rows < 0)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "max_rows is negative: %" PRId64, o->max_rows);
    attn__records records = {.context = context, .source = name};
    int64_t most = o->max_rows ? o->max_rows : INT64_MAX;
    size_t mark = attn__byte_order_mark(text, size);
    text += mark;
    size = attn__without_final_nuls(text, size - mark);
    attn_status status = attn__check_downloaded(context, name, text, size);
    if (status == ATTN_OK)
        status = check_nul(&records, text, size);
    if (status != ATTN_OK)
        return status;
    attn_alignment_format format = o->format                        ? o->format
                                   : attn__is_stockholm(text, size) ? ATTN_ALIGNMENT_STOCKHOLM
                                   : attn__is_clustal(text, size)   ? ATTN_ALIGNMENT_CLUSTAL
                                                                    : ATTN_ALIGNMENT_ANY;
    status = format == ATTN_ALIGNMENT_STOCKHOLM ? attn__records_read_stockholm(&records, text, size, most)
             : format == ATTN_ALIGNMENT_CLUSTAL ? attn__records_read_clustal(&records, text, size, most)
                                                : attn__records_read(&records, text, size, most);
    if (status == ATTN_OK && format == ATTN_ALIGNMENT_ANY && records.n > 0)
        format = attn__records_format(&records);
    if (status == ATTN_OK)
        status = arrange(alignment, &records, format, o->query_columns);
    attn__records_clear(&records);
    return status;
}

void attn_alignment_destroy(attn_alignment *alignment)
{
    if (!alignment)
        return;
    for (int64_t i = 0; alignment->names && i < alignment->rows; i++)
        attn__free(alignment->context, alignment->names[i]);
    attn__free(alignment->context, alignment->names);
    attn__free(alignment->context, alignment->cells);
    attn__free(alignment->context, alignment->query);
    attn__free(alignment->context, alignment->numbers);
    attn__free(alignment->context, alignment);
}

attn_alignment_format attn_alignment_origin(const attn_alignment *alignment)
{
    return alignment->format;
}

int64_t attn_alignment_rows(const attn_alignment *alignment)
{
    return alignment->rows;
}

int64_t attn_alignment_columns(const attn_alignment *alignment)
{
    return alignment->columns;
}

const char *attn_alignment_name(const attn_alignment *alignment, int64_t i)
{
    return alignment->names[i];
}

const char *attn_alignment_query(const attn_alignment *alignment)
{
    return alignment->query;
}

int64_t attn_alignment_number(const attn_alignment *alignment, int64_t column)
{
    return alignment->numbers[column];
}

const char *attn_alignment_row(const attn_alignment *alignment, int64_t i)
{
    return attn__alignment_cells(alignment, i);
}
