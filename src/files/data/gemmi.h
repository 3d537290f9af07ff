/* SPDX-License-Identifier: MIT
 *
 * gemmi.h - C functions of the gemmi library (Wojdyr 2022, doi:10.21105/joss.04200), which reads PDB and mmCIF files.
 * Only gemmi.cc uses the library. No function throws an exception. If the result is not ATTN__GEMMI_OK, `message`, a
 * buffer of ATTN__GEMMI_MESSAGE bytes, describes the error: it continues a message that begins with the file's name and
 * a colon. */
#ifndef ATTN_DATA_GEMMI_H
#define ATTN_DATA_GEMMI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ATTN__GEMMI_MESSAGE = 512 };
typedef enum attn__gemmi_result {
    ATTN__GEMMI_OK = 0,
    ATTN__GEMMI_REFUSED,
    ATTN__GEMMI_NO_MEMORY,
    ATTN__GEMMI_ABSENT /* attn was built without the library (no_gemmi.c) */
} attn__gemmi_result;

/* Rank of an alternative location of an atom. The location with the highest occupancy is used. If occupancies are
 * equal, the first letter is used. */
typedef struct attn__rank {
    double occupancy;
    char alternative; /* ' ' if none */
} attn__rank;

/* An atom N, CA, C or CB of a residue. */
typedef struct attn__atom {
    int place;               /* index of the atom's name in the list N, CA, C, CB */
    char residue[8], letter; /* name and one-letter code of the residue */
    const char *chain, *key; /* key: name of the sequence to which the chain belongs. Both are the file's. */
    int64_t number;          /* number of the residue in the file */
    char insertion;          /* ' ' if none */
    int64_t label;           /* number in the entity's sequence in mmCIF, counted from 1; 0: there is none */
    attn__rank rank;
    double at[3];
    /* true: a HETATM record of a residue that the file does not name as a part of a chain. The residue may be one if a
     * peptide bond binds it. */
    bool doubtful;
} attn__atom;

/* The first model of a file. */
typedef struct attn__gemmi attn__gemmi;

/* Reads a PDB or mmCIF file, which is recognized by its content. *gemmi is always set and must be closed, but is NULL
 * if there is no memory for it. `name` is the name of the file for messages. */
attn__gemmi_result attn__gemmi_open(attn__gemmi **gemmi, const char *text, size_t size, const char *name,
                                    char *message);
void attn__gemmi_close(attn__gemmi *gemmi); /* NULL is allowed */
/* Returns the atoms of residues of proteins in the file's order. */
const attn__atom *attn__gemmi_atoms(const attn__gemmi *gemmi, int64_t *n);
/* Returns the letters of a sequence (SEQRES, or of an entity), or NULL if the file has no sequence of this name. */
const char *attn__gemmi_sequence(const attn__gemmi *gemmi, const char *key, int64_t *n);

#ifdef __cplusplus
}
#endif
#endif
