/* SPDX-License-Identifier: MIT
 * Which residue of a chain stands in which column of an alignment, and how far residues are apart. */
#include "data/structure.h"

#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------- the alignment */

enum { MATCH = 2, MISMATCH = -1, GAP = -2 };
enum { FROM_BOTH = 0, FROM_QUERY, FROM_CHAIN }; /* what a step consumes */

typedef struct table {
    const attn_structure *s;
    const char *letters; /* of the query, without gaps */
    int64_t n;           /* of the query */
    uint8_t *step;       /* [n + 1, s->n + 1] */
    int64_t *score;      /* one row, [s->n + 1] */
} table;

static void fill_row(table *t, int64_t i)
{
    int64_t m = t->s->n, diagonal = t->score[0];
    uint8_t *step = t->step + i * (m + 1);
    t->score[0] += GAP;
    step[0] = FROM_QUERY;
    for (int64_t j = 1; j <= m; j++) {
        int64_t both = diagonal + (t->letters[i - 1] == t->s->residues[j - 1].letter ? MATCH : MISMATCH);
        int64_t query = t->score[j] + GAP, chain = t->score[j - 1] + GAP;
        diagonal = t->score[j];
        step[j] = both >= query && both >= chain ? FROM_BOTH : query >= chain ? FROM_QUERY : FROM_CHAIN;
        t->score[j] = step[j] == FROM_BOTH ? both : step[j] == FROM_QUERY ? query : chain;
    }
}

static void align(table *t)
{
    for (int64_t j = 0; j <= t->s->n; j++) {
        t->score[j] = GAP * j;
        t->step[j] = FROM_CHAIN;
    }
    for (int64_t i = 1; i <= t->n; i++)
        fill_row(t, i);
}

/* to[i] for each letter of the query; returns how many of the mapped letters are equal. */
static int64_t trace(const table *t, int64_t *to, int64_t *mapped)
{
    int64_t i = t->n, j = t->s->n, equal = 0;
    *mapped = 0;
    while (i > 0) {
        uint8_t step = t->step[i * (t->s->n + 1) + j];
        if (step == FROM_CHAIN) {
            j--;
            continue;
        }
        i--;
        to[i] = step == FROM_BOTH ? --j : -1;
        *mapped += to[i] >= 0;
        equal += to[i] >= 0 && t->letters[i] == t->s->residues[j].letter;
    }
    return equal;
}

/* Moves to[0..n) of letters to their columns; from the back, so that nothing is overwritten before it is read. */
static void spread(const char *query, int64_t columns, int64_t n, int64_t *to)
{
    for (int64_t c = columns; c-- > 0;)
        to[c] = query[c] == '-' ? -1 : to[--n];
}

attn_status attn_structure_map(const attn_structure *structure, const char *query, int64_t columns, int64_t *to,
                               double *identity)
{
    attn__call_begin(structure->context);
    attn_context *context = structure->context;
    char *letters = attn__alloc(context, (size_t)columns);
    table t = {.s = structure, .letters = letters};
    for (int64_t c = 0; letters && c < columns; c++) {
        if (query[c] != '-')
            letters[t.n++] = query[c];
    }
    t.step = attn__alloc(context, attn__size_mul((size_t)t.n + 1, (size_t)structure->n + 1));
    t.score = attn__alloc(context, attn__size_mul((size_t)structure->n + 1, sizeof *t.score));
    attn_status status = letters && t.step && t.score ? ATTN_OK : ATTN_ERROR_MEMORY;
    if (status == ATTN_OK) {
        int64_t mapped;
        align(&t);
        int64_t equal = trace(&t, to, &mapped);
        spread(query, columns, t.n, to);
        double share = mapped ? (double)equal / (double)mapped : 0;
        if (identity)
            *identity = share;
        int64_t shorter = t.n < structure->n ? t.n : structure->n;
        if (2 * equal < shorter)
            status = attn__fail(context, ATTN_ERROR_FORMAT,
                                "%s%s is another protein: only %.0f %% of its residues agree with the query",
                                structure->chain[0] ? "chain " : "the chain without a name", structure->chain,
                                100 * (double)equal / (double)shorter);
    }
    attn__free(context, t.score);
    attn__free(context, t.step);
    attn__free(context, letters);
    return status;
}

/* -------------------------------------------------------------------------------------------- distances */

static void subtract(double out[3], const double a[3], const double b[3])
{
    for (int i = 0; i < 3; i++)
        out[i] = a[i] - b[i];
}

static void cross(double out[3], const double a[3], const double b[3])
{
    for (int i = 0; i < 3; i++)
        out[i] = a[(i + 1) % 3] * b[(i + 2) % 3] - a[(i + 2) % 3] * b[(i + 1) % 3];
}

static void normalize(double a[3])
{
    double length = sqrt(a[0] * a[0] + a[1] * a[1] + a[2] * a[2]);
    for (int i = 0; i < 3; i++)
        a[i] /= length;
}

/* The place that bond length 1.522, angle 1.927 and dihedral -2.143 (ideal geometry of a C-beta) give behind the
 * atoms C, N, CA, as trRosetta and ESM place it. */
static void impute(const attn_residue *r, double out[3])
{
    enum { LONG, UP, SIDE };
    const double bond = 1.522, angle = 1.927, dihedral = -2.143;
    double axis[3][3], back[3];
    subtract(axis[LONG], r->n, r->ca);
    normalize(axis[LONG]);
    subtract(back, r->n, r->c);
    cross(axis[SIDE], back, axis[LONG]);
    normalize(axis[SIDE]);
    cross(axis[UP], axis[SIDE], axis[LONG]);
    double along[3] = {bond * cos(angle), bond * sin(angle) * cos(dihedral), -bond * sin(angle) * sin(dihedral)};
    for (int i = 0; i < 3; i++)
        out[i] = r->ca[i] + along[0] * axis[LONG][i] + along[1] * axis[UP][i] + along[2] * axis[SIDE][i];
}

/* Where a residue counts as being; false if the file does not say. */
static bool position(const attn_residue *r, attn_cbeta beta, double out[3])
{
    if (beta == ATTN_CBETA_IMPUTED) {
        if (r->has_n && r->has_ca && r->has_c)
            impute(r, out);
        return r->has_n && r->has_ca && r->has_c;
    }
    memcpy(out, r->has_cb ? r->cb : r->ca, 3 * sizeof *out);
    return r->has_cb || r->has_ca;
}

static double distance(const attn_residue *a, const attn_residue *b, attn_cbeta beta)
{
    double p[3], q[3];
    if (!position(a, beta, p) || !position(b, beta, q))
        return NAN;
    subtract(p, p, q);
    return sqrt(p[0] * p[0] + p[1] * p[1] + p[2] * p[2]);
}

void attn_structure_distances(const attn_structure *structure, const int64_t *to, int64_t columns, attn_cbeta beta,
                              float *distances)
{
    for (int64_t i = 0; i < columns; i++) {
        for (int64_t j = i; j < columns; j++) {
            bool known = to[i] >= 0 && to[j] >= 0;
            float d = known ? (float)distance(&structure->residues[to[i]], &structure->residues[to[j]], beta) : NAN;
            distances[i * columns + j] = distances[j * columns + i] = d;
        }
    }
}
