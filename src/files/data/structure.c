/* SPDX-License-Identifier: MIT
 * Builds chains of residues from the atoms that gemmi reads. */
#include "data/lines.h"
#include "base/downloaded.h"
#include "data/structure.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Returns the chain of an atom. Makes the chain if this is its first atom. Returns NULL if there is no memory. */
static attn__chain *chain_of(attn_structure *s, const attn__atom *atom)
{
    for (int64_t i = s->nchains; i-- > 0;)
        if (strcmp(s->chains[i].name, atom->chain) == 0)
            return &s->chains[i];
    attn__chain *more = attn__grow(s->context, s->chains, s->nchains, sizeof *more);
    if (!more)
        return NULL;
    s->chains = more;
    more += s->nchains++;
    *more = (attn__chain){.key = atom->key, .highest = INT64_MIN, .name = attn__strdup(s->context, atom->chain)};
    return more->name ? more : NULL;
}

/* Returns whether an atom has a residue's number. In mmCIF, the number in the entity's sequence counts too. A ligand
 * may have the number of a residue, unless both are alternatives. */
static bool is_of(const attn__built_residue *r, const attn__atom *atom)
{
    bool alike = r->doubtful == atom->doubtful || (r->best.alternative != ' ' && atom->rank.alternative != ' ');
    return alike && r->at.number == atom->number && r->at.insertion == atom->insertion && r->label == atom->label;
}

typedef struct slot {
    bool *has;
    double *at;
} slot;

static slot slot_of(attn_residue *r, int place)
{
    const slot slots[ATTN__BACKBONE] = {{&r->has_n, r->n}, {&r->has_ca, r->ca}, {&r->has_c, r->c}, {&r->has_cb, r->cb}};
    return slots[place];
}

/* Returns whether an atom may belong to a residue that was read before. In some files, the atoms of one residue are not
 * adjacent: all C-alphas come first, or alternative conformations are grouped by letter. If an atom has no letter and
 * the residue already has such an atom, it belongs to another residue with the same number. */
static bool may_join(attn__built_residue *r, const attn__atom *atom)
{
    return is_of(r, atom) && (atom->rank.alternative != ' ' ||
                              (strcmp(r->name, atom->residue) == 0 && !*slot_of(&r->at, atom->place).has));
}

/* Makes the residue if it does not exist yet. Returns NULL if there is no memory. */
static attn__built_residue *residue_of(attn_context *context, attn__chain *chain, const attn__atom *atom)
{
    /* maximum number of residues to search; the search begins at the residue of the last atom, because PDB numbers
     * can repeat */
    enum { MOST_SEARCHED = 10000 };
    if (chain->n > 0 && is_of(&chain->built[chain->current], atom))
        return &chain->built[chain->current];
    for (int64_t k = 1; atom->number <= chain->highest && k < chain->n && k <= MOST_SEARCHED; k++) {
        int64_t i = (chain->current + k) % chain->n;
        if (may_join(&chain->built[i], atom)) {
            chain->current = i;
            return &chain->built[i];
        }
    }
    attn__built_residue *more = attn__grow(context, chain->built, chain->n, sizeof *more);
    if (!more)
        return NULL;
    chain->built = more;
    chain->current = chain->n++;
    chain->highest = atom->number > chain->highest ? atom->number : chain->highest;
    more += chain->current;
    *more = (attn__built_residue){.at = {.letter = atom->letter, .insertion = atom->insertion, .number = atom->number},
                                  .label = atom->label,
                                  .doubtful = atom->doubtful,
                                  .best = atom->rank};
    memcpy(more->name, atom->residue, sizeof more->name);
    return more;
}

static bool is_better(attn__rank a, attn__rank b)
{
    return a.occupancy > b.occupancy || (a.occupancy == b.occupancy && a.alternative < b.alternative);
}

/* Returns whether the atom shows that the file has two residues with the same number. Neither residue has an
 * alternative letter. Either their names differ, or both have the same atom at different positions, with occupancies
 * that sum to more than 1. */
