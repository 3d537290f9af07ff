/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests structures: PDB and mmCIF files, the mapping of residues to columns, distances, and the precision of contacts.
 */
#include "support/fixture.h"
#include "support/tensors.h"
#include "support/faults.h"

#include "data/proteins.h"
#include "data/structure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char pdb[] = "HEADER    TEST\n"
                          "ATOM      1  N   ALA A   1      11.104   6.134  -6.504  1.00  0.00           N\n"
                          "ATOM      2  CA AALA A   1      11.639   6.071  -5.147  1.00  0.00           C\n"
                          "ATOM      2  CA BALA A   1      99.000   6.071  -5.147  1.00  0.00           C\n"
                          "ATOM      3  C   ALA A   1      12.689   4.979  -5.052  1.00  0.00           C\n"
                          "ATOM      4  CB  ALA A   1      12.235   7.420  -4.751  1.00  0.00           C\n"
                          "ATOM      5  CA  GLY A   2      14.000   4.000  -4.000  1.00  0.00           C\n"
                          "HETATM    6  CA  MSE A   3A     17.000   8.000  -4.000  1.00  0.00           C\n"
                          "HETATM    7  CB  MSE A   3A     17.000   4.000  -4.000  1.00  0.00           C\n"
                          "HETATM    8  O   HOH A 101      17.000   4.000  -4.000  1.00  0.00           O\n"
                          "ATOM      9  CA  TRP B   7       0.000   0.000   0.000  1.00  0.00           C\n"
                          "ENDMDL\n"
                          "ATOM     10  CA  TRP A   8       0.000   0.000   0.000  1.00  0.00           C\n";

static const char cif[] =
    "data_TEST\n# a comment\n_entry.id TEST\n_struct.title\n;a text\nwith lines\n;\n"
    "loop_\n_atom_site.group_PDB\n_atom_site.label_atom_id\n_atom_site.label_comp_id\n_atom_site.label_asym_id\n"
    "_atom_site.label_seq_id\n_atom_site.pdbx_PDB_ins_code\n_atom_site.Cartn_x\n_atom_site.Cartn_y\n_atom_site.Cartn_"
    "z\n"
    "_atom_site.auth_seq_id\n_atom_site.auth_asym_id\n_atom_site.pdbx_PDB_model_num\n"
    "ATOM N ALA X 1 ? 11.104 6.134 -6.504 1 A 1\n"
    "ATOM CA ALA X 1 ? 11.639 6.071 -5.147 1 A 1\n"
    "ATOM C ALA X 1 ? 12.689 4.979 -5.052 1 A 1\n"
    "ATOM CB ALA X 1 ? 12.235 7.420 -4.751 1 A 1\n"
    "ATOM \"O5'\" ALA X 1 ? 1 2 3 1 A 1\n"
    "ATOM CA GLY X 2 ? 14.000 4.000 -4.000 2 A 1\n"
    "HETATM CA MSE X 3 A 17.000 8.000 -4.000 3 A 1 HETATM CB MSE X 3 A 17.000 4.000 -4.000 3 A 1\n"
    "ATOM CA TRP Y 1 ? 0 0 0 7 B 1\n"
    "ATOM CA TRP X 9 ? 0 0 0 9 A 2\n"
    "loop_\n_other.id\n1\n";

enum { MOST = 400 };
static const char acids[] = "ARNDCQEGHILKMFPSTWYV";
static const char names[][4] = {"ALA", "ARG", "ASN", "ASP", "CYS", "GLN", "GLU", "GLY", "HIS", "ILE",
                                "LEU", "LYS", "MET", "PHE", "PRO", "SER", "THR", "TRP", "TYR", "VAL"};

static const char *name_of(char letter)
{
    return names[strchr(acids, letter) - acids];
}

static void check_chain(const char *text)
{
    attn_context *c = test_context();
    attn_structure *s = NULL;
    assert_int_equal(attn_structure_parse(&s, c, text, strlen(text), "f", NULL), ATTN_OK);
    assert_string_equal(attn_structure_chain(s, 2), "A");
    assert_string_equal(attn_structure_chain(s, 3), "B");
    assert_int_equal(attn_structure_size(s), 4);
    const attn_residue *a = attn_structure_residue(s, 0), *g = attn_structure_residue(s, 1),
                       *m = attn_structure_residue(s, 2);
    assert_int_equal(a->letter, 'A');
    assert_int_equal(g->letter, 'G');
    assert_int_equal(m->letter, 'M');
    assert_int_equal(m->number, 3);
    assert_int_equal(m->insertion, 'A');
    assert_float_equal(a->ca[0], 11.639, 1e-12);
    assert_float_equal(a->n[2], -6.504, 1e-12);
    assert_true(a->has_cb && !g->has_cb && !g->has_n);
    attn_structure_destroy(s);
    assert_int_equal(attn_structure_parse(&s, c, text, strlen(text), "f", "B"), ATTN_OK);
    assert_int_equal(attn_structure_residue(s, 0)->letter, 'W');
    attn_structure_destroy(s);
    assert_int_equal(attn_structure_parse(&s, c, text, strlen(text), "f", "C"), ATTN_ERROR_NOT_FOUND);
    assert_string_equal(attn_context_error(c), "f: there is no chain 'C'; the chains are 'A', 'B'");
    end_context(c);
}

static void a_chain_without_a_name_is_named_in_words(void **state)
{
    static const char text[] = "ATOM      2  CA  ALA     1      11.639   6.071  -5.147  1.00  0.00           C\n";
    attn_context *c = *state;
    attn_structure *s;
    assert_int_equal(attn_structure_parse(&s, c, text, sizeof text - 1, "f", "B"), ATTN_ERROR_NOT_FOUND);
    assert_string_equal(attn_context_error(c),
                        "f: there is no chain 'B'; the only chain of the file has no name, so leave the chain out");
    assert_int_equal(attn_structure_parse(&s, c, text, sizeof text - 1, "f", NULL), ATTN_OK);
    attn_structure_destroy(s);
}

