/* SPDX-License-Identifier: MIT
 * Reads the sequences of a file as records. */
#include "data/alignment.h"
#include "data/lines.h"

#include <inttypes.h>

static char *copy_text(attn_context *context, const char *text, size_t length)
{
    char *copy = attn__alloc(context, length + 1);
    if (copy) {
        memcpy(copy, text, length);
        copy[length] = 0;
    }
    return copy;
}

attn__record *attn__record_add(attn__records *records, const char *name, size_t length, int64_t line)
{
    attn__record *items = attn__grow(records->context, records->items, records->n, sizeof *items);
    if (!items)
        return NULL;
    records->items = items;
    attn__record *record = &records->items[records->n];
    *record = (attn__record){.name = copy_text(records->context, name, length), .line = line};
    if (!record->name)
        return NULL;
    records->n++;
    return record;
}

static bool is_residue(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' || c == '.' || c == '*' || c == '~' || c == '_';
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == '\r';
}

static attn_status fail_character(const attn__records *records, char c, int64_t line, size_t column)
{
    unsigned char code = (unsigned char)c;
    if (code > ' ' && code < 127)
        return attn__fail(records->context, ATTN_ERROR_FORMAT, "%s:%" PRId64 ": '%c' at column %zu is not a residue",
                          records->source, line, c, column + 1);
    return attn__fail(records->context, ATTN_ERROR_FORMAT, "%s:%" PRId64 ": byte 0x%02x at column %zu is not a residue",
                      records->source, line, code, column + 1);
}

static attn_status reserve(attn__records *records, attn__record *record, size_t more)
{
    size_t need = attn__size_add(record->length, more);
    if (record->text && need <= record->capacity)
        return ATTN_OK;
    size_t capacity = attn__size_add(need, need / 2);
    char *text = attn__realloc(records->context, record->text, capacity);
    if (!text)
        return ATTN_ERROR_MEMORY;
    record->text = text;
    record->capacity = capacity;
    return ATTN_OK;
}

attn_status attn__record_extend(attn__records *records, attn__record *record, const char *text, size_t length,
                                int64_t line)
{
    attn_status status = reserve(records, record, length);
    if (status != ATTN_OK)
        return status;
    for (size_t i = 0; i < length; i++)
        if (is_residue(text[i]))
            record->text[record->length++] = text[i];
        else if (!is_space(text[i]))
            return fail_character(records, text[i], line, i);
    return ATTN_OK;
}

void attn__records_clear(attn__records *records)
{
    for (int64_t i = 0; i < records->n; i++) {
        attn__free(records->context, records->items[i].name);
        attn__free(records->context, records->items[i].text);
    }
    attn__free(records->context, records->items);
    attn__free(records->context, records->marks.text);
    attn__free(records->context, records->query);
    attn__free(records->context, records->numbers);
    *records = (attn__records){.context = records->context, .source = records->source};
}

static bool begins(const char *text, size_t length, const char *with)
{
    size_t n = strlen(with);
    return length >= n && memcmp(text, with, n) == 0;
}

/* Returns whether a record is not a sequence of the alignment. HH-suite also writes records for predicted structure,
 * confidences and a consensus. */
