/* SPDX-License-Identifier: MIT
 * Builds chains of residues from atoms. */
#include "data/lines.h"
#include "base/downloaded.h"
#include "data/structure.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Names of residues and their one-letter codes: the twenty amino acids, selenocysteine and pyrrolysine, and variants
 * that crystallographers use instead of a parent residue. Nucleotides are listed too, with a mark that they are not
 * residues of a protein. */
static const struct {
    char name[4];
    char letter;
    bool variant;
} kinds[] = {
    {"ALA", 'A', false}, {"ARG", 'R', false}, {"ASN", 'N', false}, {"ASP", 'D', false}, {"CYS", 'C', false},
    {"GLN", 'Q', false}, {"GLU", 'E', false}, {"GLY", 'G', false}, {"HIS", 'H', false}, {"ILE", 'I', false},
    {"LEU", 'L', false}, {"LYS", 'K', false}, {"MET", 'M', false}, {"PHE", 'F', false}, {"PRO", 'P', false},
    {"SER", 'S', false}, {"THR", 'T', false}, {"TRP", 'W', false}, {"TYR", 'Y', false}, {"VAL", 'V', false},
    {"SEC", 'U', true},  {"PYL", 'O', true},  {"MSE", 'M', true},  {"SEP", 'S', true},  {"TPO", 'T', true},
    {"PTR", 'Y', true},  {"CSO", 'C', true},  {"CME", 'C', true},  {"OCS", 'C', true},  {"CSD", 'C', true},
    {"MLY", 'K', true},  {"M3L", 'K', true},  {"KCX", 'K', true},  {"HYP", 'P', true},  {"PCA", 'Q', true},
    {"LLP", 'K', true},  {"A", 0, true},      {"C", 0, true},      {"G", 0, true},      {"I", 0, true},
    {"N", 0, true},      {"T", 0, true},      {"U", 0, true},      {"DA", 0, true},     {"DC", 0, true},
    {"DG", 0, true},     {"DI", 0, true},     {"DN", 0, true},     {"DT", 0, true},     {"DU", 0, true},
    {"ASX", 'B', false}, {"GLX", 'Z', false}, {"UNK", 'X', false},
};

/* Returns the one-letter code of a residue. Returns 0 if it is not a residue of a protein. */
static char letter_of(const char *residue, bool hetero)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, residue) == 0 && (kinds[i].variant || !hetero))
            return kinds[i].letter;
    }
    return hetero ? 0 : 'X';
}

static void note_chain(attn__structure_reading *r, const char *chain)
{
    char item[ATTN__CHAIN_NAME + 4];
    int n = snprintf(item, sizeof item, " '%s',", chain);
    size_t used = strlen(r->seen);
    if (!strstr(r->seen, item) && used + (size_t)n < sizeof r->seen)
        memcpy(r->seen + used, item, (size_t)n + 1);
}

/* ------------------------------------------------------------------------------------------- sequences */

const attn__chain_sequence *attn__structure_sequence(const attn__structure_reading *r, const char *key)
{
    for (int64_t i = 0; r->sequences && i < r->nsequences; i++) {
        if (strcmp(r->sequences[i].key, key) == 0)
            return &r->sequences[i];
    }
    return NULL;
}

attn_status attn__structure_add_to_sequence(attn__structure_reading *r, const char *key, const char *residue)
{
    attn_context *context = r->structure->context;
    char letter = letter_of(residue, false);
    if (!letter)
        return ATTN_OK;
    /* only the last sequence is compared, because records of a chain are adjacent */
    attn__chain_sequence *s = r->nsequences ? &r->sequences[r->nsequences - 1] : NULL;
    if (!s || strcmp(s->key, key) != 0)
        s = (attn__chain_sequence *)attn__structure_sequence(r, key);
    if (!s) {
        attn__chain_sequence *more = attn__grow(context, r->sequences, r->nsequences, sizeof *more);
        if (!more)
            return ATTN_ERROR_MEMORY;
        r->sequences = more;
        s = &more[r->nsequences++];
        *s = (attn__chain_sequence){.n = 0};
        snprintf(s->key, sizeof s->key, "%s", key);
    }
    char *letters = attn__grow(context, s->letters, s->n, 1);
    if (!letters)
        return ATTN_ERROR_MEMORY;
    s->letters = letters;
    letters[s->n++] = letter;
    return ATTN_OK;
}

