/* SPDX-License-Identifier: MIT
 *
 * alignment.h - the internal form of alignments: first records as read from a file, then rows of equal length. */
#ifndef ATTN_DATA_ALIGNMENT_H
#define ATTN_DATA_ALIGNMENT_H

#include "data/proteins.h"
#include "base/context.h"

struct attn_alignment {
    attn_context *context;
    attn_alignment_format format;
    int64_t rows, columns;
    char **names;
    char *cells;      /* rows of columns + 1 characters, each ended by 0 */
    char *query;      /* all residues of the first sequence, including residues without a column */
    int64_t *numbers; /* [columns]: index of the query's residue in the column, from 1; 0: a gap */
};

/* A sequence as it is written in the file, with marks of insertions. */
typedef struct attn__record {
    char *name, *text; /* the text is not terminated by 0 */
    size_t length, capacity;
    int64_t line; /* line number at which the record begins */
} attn__record;

typedef struct attn__records {
    attn_context *context;
    const char *source; /* the file's name, for errors */
    attn__record *items;
    int64_t n;
    attn__record marks; /* Stockholm's #=GC RF; length 0: none */
    char *query;        /* residues of the first sequence */
    int64_t *numbers;   /* for each character of the first sequence without insertions: the residue's number, or 0 */
} attn__records;

/* Adds a new record at the end. Returns NULL on failure. */
attn__record *attn__record_add(attn__records *records, const char *name, size_t length, int64_t line);
/* Appends the residues of a line to a record and skips white space. ATTN_ERROR_FORMAT: a character that is not
 * allowed. */
attn_status attn__record_extend(attn__records *records, attn__record *record, const char *text, size_t length,
                                int64_t line);
void attn__records_clear(attn__records *records);

/* Reads a file with records that begin with '>'. attn__records_read_stockholm and
 * attn__records_read_clustal read files of blocks. */
attn_status attn__records_read(attn__records *records, const char *text, size_t size, int64_t most);
attn_status attn__records_read_stockholm(attn__records *records, const char *text, size_t size, int64_t most);
attn_status attn__records_read_clustal(attn__records *records, const char *text, size_t size, int64_t most);
bool attn__is_clustal(const char *text, size_t size);
bool attn__is_stockholm(const char *text, size_t size);

/* Finds which of the '>' formats the records have. */
attn_alignment_format attn__records_format(const attn__records *records);
/* Creates an alignment with room for this many rows, without names. Returns NULL on failure. */
attn_alignment *attn__alignment_create(attn_context *context, attn_alignment_format format, int64_t rows,
                                       int64_t columns);

/* Counts the columns in which parts of two rows differ. n is at most 255 and known at compile time, so the sum fits in
 * a byte. The compiler then compares 16 residues at a time, on every instruction set. */
static inline int64_t attn__differing(const char *a, const char *b, int n)
{
    uint8_t differ = 0;
    for (int i = 0; i < n; i++)
        differ = (uint8_t)(differ + (a[i] != b[i]));
    return differ;
}

/* Counts the columns in which two rows differ. Counting stops when there are more than `most`. */
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