static bool repeats(const attn__built_residue *r, slot to, const attn__atom *atom)
{
    if (atom->rank.alternative != ' ' || r->best.alternative != ' ')
        return false;
    bool full = *to.has && atom->rank.occupancy + r->ranks[atom->place].occupancy > 1;
    bool moved = atom->at[0] != to.at[0] || atom->at[1] != to.at[1] || atom->at[2] != to.at[2];
    return strcmp(r->name, atom->residue) != 0 || (full && moved);
}

/* Adds an atom to its residue. If the residue already has a better alternative of this atom, the atom is ignored. */
static attn_status take(attn_context *context, const char *source, attn__built_residue *residue, const attn__atom *atom)
{
    slot to = slot_of(&residue->at, atom->place);
    if (repeats(residue, to, atom)) {
        if (residue->doubtful) /* ligands may have one number */
            return ATTN_OK;
        return attn__fail(context, ATTN_ERROR_FORMAT,
                          "%s: chain '%s' has two residues with the number %" PRId64
                          "%.*s (%s and %s); each residue needs a number or an insertion code of its own",
                          source, atom->chain, atom->number, atom->insertion != ' ', &atom->insertion, residue->name,
                          atom->residue);
    }
    bool better = is_better(atom->rank, residue->best);
    if (strcmp(residue->name, atom->residue) != 0) {
        if (!better)
            return ATTN_OK;
        residue->at = (attn_residue){.letter = atom->letter, .insertion = atom->insertion, .number = atom->number};
        memcpy(residue->name, atom->residue, sizeof residue->name);
        residue->doubtful = atom->doubtful;
    }
    residue->best = better ? atom->rank : residue->best;
    if (!*to.has || is_better(atom->rank, residue->ranks[atom->place])) {
        memcpy(to.at, atom->at, sizeof atom->at);
        *to.has = true;
        residue->ranks[atom->place] = atom->rank;
    }
    return ATTN_OK;
}

static attn_status add(attn_structure *s, const char *source, const char *wanted, const attn__atom *atom)
{
    attn__chain *chain = chain_of(s, atom);
    if (!chain)
        return ATTN_ERROR_MEMORY;
    if (!chain->sure && !atom->doubtful)
        chain->key = atom->key; /* a ligand that comes first has another entity */
    chain->sure |= !atom->doubtful;
    if (wanted && strcmp(atom->chain, wanted) != 0)
        return ATTN_OK;
    attn__built_residue *residue = residue_of(s->context, chain, atom);
    return residue ? take(s->context, source, residue, atom) : ATTN_ERROR_MEMORY;
}

/* ------------------------------------------------------------------------------------------ the structure */

/* Fails with the message that the structure has no residues, or not the requested chain. */
static attn_status refuse(const attn_structure *s, const char *source, const char *wanted)
{
    char seen[160] = "";
    size_t used = 0;
    bool nameless = true; /* no chain has a name */
    for (int64_t i = 0; i < s->nchains; i++) {
        const attn__chain *chain = &s->chains[i];
        size_t n = strlen(chain->name) + 5;
        if (!chain->sure || used + n >= sizeof seen)
            continue;
        nameless = nameless && !chain->name[0];
        used += (size_t)snprintf(seen + used, sizeof seen - used, "%s '%s'", used ? "," : "", chain->name);
    }
    if (!wanted || (wanted[0] && !used))
        return attn__fail(s->context, ATTN_ERROR_FORMAT, "%s: the file has no residues of a protein", source);
    if (!wanted[0])
        return attn__fail(s->context, ATTN_ERROR_NOT_FOUND,
                          "%s: a chain without a name is requested, but the file has %s%s", source,
                          used ? "only the chains" : "no chains", seen);
    if (nameless)
        return attn__fail(
            s->context, ATTN_ERROR_NOT_FOUND,
            "%s: there is no chain '%.40s'; the only chain of the file has no name, so leave the chain out", source,
            wanted);
    return attn__fail(s->context, ATTN_ERROR_NOT_FOUND, "%s: there is no chain '%.40s'; the chains are%s", source,
                      wanted, seen);
}

static void free_chain(attn_context *context, const attn__chain *chain)
{
    attn__free(context, chain->name);
    attn__free(context, chain->built);
    attn__free(context, chain->positions);
}

