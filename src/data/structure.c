/* SPDX-License-Identifier: MIT
 * Chains of residues from atoms. */
#include "data/lines.h"
#include "data/structure.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The twenty, selenocysteine and pyrrolysine, variants that crystallographers build in place of a parent, and, as no
 * residues of a protein, the nucleotides. */
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

/* 0: no residue of a protein. */
static char letter_of(const attn__atom *atom)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, atom->residue) == 0 && (kinds[i].variant || !atom->hetero))
            return kinds[i].letter;
    }
    return atom->hetero ? 0 : 'X';
}

static void note_chain(attn__structure_reading *r, const char *chain)
{
    char item[ATTN__CHAIN_NAME + 4];
    int n = snprintf(item, sizeof item, " '%s',", chain);
    size_t used = strlen(r->seen);
    if (!strstr(r->seen, item) && used + (size_t)n < sizeof r->seen)
        memcpy(r->seen + used, item, (size_t)n + 1);
}

static attn_residue *residue_add(attn_structure *s, char letter, const attn__atom *atom)
{
    attn_residue *more = attn__grow(s->context, s->residues, s->n, sizeof *more);
    if (!more)
        return NULL;
    s->residues = more;
    s->residues[s->n] = (attn_residue){.letter = letter, .insertion = atom->insertion, .number = atom->number};
    return &s->residues[s->n++];
}

/* Of alternative locations the first one stays. */
static void place(double to[3], bool *has, const attn__atom *atom)
{
    if (!*has)
        memcpy(to, atom->at, sizeof atom->at);
    *has = true;
}

static void take_atom(attn_residue *residue, const attn__atom *atom)
{
    if (strcmp(atom->name, "N") == 0)
        place(residue->n, &residue->has_n, atom);
    else if (strcmp(atom->name, "CA") == 0)
        place(residue->ca, &residue->has_ca, atom);
    else if (strcmp(atom->name, "C") == 0)
        place(residue->c, &residue->has_c, atom);
    else if (strcmp(atom->name, "CB") == 0)
        place(residue->cb, &residue->has_cb, atom);
}

attn_status attn__structure_add(attn__structure_reading *r, const attn__atom *atom)
{
    attn_structure *s = r->structure;
    char letter = letter_of(atom);
    if (!letter)
        return ATTN_OK;
    note_chain(r, atom->chain);
    if (!r->wanted && s->n == 0)
        memcpy(s->chain, atom->chain, sizeof s->chain);
    if (strcmp(atom->chain, s->chain) != 0)
        return ATTN_OK;
    attn_residue *last = s->n ? &s->residues[s->n - 1] : NULL;
    if (!last || last->number != atom->number || last->insertion != atom->insertion)
        last = residue_add(s, letter, atom);
    if (!last)
        return ATTN_ERROR_MEMORY;
    if (letter == last->letter) /* else another kind of residue that is built in the same place */
        take_atom(last, atom);
    return ATTN_OK;
}

/* Whatever the locale: coordinates are sign, digits, point, digits; mmCIF allows an exponent, which no writer uses for
 * them. */
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

static attn_status finish(const attn__structure_reading *r)
{
    attn_context *context = r->structure->context;
    if (r->structure->n > 0)
        return ATTN_OK;
    if (r->wanted && !r->wanted[0])
        return attn__fail(context, ATTN_ERROR_NOT_FOUND, "%s: no chain without a name; there are%.*s", r->source,
                          r->seen[0] ? (int)strlen(r->seen) - 1 : 4, r->seen[0] ? r->seen : " none");
    if (r->wanted && strcmp(r->seen, " '',") == 0)
        return attn__fail(context, ATTN_ERROR_NOT_FOUND,
                          "%s: no chain '%s'; its one chain has no name: leave the chain out", r->source, r->wanted);
    if (r->wanted && r->seen[0])
        return attn__fail(context, ATTN_ERROR_NOT_FOUND, "%s: no chain '%s'; there are%.*s", r->source, r->wanted,
                          (int)strlen(r->seen) - 1, r->seen);
    return attn__fail(context, ATTN_ERROR_FORMAT, "%s: no residues of a protein in it", r->source);
}

attn_status attn_structure_parse(attn_structure **structure, attn_context *context, const char *text, size_t size,
                                 const char *name, const char *chain)
{
    attn__call_begin(context);
    *structure = NULL;
    if (chain && strlen(chain) >= ATTN__CHAIN_NAME)
        return attn__fail(context, ATTN_ERROR_ARGUMENT, "chain '%.40s': a name of at most %d letters is wanted", chain,
                          ATTN__CHAIN_NAME - 1);
    attn_structure *s = attn__alloc_zero(context, sizeof *s);
    if (!s)
        return ATTN_ERROR_MEMORY;
    s->context = context;
    if (chain)
        memcpy(s->chain, chain, strlen(chain));
    size_t mark = attn__byte_order_mark(text, size);
    text += mark;
    size -= mark;
    attn__structure_reading reading = {.structure = s, .source = name, .wanted = chain};
    attn_status status = attn__is_cif(text, size) ? attn__structure_read_cif(&reading, text, size)
                                                  : attn__structure_read_pdb(&reading, text, size);
    if (status == ATTN_OK)
        status = finish(&reading);
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

const char *attn_structure_chain(const attn_structure *structure)
{
    return structure->chain;
}
