/* SPDX-License-Identifier: MIT
 * Reads mmCIF files: the loops over _atom_site and _entity_poly_seq (in the STAR syntax, Hall et al. 1991; wwPDB's PDBx
 * dictionary). */
#include "data/structure.h"

#include <inttypes.h>
#include <string.h>

/* Reads the words of a STAR text. The quotes of quoted words are removed. A text field is enclosed by two lines that
 * begin with ';'. */
typedef struct words {
    const char *text;
    size_t size, at;
    int64_t line;
    const char *word;
    size_t length;
    bool quoted; /* true: the word was quoted, so it is not a keyword */
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

/* Reads a text field. It begins after a ';' at the start of a line, and ends before "\n;". */
static void take_text(words *w)
{
    size_t begin = ++w->at;
    while (w->at < w->size && !(w->text[w->at] == ';' && w->text[w->at - 1] == '\n'))
        w->line += w->text[w->at++] == '\n';
    w->word = w->text + begin;
    w->length = w->at - begin;
    w->at += w->at < w->size;
}

/* Reads a quoted word. A quote ends the word only if white space follows. So 5'-O may be enclosed in single quotes. */
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

/* Compares two keywords or item names, ignoring case. */
static bool same(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((a[i] >= 'A' && a[i] <= 'Z' ? a[i] + 32 : a[i]) != b[i])
            return false;
    }
    return true;
}

/* Returns whether the current word equals `text`, ignoring case. `text` must be in lower case. */
static bool is(const words *w, const char *text)
{
    return !w->quoted && w->length == strlen(text) && same(w->word, text, w->length);
}

static bool begins(const words *w, const char *text)
{
    size_t n = strlen(text);
    return !w->quoted && w->length >= n && same(w->word, text, n);
}

bool attn__is_cif(const char *text, size_t size)
{
    words w = {.text = text, .size = size};
    return next(&w) && begins(&w, "data_");
}

/* -------------------------------------------------------------------------------------------- the loops */

enum { FIELDS = 15 };

/* The words of one row of a loop, for the requested columns. */
typedef struct row {
    const char *word[FIELDS];
    size_t length[FIELDS];
} row;

/* The columns of a loop. For each column, the table holds the field of this column, or FIELDS if the column is not
 * requested. */
typedef struct table {
    int column[64];
    int columns;
    bool has[FIELDS];
    row first;
    int64_t rows;
} table;

/* A table of the CIF file (`loop_`) that is read. The names of its columns begin with `name`. */
typedef struct category {
    const char *name;
    const char *fields[FIELDS]; /* the names of the items after `name`, in lower case */
    attn_status (*check)(attn__structure_reading *r, const words *w, const table *t);
    attn_status (*take)(attn__structure_reading *r, const words *w, const table *t, const row *a);
} category;

static attn_status fail(const attn__structure_reading *r, const words *w, const char *what)
{
    return attn__fail(r->structure->context, ATTN_ERROR_FORMAT, "%s:%" PRId64 ": %s", r->source, w->line + 1, what);
}

static int field_of(const category *c, const words *w)
{
    size_t n = strlen(c->name);
    int field = 0;
    for (; field < FIELDS && c->fields[field]; field++) {
        if (w->length - n == strlen(c->fields[field]) && same(w->word + n, c->fields[field], w->length - n))
            return field;
    }
    return FIELDS;
}