static void both_formats_give_the_same_chain(void **state)
{
    check_chain(pdb);
    check_chain(cif);
}

static void first_of_two_residues_at_one_place_is_taken(void **state)
{
    static const char text[] = "ATOM      1  CA AGLY A   1       1.000   0.000   0.000\n"
                               "ATOM      2  CA BSER A   1       2.000   0.000   0.000\n"
                               "ATOM      3  CB BSER A   1       3.000   0.000   0.000\n";
    attn_context *c = *state;
    attn_structure *s = NULL;
    assert_int_equal(attn_structure_parse(&s, c, text, strlen(text), "f", NULL), ATTN_OK);
    assert_int_equal(attn_structure_size(s), 1);
    assert_int_equal(attn_structure_residue(s, 0)->letter, 'G');
    assert_true(attn_structure_residue(s, 0)->ca[0] == 1 && !attn_structure_residue(s, 0)->has_cb);
    attn_structure_destroy(s);
}

/* The alternative with the highest occupancy is used, and of equal ones the first letter. A missing occupancy counts
 * as 1. */
static void the_likeliest_alternative_is_taken(void **state)
{
    static const struct {
        const char *first, *second;
        double occupancy[2];
        int taken;
    } cases[] = {{"ASER", "BSER", {0.3, 0.7}, 1}, {"ASER", "BSER", {0.7, 0.3}, 0}, {"ASER", "BSER", {0.5, 0.5}, 0},
                 {"BSER", "ASER", {0.5, 0.5}, 1}, {"AGLY", "BSER", {0.1, 0.9}, 1}, {"AGLY", "BSER", {0.9, 0.1}, 0},
                 {"BGLY", "ASER", {0.5, 0.5}, 1}, {" SER", "ASER", {0.6, 0.4}, 0}, {"ASER", "BSER", {0, 0}, 0}};
    static const char head[] = "data_X\nloop_\n_atom_site.label_alt_id\n_atom_site.label_comp_id\n"
                               "_atom_site.label_atom_id\n_atom_site.label_asym_id\n_atom_site.auth_seq_id\n"
                               "_atom_site.Cartn_x\n_atom_site.Cartn_y\n_atom_site.Cartn_z\n_atom_site.occupancy\n";
    attn_context *c = *state;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        char text[1024] = "";
        int k = (int)(i / 2);
        strcpy(text, i % 2 ? head : "");
        for (int n = 0; n < 4; n++) {
            const char *name = n < 2 ? cases[k].first : cases[k].second, *atom = n % 2 ? "CA" : "N";
            char *to = text + strlen(text);
            if (i % 2)
                sprintf(to, "%c %s %s A 1 %d 0 0 %.2f\n", *name == ' ' ? '.' : *name, name + 1, atom, n,
                        cases[k].occupancy[n / 2]);
            else
                sprintf(to, "ATOM  %5d  %-3s%s A   1    %8.3f%8.3f%8.3f%6.2f\n", n, atom, name, (double)n, 0.0, 0.0,
                        cases[k].occupancy[n / 2]);
        }
        attn_structure *s = NULL;
        assert_int_equal(attn_structure_parse(&s, c, text, strlen(text), "f", NULL), ATTN_OK);
        const attn_residue *r = attn_structure_residue(s, 0);
        assert_int_equal(attn_structure_size(s), 1);
        assert_int_equal(r->letter, strstr(cases[k].taken ? cases[k].second : cases[k].first, "GLY") ? 'G' : 'S');
        assert_true(r->n[0] == 2 * cases[k].taken && r->ca[0] == 2 * cases[k].taken + 1);
        attn_structure_destroy(s);
    }
}

/* All C-alphas may come before the other atoms. If the same chain with the same numbers comes again, it is another
 * chain. */
static void atoms_of_a_residue_may_stand_apart(void **state)
{
    static const char *const atoms[] = {"CA", "N", "C", "CB"};
    enum { N = 30 };
    char text[2 * N * 4 * 64], *to = text;
    attn_context *c = *state;
    attn_structure *s = NULL;
    for (int copy = 0; copy < 2; copy++)
        for (int kind = 0; kind < 2; kind++)
            for (int i = 0; i < N; i++)
                for (int a = kind ? 1 : 0; a < (kind ? 4 : 1); a++)
                    to += sprintf(to, "ATOM  %5d  %-3s %s A%4d    %8.3f%8.3f%8.3f\n", i, atoms[a],
                                  name_of(acids[i % 7]), i + 1, 100.0 * copy + i, (double)a, 0.0);
    assert_int_equal(attn_structure_parse(&s, c, text, strlen(text), "f", NULL), ATTN_OK);
    assert_int_equal(attn_structure_size(s), 2 * N);
    for (int i = 0; i < 2 * N; i++) {
        const attn_residue *r = attn_structure_residue(s, i);
        double x = i < N ? i : 100 + i - N;
        assert_true(r->has_n && r->has_ca && r->has_c && r->has_cb && r->number == i % N + 1);
        assert_true(r->n[0] == x && r->ca[0] == x && r->c[0] == x && r->cb[0] == x && r->cb[1] == 3);
    }
    attn_structure_destroy(s);
}