/* Removes what is no residue of a protein, and the chains without residues. */
static void drop_unbound(attn_structure *s)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < s->nchains; i++) {
        attn__chain *chain = &s->chains[i];
        attn__chain_drop_unbound(chain);
        chain->first = s->n;
        s->n += chain->n;
    }
    for (int64_t i = 0; s->n > 0 && i < s->nchains; i++)
        if (s->chains[i].n > 0)
            s->chains[kept++] = s->chains[i];
        else
            free_chain(s->context, &s->chains[i]);
    s->nchains = s->n > 0 ? kept : s->nchains;
}

/* Moves the residues of all chains into one array, and arranges each chain. */
static attn_status finish(attn_structure *s, const attn__gemmi *file, const char *source, const char *wanted)
{
    drop_unbound(s);
    if (s->n == 0)
        return refuse(s, source, wanted);
    s->residues = attn__alloc(s->context, attn__size_mul((size_t)s->n, sizeof *s->residues));
    attn_status status = s->residues ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < s->nchains && status == ATTN_OK; i++) {
        attn__chain *chain = &s->chains[i];
        for (int64_t k = 0; k < chain->n; k++)
            s->residues[chain->first + k] = chain->built[k].at;
        status = attn__chain_arrange(s->context, file, chain);
        attn__free(s->context, chain->built);
        chain->built = NULL;
        chain->key = NULL;
    }
    return status;
}

bool attn_structures_available(void)
{
#ifdef ATTN_HAVE_GEMMI
    return true;
#else
    return false;
#endif
}

static attn_status open_file(attn__gemmi **file, attn_context *context, const char *text, size_t size, const char *name)
{
    char message[ATTN__GEMMI_MESSAGE] = "";
    switch (attn__gemmi_open(file, text, size, name, message)) {
    case ATTN__GEMMI_OK:
        return ATTN_OK;
    case ATTN__GEMMI_NO_MEMORY:
        return attn__fail(context, ATTN_ERROR_MEMORY, "%s: gemmi ran out of memory", name);
    case ATTN__GEMMI_ABSENT:
        return attn__fail(
            context, ATTN_ERROR_UNSUPPORTED,
            "%s: structures need gemmi, which this build of attn does not have: install gemmi-dev and tao-pegtl-dev "
            "and build again",
            name);
    default:
        return attn__fail(context, ATTN_ERROR_FORMAT, "%s:%s", name, message);
    }
}

attn_status attn_structure_parse(attn_structure **structure, attn_context *context, const char *text, size_t size,
                                 const char *name, const char *chain)
{
    ATTN__CALL(context);
    *structure = NULL;
    attn_status status = attn__check_downloaded(context, name, text, size);
    if (status != ATTN_OK)
        return status;
    attn_structure *s = attn__alloc_zero(context, sizeof *s);
    if (!s)
        return ATTN_ERROR_MEMORY;
    s->context = context;
    size_t mark = attn__byte_order_mark(text, size);
    attn__gemmi *file = NULL;
    int64_t n = 0;
    status = open_file(&file, context, text + mark, attn__without_final_nuls(text + mark, size - mark), name);
    const attn__atom *atoms = status == ATTN_OK ? attn__gemmi_atoms(file, &n) : NULL;
    for (int64_t i = 0; i < n && status == ATTN_OK; i++)
        status = add(s, name, chain, &atoms[i]);
    if (status == ATTN_OK)
        status = finish(s, file, name, chain);
    attn__gemmi_close(file);
    if (status == ATTN_OK)
        *structure = s;
    else
        attn_structure_destroy(s);
    return status;
}
void attn_structure_destroy(attn_structure *structure)
{
    if (!structure)
        return;
    for (int64_t i = 0; i < structure->nchains; i++)
        free_chain(structure->context, &structure->chains[i]);
    attn__free(structure->context, structure->chains);
    attn__free(structure->context, structure->residues);
    attn__free(structure->context, structure);
}

int64_t attn_structure_size(const attn_structure *structure)
{
    return structure->n;
}

const attn_residue *attn_structure_residue(const attn_structure *structure, int64_t i)
{
    return &structure->residues[i];
}

const char *attn_structure_chain(const attn_structure *structure, int64_t i)
{
    const attn__chain *chain = structure->chains;
    while (i >= chain->first + chain->n)
        chain++;
    return chain->name;
}