/* ----------------------------------------------------------------------------------------------- atoms */

/* Returns the chain of an atom. Makes the chain if this is its first atom. Returns NULL if there is no memory. */
static attn__chain *chain_of(attn_structure *s, const attn__atom *atom)
{
    for (int64_t i = s->nchains; i-- > 0;) {
        if (strcmp(s->chains[i].name, atom->chain) == 0)
            return &s->chains[i];
    }
    attn__chain *more = attn__grow(s->context, s->chains, s->nchains, sizeof *more);
    if (!more)
        return NULL;
    s->chains = more;
    more += s->nchains++;
    *more = (attn__chain){.highest = INT64_MIN};
    memcpy(more->name, atom->chain, sizeof more->name);
    memcpy(more->key, atom->key, sizeof more->key);
    return more;
}

static bool is_of(const attn__built_residue *r, const attn__atom *atom)
{
    return r->at.number == atom->number && r->at.insertion == atom->insertion;
}

/* Returns the index of an atom name among the atoms that distances need, or -1 for other atoms. */
static int place_of(const char *name)
{
    static const char names[ATTN__BACKBONE][3] = {"N", "CA", "C", "CB"};
    int i = ATTN__BACKBONE - 1;
    while (i >= 0 && strcmp(names[i], name) != 0)
        i--;
    return i;
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

/* Returns the residue of an atom. Makes the residue if it does not exist yet. Returns NULL if there is no memory. */
static attn__built_residue *residue_of(attn__structure_reading *r, attn__chain *chain, char letter,
                                       const attn__atom *atom)
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
    attn__built_residue *more = attn__grow(r->structure->context, chain->built, chain->n, sizeof *more);
    if (!more)
        return NULL;
    chain->built = more;
    chain->current = chain->n++;
    chain->highest = atom->number > chain->highest ? atom->number : chain->highest;
    more += chain->current;
    *more = (attn__built_residue){.at = {.letter = letter, .insertion = atom->insertion, .number = atom->number},
                                  .label = atom->label,
                                  .line = r->line,
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
static attn_status take(attn__structure_reading *r, attn__built_residue *residue, char letter, const attn__atom *atom)
{
    slot to = slot_of(&residue->at, atom->place);
    if (repeats(residue, to, atom))
        return attn__fail(r->structure->context, ATTN_ERROR_FORMAT,
                          "%s:%" PRId64 ": residue %" PRId64 "%.*s of chain '%s' begins again (%s; %s in line %" PRId64
                          "): numbers repeat; each residue needs a number or an insertion code of its own",
                          r->source, r->line, atom->number, atom->insertion != ' ', &atom->insertion, atom->chain,
                          atom->residue, residue->name, residue->line);
    bool better = is_better(atom->rank, residue->best);
    if (strcmp(residue->name, atom->residue) != 0) {
        if (!better)
            return ATTN_OK;
        residue->at = (attn_residue){.letter = letter, .insertion = atom->insertion, .number = atom->number};
        memcpy(residue->name, atom->residue, sizeof residue->name);
    }
    residue->best = better ? atom->rank : residue->best;
    if (!*to.has || is_better(atom->rank, residue->ranks[atom->place])) {
        memcpy(to.at, atom->at, sizeof atom->at);
        *to.has = true;
        residue->ranks[atom->place] = atom->rank;
    }
    return ATTN_OK;
}

attn_status attn__structure_add(attn__structure_reading *r, attn__atom *atom)
{
    char letter = letter_of(atom->residue, atom->hetero);
    if (!letter)
        return ATTN_OK;
    note_chain(r, atom->chain);
    atom->place = place_of(atom->name);
    if (atom->place < 0 || (r->wanted && strcmp(atom->chain, r->wanted) != 0))
        return ATTN_OK;
    attn__chain *chain = chain_of(r->structure, atom);
    attn__built_residue *residue = chain ? residue_of(r, chain, letter, atom) : NULL;
    return residue ? take(r, residue, letter, atom) : ATTN_ERROR_MEMORY;
}

/* Parses a decimal number with sign, digits, point and digits. The result does not depend on the locale. mmCIF also
 * allows an exponent, but no program writes exponents for coordinates. */
bool attn__decimal(const char *text, size_t length, double *value)
{
    size_t i = 0;
    while (i < length && text[i] == ' ')
        i++;
    while (length > i && text[length - 1] == ' ')
        length--;
    bool negative = i < length && text[i] == '-', digits = false;
    i += i < length && (text[i] == '-' || text[i] == '+');
    double sum = 0, unit = 1;
    for (bool point = false; i < length; i++) {
        if (text[i] == '.' && !point) {
            point = true;
            continue;
        }
        if (text[i] < '0' || text[i] > '9')
            return false;
        digits = true;
        sum = sum * 10 + (text[i] - '0');
        unit *= point ? 10 : 1;
    }
    *value = (negative ? -sum : sum) / unit;
    return digits;
}

/* ------------------------------------------------------------------------------------------ the structure */

static attn_status refuse(const attn__structure_reading *r)
{
    attn_context *context = r->structure->context;
    int length = r->seen[0] ? (int)strlen(r->seen) - 1 : 0; /* length without the comma at the end */
    if (!r->wanted || (r->wanted[0] && !r->seen[0]))
        return attn__fail(context, ATTN_ERROR_FORMAT, "%s: no residues of a protein in it", r->source);
    if (!r->wanted[0])
        return attn__fail(context, ATTN_ERROR_NOT_FOUND, "%s: no chain without a name; there are%.*s", r->source,
                          length ? length : 5, length ? r->seen : " none");
    if (strcmp(r->seen, " '',") == 0)
        return attn__fail(context, ATTN_ERROR_NOT_FOUND,
                          "%s: no chain '%s'; its one chain has no name: leave the chain out", r->source, r->wanted);
    return attn__fail(context, ATTN_ERROR_NOT_FOUND, "%s: no chain '%s'; there are%.*s", r->source, r->wanted, length,
                      r->seen);
}

/* Moves the residues of all chains into one array, and arranges each chain. */
static attn_status finish(const attn__structure_reading *r)
{
    attn_structure *s = r->structure;
    if (s->nchains == 0)
        return refuse(r);
    for (int64_t i = 0; i < s->nchains; i++) {
        s->chains[i].first = s->n;
        s->n += s->chains[i].n;
    }
    s->residues = attn__alloc(s->context, attn__size_mul((size_t)s->n, sizeof *s->residues));
    attn_status status = s->residues ? ATTN_OK : ATTN_ERROR_MEMORY;
    for (int64_t i = 0; i < s->nchains && status == ATTN_OK; i++) {
        attn__chain *chain = &s->chains[i];
        for (int64_t k = 0; k < chain->n; k++)
            s->residues[chain->first + k] = chain->built[k].at;
        status = attn__chain_arrange(r, chain);
        attn__free(s->context, chain->built);
        chain->built = NULL;
    }
    return status;
}

static void free_sequences(const attn__structure_reading *r)
{
    for (int64_t i = 0; i < r->nsequences; i++)
        attn__free(r->structure->context, r->sequences[i].letters);
    attn__free(r->structure->context, r->sequences);
}

attn_status attn_structure_parse(attn_structure **structure, attn_context *context, const char *text, size_t size,
                                 const char *name, const char *chain)
{
    attn__call_begin(context);
    *structure = NULL;
    if (chain && strlen(chain) >= ATTN__CHAIN_NAME)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "chain '%.40s': a name of at most %d letters is wanted", chain,
                          ATTN__CHAIN_NAME - 1);
    attn_status downloaded = attn__check_downloaded(context, name, text, size);
    if (downloaded != ATTN_OK)
        return downloaded;
    attn_structure *s = attn__alloc_zero(context, sizeof *s);
    if (!s)
        return ATTN_ERROR_MEMORY;
    s->context = context;
    size_t mark = attn__byte_order_mark(text, size);
    text += mark;
    size = attn__without_final_nuls(text, size - mark);
    attn__structure_reading reading = {.structure = s, .source = name, .wanted = chain};
    attn_status status = attn__is_cif(text, size) ? attn__structure_read_cif(&reading, text, size)
                                                  : attn__structure_read_pdb(&reading, text, size);
    if (status == ATTN_OK)
        status = finish(&reading);
    free_sequences(&reading);
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
    for (int64_t i = 0; i < structure->nchains; i++) {
        attn__free(structure->context, structure->chains[i].built);
        attn__free(structure->context, structure->chains[i].positions);
    }
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