static void nucleotides_are_skipped(void **state)
{
    static const char text[] = "ATOM      1  P    DA D   1       0.000   0.000   0.000\n"
                               "ATOM      2  P     U R   1       0.000   0.000   0.000\n"
                               "ATOM      3  CA  XYZ P   1       0.000   0.000   0.000\n";
    attn_context *c = *state;
    attn_structure *s = NULL;
    assert_int_equal(attn_structure_parse(&s, c, text, strlen(text), "f", NULL), ATTN_OK);
    assert_string_equal(attn_structure_chain(s, 0), "P");
    assert_int_equal(attn_structure_residue(s, 0)->letter, 'X');
    attn_structure_destroy(s);
    assert_refused(c, attn_structure_parse(&s, c, text, strlen(text), "f", "D"), ATTN_ERROR_NOT_FOUND,
                   "there is no chain 'D'; the chains are 'P'");
}

static void a_byte_order_mark_is_no_text(void **state)
{
    char text[1 << 13];
    snprintf(text, sizeof text, "\xef\xbb\xbf%s", strchr(pdb, '\n') + 1);
    check_chain(text);
    snprintf(text, sizeof text, "\xef\xbb\xbf%s", cif);
    check_chain(text);
}

static void distances_follow_the_rule_asked_for(void **state)
{
    attn_context *c = *state;
    attn_structure *s = NULL;
    int64_t to[5];
    attn_structure_match match;
    float d[25];
    assert_int_equal(attn_structure_parse(&s, c, pdb, sizeof pdb - 1, "f", NULL), ATTN_OK);
    assert_int_equal(attn_structure_map(s, "-AG-M", 5, to, &match), ATTN_OK);
    assert_string_equal(match.chain, "A");
    assert_int_equal(match.aligned, 3);
    assert_true(match.identity == 1 && match.coverage == 1);
    const int64_t expected[] = {-1, 0, 1, -1, 2};
    assert_memory_equal(to, expected, sizeof to);
    attn_structure_distances(s, to, 5, ATTN_CBETA_ATOM, d);
    assert_true(isnan(d[0]) && isnan(d[1 * 5 + 3]));
    assert_float_equal(d[2 * 5 + 4], 3, 1e-6); /* distance from glycine's C-alpha to methionine's C-beta */
    assert_float_equal(d[4 * 5 + 2], 3, 1e-6);
    assert_float_equal(d[1 * 5 + 2], sqrt(1.765 * 1.765 + 3.42 * 3.42 + 0.751 * 0.751), 1e-5);
    attn_structure_distances(s, to, 5, ATTN_CBETA_IMPUTED, d);
    assert_true(isnan(d[2 * 5 + 4])); /* Without N and C, C-beta cannot be computed. */
    assert_float_equal(d[1 * 5 + 1], 0, 0);
    attn_structure_destroy(s);
}

/* The ideal C-beta has the distance 1.522 from C-alpha, the angle 1.927 to N, and the dihedral C-N-CA-CB of -2.143. */
static void an_imputed_beta_has_ideal_geometry(void **state)
{
    static const char text[] = "ATOM      1  N   ALA A   1       0.000   1.458   0.000\n"
                               "ATOM      2  CA  ALA A   1       0.000   0.000   0.000\n"
                               "ATOM      3  C   ALA A   1       1.430  -0.530   0.000\n"
                               "ATOM      4  N   GLY A   2       5.000   1.458   0.000\n"
                               "ATOM      5  CA  GLY A   2       5.000   0.000   0.000\n"
                               "ATOM      6  C   GLY A   2       6.430  -0.530   0.000\n"
                               "ATOM      4  CB  TRP A   3       0.000   0.000   0.000\n"
                               "ATOM      7  N   TRP A   3       0.000   0.000   1.458\n"
                               "ATOM      8  CA  TRP A   3       0.000   0.000   0.000\n"
                               "ATOM      9  C   TRP A   3       1.430   0.000  -0.530\n";
    attn_context *c = *state;
    attn_structure *s = NULL;
    int64_t to[3] = {0, 1, 2};
    float d[9];
    assert_int_equal(attn_structure_parse(&s, c, text, sizeof text - 1, "f", NULL), ATTN_OK);
    attn_structure_distances(s, to, 3, ATTN_CBETA_IMPUTED, d);
    assert_float_equal(d[1], 5, 1e-5); /* Residue 2 is residue 1, moved by 5. */
    /* Residue 3 is residue 1 rotated by 90 degrees about x: (x, y, z) becomes (x, -z, y). */
    double y = 1.522 * cos(1.927), out = 1.522 * sin(1.927), z = out * sin(2.143);
    double distance = hypot(y + z, z - y); /* distance from (x, y, z) to (x, -z, y) */
    double other = hypot(y - z, z + y);
    assert_float_equal(distance, other, 1e-12);
    assert_float_equal(d[2], distance, 1e-5);
    attn_structure_destroy(s);
}

static void precision_counts_the_best_pairs(void **state)
{
    const float nan = NAN;
    const float scores[16] = {0, .9f, .8f, .7f, 0, 0, .9f, .1f, 0, 0, 0, .2f, 0, 0, 0, 0};
    const float distances[16] = {0, 5, 9, 5, 0, 0, nan, 5, 0, 0, 0, 5, 0, 0, 0, 0};
    attn_context *c = *state;
    double p;
    int64_t n;
    assert_int_equal(attn_contact_precision(c, scores, distances, 4, &(attn_contact_range){1, 0, 2, 0}, &p, &n),
                     ATTN_OK);
    assert_float_equal(p, 0.5, 0); /* (0,1) is a contact, (0,2) is not a contact, and (1,2) is not resolved. */
    assert_int_equal(n, 2);
    assert_int_equal(attn_contact_precision(c, scores, distances, 4, &(attn_contact_range){2, 3, 9, 0}, &p, &n),
                     ATTN_OK);
    assert_int_equal(n, 2);
    assert_float_equal(p, 0.5, 0);
    assert_int_equal(attn_contact_precision(c, scores, distances, 4, &(attn_contact_range){3, 0, 9, 4.9}, &p, &n),
                     ATTN_OK);
    assert_float_equal(p, 0, 0);
    assert_int_equal(attn_contact_precision(c, scores, distances, 4, &(attn_contact_range){4, 0, 9, 0}, &p, &n),
                     ATTN_OK);
    assert_true(isnan(p));
}

