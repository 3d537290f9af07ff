/* SPDX-License-Identifier: MIT
 *
 * structure.h - chains of residues. Readers fill them atom by atom, and are then aligned with a query.
 */
#ifndef ATTN_DATA_STRUCTURE_H
#define ATTN_DATA_STRUCTURE_H

#include "data/proteins.h"
#include "base/context.h"

enum { ATTN__CHAIN_NAME = 16 };

/* A position in a chain's sequence, with or without atoms in the file. */
typedef struct attn__position {
    char letter;     /* letter of the residue; 0: the residue is absent from the file and unknown */
    bool broken;     /* true: there is no bond to the previous position, so residues may be missing between the two */
    int64_t residue; /* index of the residue in the structure; -1: the residue is absent from the file */
} attn__position;

/* Rank of an alternative location of an atom. The location with the highest occupancy is used. If occupancies are
 * equal, the first letter is used. */
typedef struct attn__rank {
    double occupancy;
    char alternative; /* ' ' if none */
} attn__rank;

enum { ATTN__BACKBONE = 4 }; /* number of atoms of a residue that are needed for distances */

/* A residue in the form that is used while its chain is read. */
typedef struct attn__built_residue {
    attn_residue at;
    int64_t label; /* number in the entity's sequence in mmCIF, counted from 1; 0: there is none */
    int64_t line;  /* number of the line of the residue's first atom */
    char name[8];
    attn__rank best, ranks[ATTN__BACKBONE]; /* best: the highest occupancy among all atoms of the residue */
} attn__built_residue;

typedef struct attn__chain {
    char name[ATTN__CHAIN_NAME], key[ATTN__CHAIN_NAME]; /* key: name of the sequence to which the chain belongs */
    attn__built_residue *built;                         /* [n]: the residues while the file is read; NULL afterwards */
    int64_t first, n;                                   /* range of the chain's residues in the structure */
    /* current: index of the residue of the last atom; highest: highest residue number so far */
    int64_t current, highest;
    attn__position *positions;
    int64_t length; /* number of positions */
} attn__chain;

/* A sequence that the file gives, in SEQRES or for an entity. */
typedef struct attn__chain_sequence {
    char key[ATTN__CHAIN_NAME];
    char *letters; /* the text is not terminated by 0 */
    int64_t n;
} attn__chain_sequence;

struct attn_structure {
    attn_context *context;
    attn__chain *chains;
    attn_residue *residues; /* residues of all chains; those of one chain are adjacent */
    int64_t nchains, n;
};

typedef struct attn__atom {
    char name[8], residue[8], chain[ATTN__CHAIN_NAME], key[ATTN__CHAIN_NAME];
    char insertion; /* ' ' if none */
    attn__rank rank;
    int64_t number, label;
    double at[3];
    /* index of the atom's name in the list of atoms that are needed for distances; set by attn__structure_add */
    int place;
    bool hetero; /* true: a HETATM record, which counts only if its residue is a known variant of an amino acid */
} attn__atom;

typedef struct attn__structure_reading {
    attn_structure *structure;
    const char *source;
    const char *wanted; /* name of the requested chain; NULL: all chains */
    int64_t line;
    attn__chain_sequence *sequences;
    int64_t nsequences;
    char seen[160]; /* names of the chains that were found, for error messages */
} attn__structure_reading;

attn_status attn__structure_add(attn__structure_reading *reading, attn__atom *atom);
/* Appends a residue to a sequence. `residue` is its three-letter name. Nucleotides are skipped. */
attn_status attn__structure_add_to_sequence(attn__structure_reading *reading, const char *key, const char *residue);
const attn__chain_sequence *attn__structure_sequence(const attn__structure_reading *reading,
                                                     const char *key); /* or NULL */
attn_status attn__structure_read_pdb(attn__structure_reading *reading, const char *text, size_t size);
attn_status attn__structure_read_cif(attn__structure_reading *reading, const char *text, size_t size);
bool attn__is_cif(const char *text, size_t size);

/* Computes chain->positions from the chain's residues and from the sequence with the chain's key. */
attn_status attn__chain_arrange(const attn__structure_reading *reading, attn__chain *chain);

/* Finds the best local alignment of letters[n] with positions[m] (structure_align.c). to[i] becomes the position of
 * letter i, or -1. */
attn_status attn__structure_align(attn_context *context, const char *letters, int64_t n,
                                  const attn__position *positions, int64_t m, int64_t *to, int64_t *score);

/* Parses a decimal number. The text may contain only the number and spaces. The result does not depend on the
 * locale. Returns false if the text is not a number. */
bool attn__decimal(const char *text, size_t length, double *value);

#endif
