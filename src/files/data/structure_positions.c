/* SPDX-License-Identifier: MIT
 * Computes the positions of a chain. These are its residues in order, including the residues that have no atoms in the
 * file. A sequence (SEQRES, or of an entity) gives the missing residues. Without a sequence, jumps of the residue
 * numbers at breaks give the number of missing residues. */
#include "data/structure.h"

#include <math.h>
#include <string.h>

/* Maximum distances in angstrom. BOND: a peptide bond is 1.33 long. NEIGHBOURS: C-alphas of adjacent residues are
 * 3.8 apart, or 2.9 across a cis bond; C-alphas two residues apart are at least 5 apart. */
static const double BOND = 2, NEIGHBOURS = 4.5;
/* Maximum number of absent positions that are added to a chain because of its residue numbers. It is more than any
 * query needs. */
enum { MOST_ABSENT = 5000 };

static double apart(const double a[3], const double b[3])
{
    double sum = 0;
    for (int i = 0; i < 3; i++)
        sum += (b[i] - a[i]) * (b[i] - a[i]);
    return sqrt(sum);
}

static bool follows(const attn_residue *a, const attn_residue *b)
{
    if (a->has_c && b->has_n)
        return apart(a->c, b->n) < BOND;
    return a->has_ca && b->has_ca ? apart(a->ca, b->ca) < NEIGHBOURS : b->number - a->number <= 1;
}

static bool is_bound(const attn__built_residue *a, const attn__built_residue *b)
{
    return a->at.has_c && b->at.has_n && apart(a->at.c, b->at.n) < BOND;
}

void attn__chain_drop_unbound(attn__chain *chain)
{
    attn__built_residue *r = chain->built;
    int64_t kept = 0;
    for (int64_t i = 1; i < chain->n; i++)
        r[i].doubtful = r[i].doubtful && !(r[i].at.has_ca && !r[i - 1].doubtful && is_bound(&r[i - 1], &r[i]));
    for (int64_t i = chain->n - 1; i > 0; i--)
        r[i - 1].doubtful = r[i - 1].doubtful && !(r[i - 1].at.has_ca && !r[i].doubtful && is_bound(&r[i - 1], &r[i]));
    for (int64_t i = 0; i < chain->n; i++)
        if (!r[i].doubtful)
            r[kept++] = r[i];
    chain->n = kept;
}

static int64_t absent_between(const attn__built_residue *a, const attn__built_residue *b)
{
    bool labelled = a->label > 0 && b->label > 0;
    int64_t step = labelled ? b->label - a->label : b->at.number - a->at.number;
    return step > 1 && step <= MOST_ABSENT ? step - 1 : 0;
}

/* Returns whether the chain has the bonds of a protein. If more than 1 + n / 20 bonds of n residues are missing, the
 * coordinates are of another kind, and missing bonds do not mean breaks. */
static bool has_bonds(const attn__chain *chain)
{
    int64_t broken = 0;
    for (int64_t i = 1; i < chain->n; i++)
        broken += !follows(&chain->built[i - 1].at, &chain->built[i].at);
    return broken <= 1 + chain->n / 20;
}

/* Computes the positions from the residue numbers, and returns how many there are. `to` may be NULL. */
static int64_t by_numbers(const attn__chain *chain, attn__position *to)
{
    int64_t n = 0, added = 0;
    bool bonds = has_bonds(chain);
    for (int64_t i = 0; i < chain->n; i++) {
        const attn__built_residue *r = &chain->built[i];
        bool broken = bonds && i > 0 && !follows(&r[-1].at, &r->at);
        int64_t absent = broken ? absent_between(&r[-1], r) : 0;
        absent = added + absent <= MOST_ABSENT ? absent : 0;
        added += absent;
        for (int64_t k = 0; k < absent; k++, n++)
            if (to)
                to[n] = (attn__position){.residue = -1};
        if (to)
            to[n] = (attn__position){r->at.letter, broken && absent == 0, chain->first + i};
        n++;
    }
    return n;
}

static attn_status arrange_by_numbers(attn_context *context, attn__chain *chain)
{
    chain->length = by_numbers(chain, NULL);
    chain->positions = attn__alloc(context, attn__size_mul((size_t)chain->length, sizeof *chain->positions));
    if (!chain->positions)
        return ATTN_ERROR_MEMORY;
    by_numbers(chain, chain->positions);
    return ATTN_OK;
}

/* Returns whether the file gives the position in the sequence of every residue, as mmCIF files do. */
static bool is_labelled(const attn__chain *chain, int64_t length)
{
    int64_t last = 0;
    for (int64_t i = 0; i < chain->n; i++) {
        if (chain->built[i].label <= last || chain->built[i].label > length)
            return false;
        last = chain->built[i].label;
    }
    return true;
}

/* Sets where[k] to the index of the residue at letter k of the sequence, or to -1. Returns how many letters have a
 * residue. */
static int64_t place_by_labels(const attn__chain *chain, int64_t *where, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        where[k] = -1;
    for (int64_t i = 0; i < chain->n; i++)
        where[chain->built[i].label - 1] = chain->first + i;
    return chain->n;
}

static attn_status place_by_alignment(attn_context *context, const attn__chain *chain, const char *letters, int64_t n,
                                      int64_t *where, int64_t *placed)
{
    int64_t score;
    attn_status status = attn__structure_align(context, letters, n, chain->positions, chain->length, where, &score);
    for (int64_t k = 0; status == ATTN_OK && k < n; k++) {
        const attn__position *p = where[k] >= 0 ? &chain->positions[where[k]] : NULL;
        where[k] = p && p->letter == letters[k] ? p->residue : -1;
        *placed += where[k] >= 0;
    }
    return status;
}

static attn_status arrange_by_sequence(attn_context *context, attn__chain *chain, const char *letters, int64_t n)
{
    int64_t placed = 0;
    int64_t *where = attn__alloc(context, attn__size_mul((size_t)n, sizeof *where));
    attn__position *to = attn__alloc_zero(context, attn__size_mul((size_t)n, sizeof *to));
    attn_status status = where && to ? ATTN_OK : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK && is_labelled(chain, n))
        placed = place_by_labels(chain, where, n);
    else if (status == ATTN_OK)
        status = place_by_alignment(context, chain, letters, n, where, &placed);
    /* if at most half of the residues fit, the sequence belongs to another chain and is not used */
    bool used = status == ATTN_OK && 2 * placed > chain->n;
    for (int64_t k = 0; used && k < n; k++)
        to[k] = (attn__position){.letter = letters[k], .residue = where[k]};
    attn__free(context, used ? (void *)chain->positions : (void *)to);
    if (used) {
        chain->positions = to;
        chain->length = n;
    }
    attn__free(context, where);
    return status;
}

attn_status attn__chain_arrange(attn_context *context, const attn__gemmi *file, attn__chain *chain)
{
    int64_t n = 0;
    const char *letters = attn__gemmi_sequence(file, chain->key, &n);
    attn_status status = arrange_by_numbers(context, chain);
    return status == ATTN_OK && letters ? arrange_by_sequence(context, chain, letters, n) : status;
}