static void check_error(const char *text, attn_status status, const char *message)
{
    attn_context *c = test_context();
    attn_structure *s = NULL;
    assert_int_equal(attn_structure_parse(&s, c, text, strlen(text), "f", NULL), status);
    assert_string_equal(attn_context_error(c), message);
    end_context(c);
}

static void errors_say_where(void **state)
{
    check_error("", ATTN_ERROR_FORMAT, "f: the file has no residues of a protein");
    check_error("ATOM      1  N   ALA A   1      11.104\n", ATTN_ERROR_FORMAT,
                "f:1: an atom's record has less than 54 columns");
    check_error("ATOM      1  N   ALA A   1      11.104   6.13x  -6.504\n", ATTN_ERROR_FORMAT,
                "f:1: columns 31 to 54 are not coordinates: '  11.104   6.13x  -6.504'");
    check_error("ATOM      1  N   ALA A   x      11.104   6.134  -6.504\n", ATTN_ERROR_FORMAT,
                "f:1: columns 23 to 26 are not a residue number: '   x'");
    check_error("ATOM      1  N   ALA Aa000      11.104   6.134  -6.504\n", ATTN_ERROR_FORMAT,
                "f:1: columns 23 to 26 are not a residue number: 'a000'");
#define HEAD                                                                                                           \
    "data_X\nloop_\n_atom_site.label_atom_id\n_atom_site.label_comp_id\n_atom_site.label_asym_id\n"                    \
    "_atom_site.auth_seq_id\n_atom_site.Cartn_x\n_atom_site.Cartn_y\n_atom_site.Cartn_z\n"
    check_error(HEAD "CA ALA A x1 0 0 0\n", ATTN_ERROR_FORMAT, "f: _atom_site: a residue number is not a number: 'x1'");
    check_error(HEAD "CA ALA A 1 0 y 0\n", ATTN_ERROR_FORMAT,
                "f: _atom_site: an atom's coordinate is not a number: 'y'");
    check_error(HEAD "CA ALA A 1 0 0 0\nCA GLY A 1 3 0 0\n", ATTN_ERROR_FORMAT,
                "f: chain 'A' has two residues with the number 1 (ALA and GLY); each residue needs a number "
                "or an insertion code of its own");
    check_error("ATOM      1  CA  ALA A   7B      1.000   0.000   0.000\n"
                "ATOM      2  CA  ALA A   7B      4.000   0.000   0.000\n",
                ATTN_ERROR_FORMAT,
                "f: chain 'A' has two residues with the number 7B (ALA and ALA); each residue needs a number "
                "or an insertion code of its own");
    check_error("data_X\nloop_\n_atom_site.id\n_atom_site.Cartn_x\n1 2\n", ATTN_ERROR_FORMAT,
                "f: _atom_site lacks a column (atom, residue, chain, number, x, y or z)");
    attn_context *c = *state;
    attn_structure *s = NULL;
    int64_t to[3];
    static const char odd[] = HEAD "CA ALA A 1 0 0\n";
    assert_refused(c, attn_structure_parse(&s, c, odd, sizeof odd - 1, "f", NULL), ATTN_ERROR_FORMAT,
                   "f: gemmi says: f:");
#undef HEAD
    assert_int_equal(attn_structure_parse(&s, c, pdb, sizeof pdb - 1, "f", NULL), ATTN_OK);
    assert_int_equal(attn_structure_map(s, "WWW", 3, to, NULL), ATTN_ERROR_FORMAT);
    attn_structure_destroy(s);
}

/* ------------------------------------------------------------------------- chains with residues that are absent */

static uint32_t draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

static void draw_protein(uint32_t *state, int n, char *letters)
{
    for (int i = 0; i < n; i++)
        letters[i] = acids[draw(state, 20)];
    letters[n] = 0;
}

/* How a file shows that residues are absent. */
typedef enum kind { BY_NUMBERS, BY_BREAKS, BY_SEQRES, BY_ENTITY, KINDS } kind;

/* Appends a straight chain without residues [begin, end) to `text`. */
static void write_chain(char *text, kind how, char chain, const char *letters, int begin, int end)
{
    int n = (int)strlen(letters), written = 0;
    char *to = text + strlen(text);
    for (int i = 0; how == BY_SEQRES && i < n; i++)
        to += sprintf(to, i % 13 ? " %s" : "%sSEQRES %3d %c %4d  %s",
                      i % 13 ? name_of(letters[i])
                      : i    ? "\n"
                             : "",
                      i / 13 + 1, chain, n, name_of(letters[i]));
    to += sprintf(to, how == BY_ENTITY ? "data_x\nloop_\n_entity_poly_seq.entity_id\n_entity_poly_seq.num\n"
                                         "_entity_poly_seq.mon_id\n"
                                       : "\n");
    for (int i = 0; how == BY_ENTITY && i < n; i++)
        to += sprintf(to, "7 %d %s\n7 %d UNK\n", i + 1, name_of(letters[i]), i + 1);
    if (how == BY_ENTITY)
        to += sprintf(to, "loop_\n_atom_site.label_atom_id\n_atom_site.label_comp_id\n_atom_site.label_asym_id\n"
                          "_atom_site.label_entity_id\n_atom_site.label_seq_id\n_atom_site.auth_seq_id\n"
                          "_atom_site.Cartn_x\n_atom_site.Cartn_y\n_atom_site.Cartn_z\n");
    for (int i = 0; i < n; i++) {
        if (i >= begin && i < end)
            continue;
        int number = how == BY_NUMBERS ? i + 11 : ++written;
        if (how == BY_ENTITY)
            to += sprintf(to, "CA %s %c 7 %d %d %.3f 0 0\n", name_of(letters[i]), chain, i + 1, number, 3.8 * i);
        else
            to += sprintf(to, "ATOM  %5d  CA  %s %c%4d    %8.3f%8.3f%8.3f\n", i, name_of(letters[i]), chain, number,
                          3.8 * i, 0.0, 0.0);
    }
}

