/* SPDX-License-Identifier: MIT
 *
 * structure.h - a chain as its readers fill it, atom by atom.
 */
#ifndef ATTN_DATA_STRUCTURE_H
#define ATTN_DATA_STRUCTURE_H

#include "attn/alignment.h"
#include "base/context.h"

enum { ATTN__CHAIN_NAME = 16 };

struct attn_structure {
    attn_context *context;
    char chain[ATTN__CHAIN_NAME];
    attn_residue *residues;
    int64_t n;
};

/* One atom record, as text left it. */
typedef struct attn__atom {
    char name[8], residue[8], chain[ATTN__CHAIN_NAME];
    char insertion; /* ' ' if none */
    int64_t number;
    double at[3];
    bool hetero; /* counts only if it belongs to a known variant of an amino acid */
} attn__atom;

/* A structure being read. */
typedef struct attn__structure_reading {
    attn_structure *structure;
    const char *source;
    const char *wanted; /* chain; NULL: the first one */
    int64_t line;
    char seen[160]; /* the chains met, for an error */
} attn__structure_reading;

attn_status attn__structure_add(attn__structure_reading *reading, const attn__atom *atom);
attn_status attn__structure_read_pdb(attn__structure_reading *reading, const char *text, size_t size);
attn_status attn__structure_read_cif(attn__structure_reading *reading, const char *text, size_t size);
bool attn__is_cif(const char *text, size_t size);

/* A decimal number that fills the text but for spaces, whatever the locale; false if it is none. */
bool attn__decimal(const char *text, size_t length, double *value);

#endif
