/* SPDX-License-Identifier: MIT
 *
 * structure.h - chains of residues. Readers fill them atom by atom, and are then aligned with a query.
 */
#ifndef ATTN_DATA_STRUCTURE_H
#define ATTN_DATA_STRUCTURE_H

#include "data/gemmi.h"
#include "data/proteins.h"
#include "base/context.h"

/* A position in a chain's sequence, with or without atoms in the file. */
typedef struct attn__position {
    char letter;     /* letter of the residue; 0: the residue is absent from the file and unknown */
    bool broken;     /* true: there is no bond to the previous position, so residues may be missing between the two */
    int64_t residue; /* index of the residue in the structure; -1: the residue is absent from the file */
} attn__position;

enum { ATTN__BACKBONE = 4 }; /* number of atoms of a residue that are needed for distances */

/* A residue in the form that is used while its chain is read. */
typedef struct attn__built_residue {
    attn_residue at;
    int64_t label; /* number in the entity's sequence in mmCIF, counted from 1; 0: there is none */
    char name[8];
    bool doubtful; /* true: the residue is a part of the chain only if a peptide bond binds it */
    attn__rank best, ranks[ATTN__BACKBONE]; /* best: the highest occupancy among all atoms of the residue */
} attn__built_residue;

typedef struct attn__chain {
    char *name;
    const char *key;            /* name of the sequence to which the chain belongs, while the file is read */
    attn__built_residue *built; /* [n]: the residues while the file is read; NULL afterwards */
    bool sure;                  /* true: the file names one of its residues as a residue of a protein */
    int64_t first, n;           /* range of the chain's residues in the structure */
    /* current: index of the residue of the last atom; highest: highest residue number so far */
    int64_t current, highest;
    attn__position *positions;
    int64_t length;
} attn__chain;

struct attn_structure {
    attn_context *context;
    attn__chain *chains;
    attn_residue *residues; /* residues of all chains; those of one chain are adjacent */
    int64_t nchains, n;
};

/* Removes the doubtful residues of a chain that no peptide bond binds to it. */
void attn__chain_drop_unbound(attn__chain *chain);
/* Computes chain->positions from the chain's residues and from the sequence with the chain's key. */
attn_status attn__chain_arrange(attn_context *context, const attn__gemmi *file, attn__chain *chain);

/* Finds the best local alignment of letters[n] with positions[m] (structure_align.c). to[i] becomes the position of
 * letter i, or -1. */
attn_status attn__structure_align(attn_context *context, const char *letters, int64_t n,
                                  const attn__position *positions, int64_t m, int64_t *to, int64_t *score);

#endif