static attn_status map_text(attn_context *c, const char *text, const char *chain, const char *query, int64_t *to,
                            double *x, attn_structure_match *match, char *taken)
{
    attn_structure *s = NULL;
    int64_t n = (int64_t)strlen(query);
    attn_status status = attn_structure_parse(&s, c, text, strlen(text), "f", chain);
    if (status == ATTN_OK)
        status = attn_structure_map(s, query, n, to, match);
    for (int64_t i = 0; status == ATTN_OK && i < n; i++)
        x[i] = to[i] < 0 ? -1 : attn_structure_residue(s, to[i])->ca[0];
    if (status == ATTN_OK && match)
        snprintf(taken, 16, "%s", match->chain);
    attn_structure_destroy(s);
    return status;
}

/* Returns the number of positions of the first chain, including absent residues. */
static int64_t positions_in(attn_context *c, const char *text)
{
    attn_structure *s = NULL;
    assert_ok(c, attn_structure_parse(&s, c, text, strlen(text), "f", NULL));
    int64_t n = s->chains[0].length;
    attn_structure_destroy(s);
    return n;
}

/* Checks that every letter has the coordinates with which it was written, or none if it is absent. If only the
 * letters determine the mapping, up to `spared` letters at each end may have none. */
static void check_places(const char *query, const double *x, int begin, int end, int spared)
{
    int n = (int)strlen(query);
    for (int i = 0; i < n; i++) {
        double expected = i >= begin && i < end ? -1 : 3.8 * i;
        bool left_out = x[i] == -1 && (i < spared || i >= n - spared);
        if (!left_out && fabs(x[i] - expected) > 1e-3)
            fail_msg("without residues %d to %d of %s, residue %d is at %g, not at %g", begin, end, query, i, x[i],
                     expected);
    }
}

static void absent_residues_stay_absent(void **state)
{
    static char text[1 << 17];
    attn_context *c = *state;
    uint32_t seed = 5;
    for (int k = 0; k < 400; k++) {
        char letters[MOST], taken[16];
        int64_t to[MOST];
        double x[MOST];
        attn_structure_match match;
        kind how = (kind)(k % KINDS);
        int n = 80 + (int)draw(&seed, 60), length = 1 + (int)draw(&seed, 15);
        int begin = 10 + (int)draw(&seed, (uint32_t)(n - 20 - length)), end = begin + length;
        draw_protein(&seed, n, letters);
        text[0] = 0;
        write_chain(text, how, 'A', letters, begin, end);
        assert_int_equal(positions_in(c, text), how == BY_BREAKS ? n - length : n);
        assert_int_equal(map_text(c, text, NULL, letters, to, x, &match, taken), ATTN_OK);
        check_places(letters, x, begin, end, 0);
        bool known = how == BY_SEQRES || how == BY_ENTITY;
        assert_int_equal(match.aligned, known ? n : n - length);
        assert_true(match.identity == 1 && fabs(match.coverage - (double)match.aligned / n) < 1e-12);
        memset(letters + 3, 'A', 5);
        assert_int_equal(map_text(c, text, NULL, letters, to, x, &match, taken), ATTN_OK);
        check_places(letters, x, begin, end, 8);
    }
}

/* If longer gaps had no higher cost, a short query would be spread over a long chain. */
static void another_protein_is_refused(void **state)
{
    static char text[1 << 17];
    attn_context *c = *state;
    uint32_t seed = 11;
    char chain[MOST], query[MOST], taken[16];
    int64_t to[MOST];
    double x[MOST];
    attn_structure_match match;
    for (int k = 0; k < 100; k++) {
        draw_protein(&seed, 223, chain);
        draw_protein(&seed, 20 + k, query);
        text[0] = 0;
        write_chain(text, BY_NUMBERS, 'E', chain, 100, 104);
        assert_refused(c, map_text(c, text, NULL, query, to, x, &match, taken), ATTN_ERROR_FORMAT,
                       "chain E does not match the query: ");
        snprintf(query, sizeof query, "%.30s", chain + 60);
        assert_int_equal(map_text(c, text, NULL, query, to, x, &match, taken), ATTN_OK);
        assert_float_equal(x[0], 3.8 * 60, 1e-3);
        draw_protein(&seed, 180, query);
        memcpy(query, chain, 25);
        assert_int_equal(map_text(c, text, NULL, query, to, x, &match, taken), ATTN_ERROR_FORMAT);
    }
}

static void the_chain_that_fits_best_is_taken(void **state)
{
    static char text[1 << 17];
    attn_context *c = *state;
    uint32_t seed = 3;
    char one[MOST], other[MOST], taken[16];
    int64_t to[MOST];
    double x[MOST];
    attn_structure_match match;
    draw_protein(&seed, 150, one);
    draw_protein(&seed, 59, other);
    write_chain(text, BY_SEQRES, 'A', one, 0, 0);
    write_chain(text, BY_SEQRES, 'B', other, 12, 30);
    write_chain(text, BY_SEQRES, 'C', other, 40, 44);
    write_chain(text, BY_SEQRES, 'D', other, 40, 44);
    assert_int_equal(map_text(c, text, NULL, other, to, x, &match, taken), ATTN_OK);
    assert_string_equal(taken, "C");
    check_places(other, x, 40, 44, 0);
    assert_int_equal(map_text(c, text, "B", other, to, x, &match, taken), ATTN_OK);
    check_places(other, x, 12, 30, 0);
    assert_int_equal(map_text(c, text, "A", other, to, x, &match, taken), ATTN_ERROR_FORMAT);
}

