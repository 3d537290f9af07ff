/* SPDX-License-Identifier: MIT
 * mmCIF files: the loop over _atom_site (Hall et al. 1991, the STAR syntax; wwPDB's PDBx dictionary). */
#include "data/structure.h"

#include <inttypes.h>
#include <string.h>

/* The next word of a STAR text: quoted words lose their quotes, a text field is what stands between two lines that
 * begin with ';'. */
typedef struct words {
    const char *text;
    size_t size, at;
    int64_t line;
    const char *word;
    size_t length;
    bool quoted; /* so that it is no keyword */
} words;

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void skip_space(words *w)
{
    while (w->at < w->size) {
        char c = w->text[w->at];
        if (c == '#') {
            const char *end = memchr(w->text + w->at, '\n', w->size - w->at);
            w->at = end ? (size_t)(end - w->text) : w->size;
        } else if (is_space(c)) {
            w->line += c == '\n';
            w->at++;
        } else {
            return;
        }
    }
}

/* A field that begins behind ';' at a line's start and ends before "\n;". */
static void take_text(words *w)
{
    size_t begin = ++w->at;
    while (w->at < w->size && !(w->text[w->at] == ';' && w->text[w->at - 1] == '\n'))
        w->line += w->text[w->at++] == '\n';
    w->word = w->text + begin;
    w->length = w->at - begin;
    w->at += w->at < w->size;
}

/* A quote ends only before white space, so that 5'-O can stand in single quotes. */
static void take_quoted(words *w, char quote)
{
    size_t begin = ++w->at;
    while (w->at < w->size && w->text[w->at] != '\n' &&
           !(w->text[w->at] == quote && (w->at + 1 == w->size || is_space(w->text[w->at + 1]))))
        w->at++;
    w->word = w->text + begin;
    w->length = w->at - begin;
    w->at += w->at < w->size && w->text[w->at] == quote;
}

static bool next(words *w)
{
    skip_space(w);
    if (w->at >= w->size)
        return false;
    char c = w->text[w->at];
    w->quoted = true;
    if (c == ';' && (w->at == 0 || w->text[w->at - 1] == '\n')) {
        take_text(w);
    } else if (c == '\'' || c == '"') {
        take_quoted(w, c);
    } else {
        w->quoted = false;
        size_t begin = w->at;
        while (w->at < w->size && !is_space(w->text[w->at]))
            w->at++;
        w->word = w->text + begin;
        w->length = w->at - begin;
    }
    return true;
}

static bool is(const words *w, const char *text)
{
    return w->length == strlen(text) && memcmp(w->word, text, w->length) == 0;
}

static bool begins(const words *w, const char *text)
{
    size_t n = strlen(text);
    return !w->quoted && w->length >= n && memcmp(w->word, text, n) == 0;
}

bool attn__is_cif(const char *text, size_t size)
{
    words w = {.text = text, .size = size};
    return next(&w) && begins(&w, "data_");
}

/* ------------------------------------------------------------------------------------------- the atoms */

enum { GROUP, ATOM, RESIDUE, CHAIN, CHAIN_LABEL, NUMBER, NUMBER_LABEL, INSERTION, X, Y, Z, MODEL, FIELDS };
static const char *const fields[FIELDS] = {
    "_atom_site.group_PDB",     "_atom_site.label_atom_id", "_atom_site.label_comp_id", "_atom_site.auth_asym_id",
    "_atom_site.label_asym_id", "_atom_site.auth_seq_id",   "_atom_site.label_seq_id",  "_atom_site.pdbx_PDB_ins_code",
    "_atom_site.Cartn_x",       "_atom_site.Cartn_y",       "_atom_site.Cartn_z",       "_atom_site.pdbx_PDB_model_num",
};

/* The columns of the loop that were met: which field each one holds, or FIELDS. */
typedef struct table {
    int column[64];
    int columns;
    bool has[FIELDS];
} table;

typedef struct row {
    const char *word[FIELDS];
    size_t length[FIELDS];
} row;

static attn_status fail(const attn__structure_reading *r, const words *w, const char *what)
{
    return attn__fail(r->structure->context, ATTN_ERROR_FORMAT, "%s:%" PRId64 ": %s", r->source, w->line + 1, what);
}