static bool is_extra(const char *name, size_t length)
{
    static const char *const kinds[] = {"ss_pred", "ss_conf", "ss_dssp", "ss_prob",
                                        "sa_dssp", "sa_pred", "aa_dssp", "aa_pred"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (begins(name, length, kinds[i]))
            return true;
    size_t word = 0;
    while (word < length && !is_space(name[word]))
        word++;
    size_t n = strlen("_consensus");
    return word >= n && begins(name + word - n, n, "_consensus");
}

typedef struct reading {
    attn__records *records;
    attn__record *record; /* the record to which the current lines belong; NULL: the lines are skipped */
    bool began;           /* true: the first '>' was read */
    enum { PLAIN, PIR_DESCRIPTION, PIR_SEQUENCE } next;
    int64_t line, most;
} reading;

/* Returns whether a name belongs to the format NBRF/PIR. A record of this format has a line ">P1;name", a line of
 * description, and a sequence that ends with '*'. */
static bool is_pir(const char *name, size_t length)
{
    static const char *const kinds[] = {"P1;", "F1;", "XX;", "DL;", "DC;", "RL;", "RC;", "N1;", "N3;"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (begins(name, length, kinds[i]))
            return true;
    return false;
}

/* Checks that the last sequence of a PIR file ends with '*'. If it does not, the file is probably a FASTA file whose
 * names look like those of PIR. Reading it as PIR would take its first lines for descriptions. */
static attn_status check_pir_end(const reading *r)
{
    return r->next == PLAIN
               ? ATTN_OK
               : attn__fail(
                     r->records->context, ATTN_ERROR_FORMAT,
                     "%s:%" PRId64
                     ": a PIR header (such as >P1;name) precedes the sequence, but no '*' ends the sequence; if the "
                     "file is FASTA, rename the sequence",
                     r->records->source, r->line);
}

static attn_status take_header(reading *r, const char *line, size_t length)
{
    line++, length--;
    while (length > 0 && is_space(line[length - 1]))
        length--;
    r->began = true;
    r->record = NULL;
    if (is_pir(line, length)) {
        line += 3, length -= 3;
        r->next = PIR_DESCRIPTION;
    }
    if (is_extra(line, length))
        return ATTN_OK;
    r->record = attn__record_add(r->records, line, length, r->line);
    return r->record ? ATTN_OK : ATTN_ERROR_MEMORY;
}

static attn_status take_residues(reading *r, const char *line, size_t length)
{
    const char *end = r->next == PIR_SEQUENCE ? memchr(line, '*', length) : NULL;
    attn_status status = ATTN_OK;
    if (r->record)
        status = attn__record_extend(r->records, r->record, line, end ? (size_t)(end - line) : length, r->line);
    if (end) {
        r->next = PLAIN;
        r->record = NULL; /* skip the following lines, which may be notes */
    }
    return status;
}

static bool is_comment(const reading *r, const char *line, size_t length)
{
    return line[0] == ';' || (!r->began && (line[0] == '#' || begins(line, length, "C;")));
}

static attn_status take_line(reading *r, const char *line, size_t length)
{
    if (length > 0 && line[0] == '>') {
        attn_status status = check_pir_end(r);
        return status == ATTN_OK ? take_header(r, line, length) : status;
    }
    if (r->next == PIR_DESCRIPTION) {
        r->next = PIR_SEQUENCE;
        return ATTN_OK;
    }
    size_t blank = 0;
    while (blank < length && is_space(line[blank]))
        blank++;
    if (blank == length || is_comment(r, line, length))
        return ATTN_OK;
    if (!r->began)
        return attn__fail(
            r->records->context, ATTN_ERROR_FORMAT,
            "%s:%" PRId64
            ": expected '>', \"# STOCKHOLM\" or \"CLUSTAL\" before the first sequence; PIR, a3m, FASTA, a2m, "
            "Stockholm and Clustal are supported",
            r->records->source, r->line);
    return take_residues(r, line, length);
}

bool attn__is_records(const char *text, size_t size)
{
    const reading r = {.line = 0};
    const char *line;
    size_t length, at = 0, blank = 0;
    while (attn__next_line(text, size, &at, &line, &length)) {
        for (blank = 0; blank < length && is_space(line[blank]);)
            blank++;
        if (blank < length && !is_comment(&r, line, length))
            return line[0] == '>';
    }
    return false;
}

attn_status attn__records_read(attn__records *records, const char *text, size_t size, int64_t most)
{
    reading r = {.records = records, .most = most};
    const char *line;
    size_t length, at = 0;
    attn_status status = ATTN_OK;
    while (status == ATTN_OK && attn__next_line(text, size, &at, &line, &length)) {
        r.line++;
        if (length > 0 && line[0] == '>' && records->n == most)
            break;
        status = take_line(&r, line, length);
    }
    return status == ATTN_OK ? check_pir_end(&r) : status;
}