/* Residue numbers may jump if bonds show that no residue is absent. They may follow another convention, or the
 * file may have another chain's sequence. */
static void residue_numbers_may_jump_where_bonds_continue(void **state)
{
    static char text[1 << 17];
    attn_context *c = *state;
    uint32_t seed = 17;
    char letters[MOST], other[MOST], taken[16];
    int64_t to[MOST];
    double x[MOST];
    attn_structure_match match;
    draw_protein(&seed, 90, letters);
    draw_protein(&seed, 90, other);
    write_chain(text, BY_SEQRES, 'A', other, 0, 90);
    for (int i = 0; i < 90; i++)
        sprintf(text + strlen(text), "\nATOM  %5d  CA  %s A%4d    %8.3f%8.3f%8.3f", i, name_of(letters[i]),
                i < 40 ? i : i + 9, 3.8 * i, 0.0, 0.0);
    assert_int_equal(map_text(c, text, NULL, letters, to, x, &match, taken), ATTN_OK);
    check_places(letters, x, 0, 0, 0);
}

/* All atoms of conformation A come first, and then all of B. Hydrogens come after the whole chain, as in files of
 * some programs. */
static void conformations_grouped_by_letter_are_one_chain(void **state)
{
    attn_context *c = *state;
    static const char atom[] = "ATOM  %5d %4s%c%s A%4d    %8.3f%8.3f%8.3f\n";
    static const char cif_head[] = "data_x\nloop_\n_atom_site.label_atom_id\n_atom_site.label_alt_id\n"
                                   "_atom_site.label_comp_id\n_atom_site.label_asym_id\n_atom_site.auth_seq_id\n"
                                   "_atom_site.Cartn_x\n_atom_site.Cartn_y\n_atom_site.Cartn_z\n";
    for (int cif_file = 0; cif_file < 2; cif_file++) {
        char text[8192] = "", *to = text;
        to += cif_file ? sprintf(to, "%s", cif_head) : 0;
        for (int i = 0; i < 30; i++) {
            int number = i < 20 ? i + 1 : i - 19;
            char letter = i < 10 ? 'A' : i < 20 ? ' ' : 'B';
            if (cif_file)
                to += sprintf(to, "CA %c %s A %d %.3f 0 0\n", letter == ' ' ? '.' : letter, names[number % 20], number,
                              3.8 * number + (letter == 'B'));
            else
                to += sprintf(to, atom, i, " CA ", letter, names[number % 20], number, 3.8 * number + (letter == 'B'),
                              0.0, 0.0);
        }
        for (int number = 11; number <= 20 && !cif_file; number++)
            to += sprintf(to, atom, number, " H  ", ' ', names[number % 20], number, 0.0, 0.0, 0.0);
        attn_context_clear_error(c);
        attn_structure *s = NULL;
        assert_int_equal(attn_structure_parse(&s, c, text, strlen(text), "f", NULL), ATTN_OK);
        assert_int_equal(attn_structure_size(s), 20);
        for (int i = 0; i < 20; i++)
            assert_true(fabs(attn_structure_residue(s, i)->ca[0] - 3.8 * (i + 1)) < 1e-3);
        attn_structure_destroy(s);
    }
}

/* Case matters in words of the data, but not in names of items and keywords. */
static void keywords_of_mmcif_count_in_any_case(void **state)
{
    char text[sizeof cif + 8];
    bool item = false;
    for (size_t i = 0; i < sizeof cif; i++) {
        bool begins = i == 0 || cif[i - 1] == '\n' || cif[i - 1] == ' ';
        item = begins ? cif[i] == '_' || !strncmp(cif + i, "loop_", 5) || !strncmp(cif + i, "data_", 5) : item;
        text[i] = (char)(item && cif[i] >= 'a' && cif[i] <= 'z' ? cif[i] - 32 : cif[i]);
    }
    check_chain(text);
    assert_non_null(strstr(text, "LOOP_\n_ATOM_SITE.GROUP_PDB"));
    memcpy(text + sizeof cif - 1, "\n\0\0\n\0", 6);
    attn_context *c = *state;
    attn_structure *s = NULL;
    assert_int_equal(attn_structure_parse(&s, c, text, sizeof cif + 5, "f", NULL), ATTN_OK);
    attn_structure_destroy(s);
}

#if defined __GLIBC__ && !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ && !defined __clang__
#define COUNTED_MALLOC
void *__libc_malloc(size_t size);

/* Number of the calls of malloc until the one that fails; 0: none fails. C++ gets its memory from malloc, and the
 * context from another function. */
static long until_failure;

__attribute__((visibility("default"))) void *malloc(size_t size);
void *malloc(size_t size)
{
    return until_failure > 0 && --until_failure == 0 ? NULL : __libc_malloc(size);
}
#endif

/* An exception of C++ that has no memory becomes an error. */
static void every_allocation_of_gemmi_may_fail(void **state)
{
#ifdef COUNTED_MALLOC
    static const char *const texts[] = {pdb, cif};
    attn_context *c = *state;
    for (int i = 0; i < 2; i++) {
        long failures = 0;
        for (attn_status status = ATTN_ERROR_MEMORY; status != ATTN_OK; failures++) {
            attn_structure *s = NULL;
            attn_context_clear_error(c);
            until_failure = failures + 1;
            status = attn_structure_parse(&s, c, texts[i], strlen(texts[i]), "f", NULL);
            bool failed = until_failure == 0;
            until_failure = 0;
            assert_int_equal(status, failed ? ATTN_ERROR_MEMORY : ATTN_OK);
            attn_structure_destroy(s);
        }
        assert_true(failures > 20);
    }
#else
    (void)state;
#endif
}

