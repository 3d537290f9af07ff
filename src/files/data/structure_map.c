/* SPDX-License-Identifier: MIT
 * Maps the columns of an alignment to residues of a structure, and computes distances between residues. */
#include "data/structure.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- the chain that fits */

/* Constants for gapped local alignments with BLOSUM62 and gap costs 11/1 (Altschul and Gish 1996,
 * doi:10.1016/S0076-6879(96)66029-7). K n m exp(-lambda S) alignments with a score of at least S are expected by
 * chance, where n and m are the lengths. */
static const double LAMBDA = 0.267, K = 0.041, MOST_EXPECTED = 0.01;

/* An alignment of the query's letters with one chain. */
typedef struct fit {
    const attn__chain *chain;
    int64_t *to; /* [n]: for each letter of the query, its position in the chain, or -1 */
    int64_t score, aligned, equal, resolved;
} fit;

static attn_status align(attn_context *context, const char *letters, int64_t n, fit *f)
{
    attn_status status =
        attn__structure_align(context, letters, n, f->chain->positions, f->chain->length, f->to, &f->score);
    f->aligned = f->equal = f->resolved = 0;
    for (int64_t i = 0; status == ATTN_OK && i < n; i++) {
        const attn__position *p = f->to[i] >= 0 ? &f->chain->positions[f->to[i]] : NULL;
        f->aligned += p && p->letter;
        f->equal += p && p->letter == letters[i] && p->letter != 'X';
        f->resolved += p && p->residue >= 0;
    }
    return status;
}

static int64_t letters_of(const attn__chain *chain)
{
    int64_t n = 0;
    for (int64_t k = 0; k < chain->length; k++)
        n += chain->positions[k].letter != 0;
    return n;
}

/* Checks whether a chain is the query's protein. At least half of the shorter sequence must be aligned, half of the
 * aligned part must be identical, and the score must be unlikely by chance. */
static attn_status judge(const attn_structure *s, const fit *f, int64_t n)
{
    int64_t chain = letters_of(f->chain), shorter = n < chain ? n : chain, all = 0;
    for (int64_t i = 0; i < s->nchains; i++)
        all += s->chains[i].length;
    double expected = K * (double)n * (double)all * exp(-LAMBDA * (double)f->score);
    if (2 * f->aligned >= shorter && 2 * f->equal >= f->aligned && f->aligned > 0 && expected <= MOST_EXPECTED)
        return ATTN_OK;
    const char *what = f->chain->name[0] ? "chain " : "the chain without a name", *name = f->chain->name;
    if (2 * f->aligned < shorter || f->aligned == 0)
        return attn__fail(s->context, ATTN_ERROR_FORMAT,
                          "%s%s does not match the query: %lld residues of the chain align with the query; at least "
                          "%lld must align",
                          what, name, (long long)f->aligned, (long long)(shorter > 1 ? (shorter + 1) / 2 : 1));
    if (2 * f->equal < f->aligned)
        return attn__fail(
            s->context, ATTN_ERROR_FORMAT,
            "%s%s does not match the query: of the %lld aligned residues %lld are identical; at least half "
            "must be identical",
            what, name, (long long)f->aligned, (long long)f->equal);
    return attn__fail(
        s->context, ATTN_ERROR_FORMAT,
        "%s%s does not match the query: %.2g alignments of the same score are expected by chance; at most "
        "%g are allowed",
        what, name, expected, MOST_EXPECTED);
}

static bool is_better(const fit *a, const fit *b)
{
    return !b->chain || a->score > b->score || (a->score == b->score && a->resolved > b->resolved);
}

/* Aligns letters[n] with each chain, and stores the best alignment in `best`. Both `best` and `other` must have room
 * for n positions. */
static attn_status choose(const attn_structure *s, const char *letters, int64_t n, fit *best, fit *other)
{
    int64_t i = 0;
    do { /* runs at least once, because a structure has at least one chain */
        other->chain = &s->chains[i];
        attn_status status = align(s->context, letters, n, other);
        if (status != ATTN_OK)
            return status;
        if (is_better(other, best)) {
            fit better = *other;
            *other = *best;
            *best = better;
        }
    } while (++i < s->nchains);
    return judge(s, best, n);
}

attn_status attn_structure_map(const attn_structure *structure, const char *query, int64_t columns, int64_t *to,
                               attn_structure_match *match)
{
    ATTN__CALL(structure->context);
    attn_context *context = structure->context;
    size_t places = attn__size_mul((size_t)columns, sizeof *to);
    char *letters = attn__alloc(context, (size_t)columns);
    fit best = {.to = attn__alloc(context, places)}, other = {.to = attn__alloc(context, places)};
    int64_t n = 0;
    for (int64_t c = 0; letters && c < columns; c++)
        if (query[c] != '-')
            letters[n++] = query[c] >= 'A' && query[c] <= 'Z' ? query[c] : 'X';
    attn_status status =
        letters && best.to && other.to ? choose(structure, letters, n, &best, &other) : ATTN_ERROR_MEMORY;
    for (int64_t c = 0, i = 0; status == ATTN_OK && c < columns; c++) {
        int64_t at = query[c] == '-' ? -1 : best.to[i++];
        to[c] = at < 0 ? -1 : best.chain->positions[at].residue;
    }
    if (status == ATTN_OK && match)
        *match = (attn_structure_match){best.chain->name, best.aligned, (double)best.equal / (double)best.aligned,
                                        (double)best.aligned / (double)n};
    attn__free(context, other.to);
    attn__free(context, best.to);
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

/* Computes the position of an ideal C-beta from the atoms N, CA and C. As in trRosetta and ESM, it has bond length
 * 1.522, angle 1.927 and dihedral -2.143. */
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

/* Computes the coordinates of the point that represents a residue. Returns false if the file lacks the atoms for
 * this. */
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