/* Reads the names of the loop's columns. Afterwards the current word of `w` is the first word after these names. */
static attn_status read_columns(attn__structure_reading *r, words *w, const category *c, table *t)
{
    do {
        int field = field_of(c, w);
        if (t->columns == (int)(sizeof t->column / sizeof *t->column))
            return attn__fail(r->structure->context, ATTN_ERROR_FORMAT,
                              "%s:%" PRId64 ": more than 64 columns in the loop over %.*s", r->source, w->line + 1,
                              (int)strlen(c->name) - 1, c->name);
        t->column[t->columns++] = field;
        if (field < FIELDS)
            t->has[field] = true;
    } while (next(w) && begins(w, c->name));
    return c->check(r, w, t);
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

/* Parses an integer in a field of a row. If the field is not an integer, returns `otherwise`. */
static int64_t whole(const row *a, int field, int64_t otherwise)
{
    double value;
    if (is_blank(a, field) || !attn__decimal(a->word[field], a->length[field], &value))
        return otherwise;
    return value > -1e15 && value < 1e15 ? (int64_t)value : otherwise;
}

static bool ends_loop(const words *w)
{
    static const char *const keywords[] = {"_", "loop_", "data_", "save_", "global_", "stop_"};
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        if (begins(w, keywords[i]))
            return true;
    }
    return false;
}

/* Reads the rows of the loop. Afterwards the current word of `w` is the word after the loop. *more becomes true if
 * there is such a word. */
static attn_status read_rows(attn__structure_reading *r, words *w, const category *c, table *t, bool *more)
{
    row a = {{0}, {0}};
    int column = 0;
    attn_status status = ATTN_OK;
    *more = w->at > 0 && w->word != NULL;
    for (; *more && status == ATTN_OK && !ends_loop(w); *more = next(w)) {
        int field = t->column[column];
        if (field < FIELDS) {
            a.word[field] = w->word;
            a.length[field] = w->length;
        }
        if (++column < t->columns)
            continue;
        column = 0;
        t->first = t->rows++ ? t->first : a;
        status = c->take(r, w, t, &a);
    }
    if (status == ATTN_OK && column != 0)
        status =
            attn__fail(r->structure->context, ATTN_ERROR_FORMAT, "%s:%" PRId64 ": the loop over %.*s ends inside a row",
                       r->source, w->line + 1, (int)strlen(c->name) - 1, c->name);
    return status;
}

/* -------------------------------------------------------------------------------------- atoms, sequences */

enum {
    GROUP,
    ATOM,
    RESIDUE,
    CHAIN,
    CHAIN_LABEL,
    NUMBER,
    NUMBER_LABEL,
    INSERTION,
    X,
    Y,
    Z,
    MODEL,
    ALTERNATIVE,
    ENTITY,
    OCCUPANCY
};

static attn_status check_atoms(attn__structure_reading *r, const words *w, const table *t)
{
    bool chain = t->has[CHAIN] || t->has[CHAIN_LABEL], number = t->has[NUMBER] || t->has[NUMBER_LABEL];
    if (!t->has[ATOM] || !t->has[RESIDUE] || !chain || !number || !t->has[X] || !t->has[Y] || !t->has[Z])
        return fail(r, w, "the loop over _atom_site lacks a column (atom, residue, chain, number, x, y or z)");
    return ATTN_OK;
}

/* Returns whether the atom belongs to the same model as the first atom. */
static bool in_first_model(const table *t, const row *a)
{
    const row *first = &t->first;
    if (!t->has[MODEL] || !a->word[MODEL] || !first->word[MODEL])
        return true;
    return a->length[MODEL] == first->length[MODEL] &&
           memcmp(a->word[MODEL], first->word[MODEL], a->length[MODEL]) == 0;
}

static attn_status fail_word(const attn__structure_reading *r, const words *w, const row *a, int field,
                             const char *what)
{
    int length = a->length[field] < 40 ? (int)a->length[field] : 40;
    return attn__fail(r->structure->context, ATTN_ERROR_FORMAT, "%s:%" PRId64 ": %s is no number: '%.*s'", r->source,
                      w->line + 1, what, length, a->word[field]);
}