static attn_status read_and_map(attn_context *context, void *user)
{
    attn_structure *s = NULL;
    int64_t to[3];
    attn_status status = attn_structure_parse(&s, context, user, strlen(user), "f", "A");
    if (status == ATTN_OK)
        status = attn_structure_map(s, "AGM", 3, to, NULL);
    attn_structure_destroy(s);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    assert_true(faults_try_all(read_and_map, (void *)pdb) > 0);
    assert_true(faults_try_all(read_and_map, (void *)cif) > 0);
    for (kind how = 0; how < KINDS; how++) {
        char text[2048] = "";
        write_chain(text, how, 'A', "AGM", 0, 0);
        assert_true(faults_try_all(read_and_map, text) > 0);
    }
}

/* Writes an extended chain of N, CA and C. Residue i, counted from 0, is at `at` angstrom times i. */
static char *write_backbone(char *to, const char *record, const char *name, int number, double at)
{
    static const char *const atoms[] = {"N", "CA", "C"};
    static const double shift[] = {0, 1.2, 2.4};
    for (int i = 0; i < 3; i++)
        to += sprintf(to, "%-6s%5d  %-3s %3s A%4d    %8.3f%8.3f%8.3f  1.00  0.00\n", record, number, atoms[i], name,
                      number, at + shift[i], 0.0, 0.0);
    return to;
}

static void check_letters(attn_context *c, const char *text, const char *letters)
{
    attn_structure *s = NULL;
    char found[MOST] = "";
    assert_ok(c, attn_structure_parse(&s, c, text, strlen(text), "f", NULL));
    for (int64_t i = 0; i < attn_structure_size(s); i++)
        found[i] = attn_structure_residue(s, i)->letter;
    attn_structure_destroy(s);
    assert_string_equal(found, letters);
}

/* ZZZ is a name that no list has, CSS one of a modified cysteine. */
static void a_modified_residue_of_hetatm_keeps_its_place(void **state)
{
    attn_context *c = *state;
    char text[8192], *to;
    static const char *const heads[] = {"", "MODRES 1ABC ZZZ A    3  TRP  MODIFIED\n",
                                        "SEQRES   1 A    5  ALA GLY CSS ALA GLY\n"};
    static const char *const names_of_third[] = {"ZZZ", "ZZZ", "CSS"}, *const letters[] = {"AGXAG", "AGWAG", "AGCAG"};
    for (int k = 0; k < 3; k++) {
        for (int bound = 0; bound < 2; bound++) {
            to = text + sprintf(text, "%s", heads[k]);
            to = write_backbone(to, "ATOM", "ALA", 1, 0);
            to = write_backbone(to, "ATOM", "GLY", 2, 3.8);
            to = write_backbone(to, "HETATM", names_of_third[k], 3, bound ? 7.6 : 107.6);
            to = write_backbone(to, "ATOM", "ALA", 4, 11.4);
            to = write_backbone(to, "ATOM", "GLY", 5, 15.2);
            to = write_backbone(to, "HETATM", "HEM", 3, 40);
            to = write_backbone(to, "HETATM", "QQQ", 3, 50);
            write_backbone(to, "HETATM", "GLY", 5, 60);
            check_letters(c, text, bound || k > 0 ? letters[k] : "AGAG");
        }
    }
}

/* In mmCIF, a residue with a number in the entity's sequence belongs to the chain. */
static void a_modified_residue_of_an_entity_keeps_its_place(void **state)
{
    attn_context *c = *state;
    static const char text[] =
        "data_x\nloop_\n_entity_poly_seq.entity_id\n_entity_poly_seq.num\n_entity_poly_seq.mon_id\n"
        "1 1 ALA 1 2 ZZZ 1 3 GLY\n"
        "loop_\n_pdbx_struct_mod_residue.id\n_pdbx_struct_mod_residue.label_comp_id\n"
        "_pdbx_struct_mod_residue.parent_comp_id\n1 ZZZ HIS\n"
        "loop_\n_atom_site.group_PDB\n_atom_site.label_atom_id\n_atom_site.label_comp_id\n"
        "_atom_site.label_asym_id\n_atom_site.label_entity_id\n_atom_site.label_seq_id\n_atom_site.auth_seq_id\n"
        "_atom_site.Cartn_x\n_atom_site.Cartn_y\n_atom_site.Cartn_z\n"
        "HETATM CA QQQ A 2 . 9 60 0 0\nATOM CA ALA A 1 1 1 0 0 0\nHETATM CA ZZZ A 1 2 2 4 0 0\nATOM CA GLY A 1 3 3 8 0 "
        "0\n"
        "HETATM CA ZZZ A 2 . 2 40 0 0\nHETATM CA MSE A 2 . 4 50 0 0\n";
    check_letters(c, text, "AHG");
    assert_int_equal(positions_in(c, text), 3);
}

/* Names that CHARMM and AMBER give to states of protonation. */
static void names_of_force_fields_are_residues(void **state)
{
    static const char *const names_of[] = {"HSD", "HSE", "HSP", "HID", "HIE", "HIP", "CYX", "CYM", "ASH", "GLH", "LYN"};
    attn_context *c = *state;
    for (int hetero = 0; hetero < 2; hetero++) {
        char text[8192], *to = text;
        for (int i = 0; i < 11; i++)
            to = write_backbone(to, hetero ? "HETATM" : "ATOM", names_of[i], i + 1, 3.8 * i);
        check_letters(c, text, "HHHHHHCCDEK");
    }
}