/* The loop's column names; leaves `w` at the first word that is none. */
static attn_status read_columns(attn__structure_reading *r, words *w, table *t)
{
    do {
        int field = 0;
        while (field < FIELDS && !is(w, fields[field]))
            field++;
        if (t->columns == (int)(sizeof t->column / sizeof *t->column))
            return fail(r, w, "more than 64 columns in the loop over _atom_site");
        t->column[t->columns++] = field;
        if (field < FIELDS)
            t->has[field] = true;
    } while (next(w) && begins(w, "_atom_site."));
    bool chain = t->has[CHAIN] || t->has[CHAIN_LABEL], number = t->has[NUMBER] || t->has[NUMBER_LABEL];
    if (!t->has[ATOM] || !t->has[RESIDUE] || !chain || !number || !t->has[X] || !t->has[Y] || !t->has[Z])
        return fail(r, w, "the loop over _atom_site lacks a column (atom, residue, chain, number, x, y or z)");
    return ATTN_OK;
}

static void copy(char *out, size_t room, const row *a, int field)
{
    size_t n = a->length[field] < room ? a->length[field] : room - 1;
    if (n > 0)
        memcpy(out, a->word[field], n);
    out[n] = 0;
}

static bool is_blank(const row *a, int field)
{
    return a->length[field] == 0 || (a->length[field] == 1 && strchr("?.", a->word[field][0]));
}

static attn_status take_row(attn__structure_reading *r, const words *w, const table *t, const row *a)
{
    attn__atom atom = {.insertion = ' '};
    int chain = t->has[CHAIN] ? CHAIN : CHAIN_LABEL, number = t->has[NUMBER] ? NUMBER : NUMBER_LABEL;
    double value = 0;
    copy(atom.name, sizeof atom.name, a, ATOM);
    copy(atom.residue, sizeof atom.residue, a, RESIDUE);
    copy(atom.chain, sizeof atom.chain, a, chain);
    atom.hetero = t->has[GROUP] && a->length[GROUP] > 0 && a->word[GROUP][0] == 'H';
    if (t->has[INSERTION] && !is_blank(a, INSERTION))
        atom.insertion = a->word[INSERTION][0];
    if (!is_blank(a, number) && !attn__decimal(a->word[number], a->length[number], &value))
        return fail(r, w, "a residue number is no number");
    atom.number = value > -1e15 && value < 1e15 ? (int64_t)value : 0;
    for (int i = 0; i < 3; i++) {
        if (!attn__decimal(a->word[X + i], a->length[X + i], &atom.at[i]))
            return fail(r, w, "an atom's coordinate is no number");
    }
    return attn__structure_add(r, &atom);
}

/* Is the atom of the same model as the first one? */
static bool in_first_model(const table *t, const row *first, const row *a)
{
    if (!t->has[MODEL] || !a->word[MODEL] || !first->word[MODEL])
        return true;
    return a->length[MODEL] == first->length[MODEL] &&
           memcmp(a->word[MODEL], first->word[MODEL], a->length[MODEL]) == 0;
}

static bool ends_loop(const words *w)
{
    return begins(w, "_") || begins(w, "loop_") || begins(w, "data_");
}

static attn_status read_rows(attn__structure_reading *r, words *w, const table *t)
{
    row first = {{0}, {0}}, a = first;
    int column = 0;
    attn_status status = ATTN_OK;
    bool more = w->at > 0 && w->word != NULL;
    for (int64_t n = 0; more && status == ATTN_OK && !ends_loop(w); more = next(w)) {
        int field = t->column[column];
        if (field < FIELDS) {
            a.word[field] = w->word;
            a.length[field] = w->length;
        }
        if (++column < t->columns)
            continue;
        column = 0;
        first = n++ ? first : a;
        if (in_first_model(t, &first, &a))
            status = take_row(r, w, t, &a);
    }
    return status == ATTN_OK && column != 0 ? fail(r, w, "the loop over _atom_site ends inside a row") : status;
}

attn_status attn__structure_read_cif(attn__structure_reading *r, const char *text, size_t size)
{
    words w = {.text = text, .size = size};
    while (next(&w)) {
        if (!begins(&w, "_atom_site."))
            continue;
        table t = {.columns = 0};
        attn_status status = read_columns(r, &w, &t);
        return status == ATTN_OK ? read_rows(r, &w, &t) : status;
    }
    return ATTN_OK; /* the caller says that there are no residues */
}