static attn_status take_atom(attn__structure_reading *r, const words *w, const table *t, const row *a)
{
    attn__atom atom = {.insertion = ' ', .rank = {1, ' '}};
    int chain = t->has[CHAIN] ? CHAIN : CHAIN_LABEL, number = t->has[NUMBER] ? NUMBER : NUMBER_LABEL;
    double value;
    if (!in_first_model(t, a))
        return ATTN_OK;
    copy(atom.name, sizeof atom.name, a, ATOM);
    copy(atom.residue, sizeof atom.residue, a, RESIDUE);
    copy(atom.chain, sizeof atom.chain, a, chain);
    copy(atom.key, sizeof atom.key, a, ENTITY);
    atom.hetero = t->has[GROUP] && a->length[GROUP] > 0 && a->word[GROUP][0] == 'H';
    if (!is_blank(a, INSERTION))
        atom.insertion = a->word[INSERTION][0];
    if (!is_blank(a, ALTERNATIVE))
        atom.rank.alternative = a->word[ALTERNATIVE][0];
    if (!is_blank(a, OCCUPANCY) && attn__decimal(a->word[OCCUPANCY], a->length[OCCUPANCY], &value))
        atom.rank.occupancy = value;
    if (!is_blank(a, number) && !attn__decimal(a->word[number], a->length[number], &value))
        return fail_word(r, w, a, number, "a residue number");
    atom.number = whole(a, number, 0);
    atom.label = whole(a, NUMBER_LABEL, 0);
    for (int i = 0; i < 3; i++) {
        if (!attn__decimal(a->word[X + i], a->length[X + i], &atom.at[i]))
            return fail_word(r, w, a, X + i, "an atom's coordinate");
    }
    r->line = w->line + 1;
    return attn__structure_add(r, &atom);
}

enum { OF, PLACE, KIND };

/* Accepts any columns. No check is needed, because the loop is ignored if it lacks the required columns. */
static attn_status check_sequence(attn__structure_reading *r, const words *w, const table *t)
{
    (void)r, (void)w, (void)t;
    return ATTN_OK;
}

/* Appends a residue to a sequence. If several residues have the same number, they are alternatives, and only the
 * first is used. */
static attn_status take_residue(attn__structure_reading *r, const words *w, const table *t, const row *a)
{
    char entity[ATTN__CHAIN_NAME], residue[8];
    (void)w;
    if (!t->has[OF] || !t->has[PLACE] || !t->has[KIND])
        return ATTN_OK;
    copy(entity, sizeof entity, a, OF);
    copy(residue, sizeof residue, a, KIND);
    const attn__chain_sequence *sequence = attn__structure_sequence(r, entity);
    bool next_one = whole(a, PLACE, 0) == (sequence ? sequence->n : 0) + 1;
    return next_one ? attn__structure_add_to_sequence(r, entity, residue) : ATTN_OK;
}

static const category categories[] = {
    {"_atom_site.",
     {"group_pdb", "label_atom_id", "label_comp_id", "auth_asym_id", "label_asym_id", "auth_seq_id", "label_seq_id",
      "pdbx_pdb_ins_code", "cartn_x", "cartn_y", "cartn_z", "pdbx_pdb_model_num", "label_alt_id", "label_entity_id",
      "occupancy"},
     check_atoms,
     take_atom},
    {"_entity_poly_seq.", {"entity_id", "num", "mon_id"}, check_sequence, take_residue},
};

/* Reads the loop at the current word of `w`. Afterwards the current word is the word after the loop. */
static attn_status read_loop(attn__structure_reading *r, words *w, bool *more)
{
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++) {
        if (!begins(w, categories[i].name))
            continue;
        table t = {.columns = 0};
        attn_status status = read_columns(r, w, &categories[i], &t);
        return status == ATTN_OK ? read_rows(r, w, &categories[i], &t, more) : status;
    }
    return ATTN_OK;
}

/* Reads the first data block that contains atoms. */
attn_status attn__structure_read_cif(attn__structure_reading *r, const char *text, size_t size)
{
    words w = {.text = text, .size = size};
    attn_status status = ATTN_OK;
    bool more = next(&w);
    while (more && status == ATTN_OK) {
        bool loop = is(&w, "loop_");
        if (begins(&w, "data_") && r->seen[0])
            break;
        more = next(&w);
        if (loop && more)
            status = read_loop(r, &w, &more);
    }
    return status;
}