/* mmCIF files whose numbers, columns and coordinates are unusual, and residue numbers of PDB above 9999. */
static void what_gemmi_reads_is_read(void **state)
{
    attn_context *c = *state;
    static const char *const rows[] = {"CA ALA A 1 1 0(2) 0 0 CA GLY A 2 2 3.8(12) 0 0 CA GLY A 3 3 7.6 0 0",
                                       "CA ALA A . 1 0 0 0 CA GLY A . 2 3.8 0 0 CA GLY A ? 3 7.6 0 0",
                                       "CA ALA A 7 1 0 0 0 CA GLY A 7 2 3.8 0 0 CA GLY A 7 3 7.6 0 0",
                                       "CA ALA A 7A 1 0 0 0 CA GLY A 7B 2 3.8 0 0 CA GLY A 8 3 7.6 0 0"};
    for (size_t k = 0; k < 5; k++) {
        char text[8192] = "data_x\nloop_\n", *to = text + strlen(text);
        static const char *const tags[] = {"label_atom_id", "label_comp_id", "label_asym_id", "auth_seq_id",
                                           "label_seq_id",  "Cartn_x",       "Cartn_y",       "Cartn_z"};
        int more = k == 4 ? 70 : 0;
        for (int i = 0; i < 8; i++)
            to += sprintf(to, "_atom_site.%s\n", tags[i]);
        for (int i = 0; i < more; i++)
            to += sprintf(to, "_atom_site.more_%d\n", i);
        const char *row = rows[k % 4];
        for (int word = 1; *row; row++) {
            *to++ = *row;
            if (*row == ' ' && word++ % 8 == 0)
                for (int i = 0; i < more; i++)
                    to += sprintf(to, "%d ", i);
        }
        for (int i = 0; i < more; i++)
            to += sprintf(to, " %d", i);
        strcpy(to, "\n");
        check_letters(c, text, "AGG");
        attn_structure *s = NULL;
        assert_ok(c, attn_structure_parse(&s, c, text, strlen(text), "f", NULL));
        for (int i = 0; i < 3; i++)
            assert_true(fabs(attn_structure_residue(s, i)->ca[0] - 3.8 * i) < 1e-12);
        attn_structure_destroy(s);
    }
    attn_structure *s = NULL;
    static const char hybrid[] = "ATOM      1  CA  ALA A9999      11.104   6.134  -6.504\n"
                                 "ATOM      2  CA  GLY AA000      14.904   6.134  -6.504\n";
    assert_ok(c, attn_structure_parse(&s, c, hybrid, strlen(hybrid), "f", NULL));
    assert_int_equal(attn_structure_size(s), 2);
    assert_int_equal(attn_structure_residue(s, 1)->number, 10000);
    attn_structure_destroy(s);
}

/* A record that ends early must not take over residues of the record before it. */
static void a_short_seqres_record_is_as_long_as_it_is(void **state)
{
    static const char text[] = "SEQRES   1 A   15  ALA GLY SER THR VAL LEU ILE MET PHE TRP TYR HIS LYS\n"
                               "SEQRES   2 A   15  PRO CYS\n"
                               "ATOM      1  CA  ALA A   1      11.104   6.134  -6.504\n";
    assert_int_equal(positions_in(*state, text), 15);
}

static void a_build_without_gemmi_refuses_in_words(void **state)
{
    attn_context *c = *state;
    attn_structure *s = NULL;
    if (!attn_structures_available())
        assert_refused(c, attn_structure_parse(&s, c, pdb, sizeof pdb - 1, "f", NULL), ATTN_ERROR_UNSUPPORTED,
                       "f: structures need gemmi");
}

int main(void)
{
    const struct CMUnitTest always[] = {TEST_WITH_CONTEXT(precision_counts_the_best_pairs),
                                        TEST_WITH_CONTEXT(a_build_without_gemmi_refuses_in_words)};
    const struct CMUnitTest tests[] = {TEST(both_formats_give_the_same_chain),
                                       TEST_WITH_CONTEXT(first_of_two_residues_at_one_place_is_taken),
                                       TEST_WITH_CONTEXT(the_likeliest_alternative_is_taken),
                                       TEST_WITH_CONTEXT(atoms_of_a_residue_may_stand_apart),
                                       TEST_WITH_CONTEXT(nucleotides_are_skipped),
                                       TEST(a_byte_order_mark_is_no_text),
                                       TEST_WITH_CONTEXT(a_chain_without_a_name_is_named_in_words),
                                       TEST_WITH_CONTEXT(distances_follow_the_rule_asked_for),
                                       TEST_WITH_CONTEXT(an_imputed_beta_has_ideal_geometry),
                                       TEST_WITH_CONTEXT(errors_say_where),
                                       TEST_WITH_CONTEXT(a_modified_residue_of_hetatm_keeps_its_place),
                                       TEST_WITH_CONTEXT(a_modified_residue_of_an_entity_keeps_its_place),
                                       TEST_WITH_CONTEXT(names_of_force_fields_are_residues),
                                       TEST_WITH_CONTEXT(what_gemmi_reads_is_read),
                                       TEST_WITH_CONTEXT(a_short_seqres_record_is_as_long_as_it_is),
                                       TEST_WITH_CONTEXT(absent_residues_stay_absent),
                                       TEST_WITH_CONTEXT(another_protein_is_refused),
                                       TEST_WITH_CONTEXT(the_chain_that_fits_best_is_taken),
                                       TEST_WITH_CONTEXT(residue_numbers_may_jump_where_bonds_continue),
                                       TEST_WITH_CONTEXT(conformations_grouped_by_letter_are_one_chain),
                                       TEST_WITH_CONTEXT(keywords_of_mmcif_count_in_any_case),
                                       TEST(every_allocation_may_fail),
                                       TEST_WITH_CONTEXT(every_allocation_of_gemmi_may_fail)};
    int failed = cmocka_run_group_tests(always, NULL, NULL);
    return attn_structures_available() ? failed + cmocka_run_group_tests(tests, NULL, NULL) : failed;
}
