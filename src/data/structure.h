/* SPDX-License-Identifier: MIT
 *
 * structure.h - chains of residues, which the readers fill atom by atom and which alignments then read. */
#ifndef ATTN_DATA_STRUCTURE_H
#define ATTN_DATA_STRUCTURE_H

#include "data/proteins.h"
#include "base/context.h"

enum { ATTN__CHAIN_NAME = 16 };

/* A position in a chain's sequence, with or without atoms in the file. */
typedef struct attn__position {
    char letter;     /* letter of the residue; 0: an absent, unknown residue */
    bool broken;     /* no bond to the previous position: residues may be missing between the two */
    int64_t residue; /* index into the structure's residues; -1: absent */
} attn__position;

/* An alternative location. The location with the highest occupancy counts; the first letter wins ties. */
typedef struct attn__rank {
    double occupancy;
    char alternative; /* ' ' if none */
} attn__rank;

enum { ATTN__BACKBONE = 4 }; /* the atoms that are needed for distances */

/* A residue while its chain is read. */
typedef struct attn__built_residue {
    attn_residue at;
    int64_t label; /* mmCIF's number in the entity's sequence, from 1; 0: none */
    int64_t line;  /* line of its first atom */
    char name[8];
    attn__rank best, ranks[ATTN__BACKBONE]; /* best: highest occupancy of all its atoms */
} attn__built_residue;

typedef struct attn__chain {
    char name[ATTN__CHAIN_NAME], key[ATTN__CHAIN_NAME]; /* key: identifies its sequence */
    attn__built_residue *built;                         /* [n]; NULL once the structure is read */
    int64_t first, n;                                   /* range of its residues in the structure */
    int64_t current, highest;                           /* residue of the last atom; the highest residue number */
    attn__position *positions;
    int64_t length; /* number of positions */
} attn__chain;

/* The sequence of SEQRES or of an entity. */
typedef struct attn__chain_sequence {
    char key[ATTN__CHAIN_NAME];
    char *letters; /* the text is not terminated by 0 */
    int64_t n;
} attn__chain_sequence;

struct attn_structure {
    attn_context *context;
    attn__chain *chains;
    attn_residue *residues; /* residues of all chains, one chain after the other */
    int64_t nchains, n;
};

/* One atom record, as parsed from text. */
typedef struct attn__atom {
    char name[8], residue[8], chain[ATTN__CHAIN_NAME], key[ATTN__CHAIN_NAME];
    char insertion; /* ' ' if none */
    attn__rank rank;
    int64_t number, label;
    double at[3];
    int place;   /* index of its name among the atoms that are needed for distances; attn__structure_add sets it */
    bool hetero; /* counts only if it belongs to a known variant of an amino acid */
} attn__atom;

/* The state of reading a structure. */
typedef struct attn__structure_reading {
    attn_structure *structure;
    const char *source;
    const char *wanted; /* requested chain; NULL: all */
    int64_t line;
    attn__chain_sequence *sequences;
    int64_t nsequences;
    char seen[160]; /* names of the chains found, for an error */
} attn__structure_reading;

attn_status attn__structure_add(attn__structure_reading *reading, attn__atom *atom);
/* Adds the next residue of a sequence by its three-letter name. Nucleotides are skipped. */
attn_status attn__structure_add_to_sequence(attn__structure_reading *reading, const char *key, const char *residue);
const attn__chain_sequence *attn__structure_sequence(const attn__structure_reading *reading,
                                                     const char *key); /* or NULL */
attn_status attn__structure_read_pdb(attn__structure_reading *reading, const char *text, size_t size);
attn_status attn__structure_read_cif(attn__structure_reading *reading, const char *text, size_t size);
bool attn__is_cif(const char *text, size_t size);

/* Makes chain->positions from the chain's residues and the sequence of its key. */
attn_status attn__chain_arrange(const attn__structure_reading *reading, attn__chain *chain);

/* Finds the best local alignment of letters[n] with positions[m] (structure_align.c). to[i] is a position or -1. */
attn_status attn__structure_align(attn_context *context, const char *letters, int64_t n,
                                  const attn__position *positions, int64_t m, int64_t *to, int64_t *score);

/* Parses a decimal number that fills the text except for spaces, independently of the locale. Returns false if the text
 * is no number. */
bool attn__decimal(const char *text, size_t length, double *value);

#endif
