/* SPDX-License-Identifier: MIT
 *
 * alignment.h - the internal form of alignments. A file is first read as records, which are then arranged as rows of
 * equal length.
 */
#ifndef ATTN_DATA_ALIGNMENT_H
#define ATTN_DATA_ALIGNMENT_H

#include "data/proteins.h"
#include "base/context.h"

struct attn_alignment {
    attn_context *context;
    attn_alignment_format format;
    int64_t rows, columns;
    char **names;
    char *cells; /* the rows, each with `columns` characters and a terminating 0 */
    char *query; /* all residues of the first sequence, including those that are in no column */
    /* [columns]: for each column, the number of the query's residue in it, counted from 1; 0: the query has a gap */
    int64_t *numbers;
};

/* A sequence as it is written in the file, with marks of insertions. */
typedef struct attn__record {
    char *name, *text; /* neither text is terminated by 0 */
    size_t length, capacity;
    int64_t line; /* number of the line at which the record begins */
} attn__record;

typedef struct attn__records {
    attn_context *context;
    const char *source; /* the file's name, for errors */
    attn__record *items;
    int64_t n;
    attn__record marks; /* marks of the columns in Stockholm's line #=GC RF; if its length is 0, the file has none */
    char *query;        /* all residues of the first sequence */
    /* for each character of the first sequence, without insertions: number of its residue; 0: the character is a gap */
    int64_t *numbers;
} attn__records;

/* Adds an empty record at the end of the list. Returns NULL on failure. */
attn__record *attn__record_add(attn__records *records, const char *name, size_t length, int64_t line);
/* White space in the line is skipped. ATTN_ERROR_FORMAT: the line has a character that is not allowed. */
attn_status attn__record_extend(attn__records *records, attn__record *record, const char *text, size_t length,
                                int64_t line);
void attn__records_clear(attn__records *records);

/* Reads a file whose records begin with '>'. attn__records_read_stockholm and attn__records_read_clustal read files
 * that consist of blocks. */
attn_status attn__records_read(attn__records *records, const char *text, size_t size, int64_t most);
attn_status attn__records_read_stockholm(attn__records *records, const char *text, size_t size, int64_t most);
attn_status attn__records_read_clustal(attn__records *records, const char *text, size_t size, int64_t most);
bool attn__is_records(const char *text, size_t size); /* whether the first record begins with '>' */
bool attn__is_clustal(const char *text, size_t size);
bool attn__is_stockholm(const char *text, size_t size);

/* Determines the format of a file whose records begin with '>'. */
attn_alignment_format attn__records_format(const attn__records *records);
/* The rows have no names yet. Returns NULL on failure. */
attn_alignment *attn__alignment_create(attn_context *context, attn_alignment_format format, int64_t rows,
                                       int64_t columns);

/* Counts the columns in which n residues of two rows differ. n must be at most 255, so that the sum fits in a byte, and
 * it must be known at compile time. The compiler then compares 16 residues at a time, on every instruction set. */
static inline int64_t attn__differing(const char *a, const char *b, int n)
{
    uint8_t differ = 0;
    for (int i = 0; i < n; i++)
        differ = (uint8_t)(differ + (a[i] != b[i]));
    return differ;
}

/* Counting stops when there are more than `most`. */
static inline int64_t attn__differing_columns(const char *a, const char *b, int64_t n, int64_t most)
{
    enum { LONG = 128, SHORT = 16 };
    int64_t differ = 0, c = 0;
    for (; c + LONG <= n && differ <= most; c += LONG)
        differ += attn__differing(a + c, b + c, LONG);
    for (; c + SHORT <= n && differ <= most; c += SHORT)
        differ += attn__differing(a + c, b + c, SHORT);
    for (; c < n && differ <= most; c++)
        differ += a[c] != b[c];
    return differ;
}

static inline char *attn__alignment_cells(const attn_alignment *alignment, int64_t row)
{
    return alignment->cells + row * (alignment->columns + 1);
}

#endif
