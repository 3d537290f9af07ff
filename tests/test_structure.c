/* SPDX-License-Identifier: MIT
 * Structures: PDB and mmCIF, residues to columns, distances, precision of contacts. */
#include "support/cmocka.h"
#include "support/faults.h"

#include "attn/alignment.h"

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
    "_atom_site.label_seq_id\n_atom_site.pdbx_PDB_ins_code\n_atom_site.Cartn_x\n_atom_site.Cartn_y\n_atom_site.Cartn_z\n"
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

static attn_context *new_context(void)
{
    attn_context *c = NULL;
    assert_int_equal(attn_context_create(&c, NULL), ATTN_OK);
    return c;
}

static void check_chain(const char *text)
{
    attn_context *c = new_context();
    attn_structure *s = NULL;
    assert_int_equal(attn_structure_parse(&s, c, text, strlen(text), "f", NULL), ATTN_OK);
    assert_string_equal(attn_structure_chain(s), "A");
    assert_int_equal(attn_structure_size(s), 3);
    const attn_residue *a = attn_structure_residue(s, 0), *g = attn_structure_residue(s, 1),
                       *m = attn_structure_residue(s, 2);
    assert_int_equal(a->letter, 'A');
    assert_int_equal(g->letter, 'G');
    assert_int_equal(m->letter, 'M');
    assert_int_equal(m->number, 3);
    assert_int_equal(m->insertion, 'A');
    assert_float_equal(a->ca[0], 11.639, 1e-12); /* the first of two locations */
    assert_float_equal(a->n[2], -6.504, 1e-12);
    assert_true(a->has_cb && !g->has_cb && !g->has_n);
    attn_structure_destroy(s);
    assert_int_equal(attn_structure_parse(&s, c, text, strlen(text), "f", "B"), ATTN_OK);
    assert_int_equal(attn_structure_residue(s, 0)->letter, 'W');
    attn_structure_destroy(s);
    assert_int_equal(attn_structure_parse(&s, c, text, strlen(text), "f", "C"), ATTN_ERROR_NOT_FOUND);
    assert_string_equal(attn_context_error(c), "f: no chain 'C'; there are 'A', 'B'");
    attn_context_destroy(c);
}

static void a_chain_without_a_name_is_named_in_words(void **state)
{
    (void)state;
    static const char text[] = "ATOM      2  CA  ALA     1      11.639   6.071  -5.147  1.00  0.00           C\n";
    attn_context *c = new_context();
    attn_structure *s;
    assert_int_equal(attn_structure_parse(&s, c, text, sizeof text - 1, "f", "B"), ATTN_ERROR_NOT_FOUND);
    assert_string_equal(attn_context_error(c), "f: no chain 'B'; its one chain has no name: leave the chain out");
    assert_int_equal(attn_structure_parse(&s, c, text, sizeof text - 1, "f", NULL), ATTN_OK);
    attn_structure_destroy(s);
    attn_context_destroy(c);
}

static void both_formats_give_the_same_chain(void **state)
{
    (void)state;
    check_chain(pdb);
    check_chain(cif);
}

static void of_two_residues_in_one_place_the_first_is_taken(void **state)
{
    (void)state;
    static const char text[] = "ATOM      1  CA AGLY A   1       1.000   0.000   0.000\n"
                               "ATOM      2  CA BSER A   1       2.000   0.000   0.000\n"
                               "ATOM      3  CB BSER A   1       3.000   0.000   0.000\n";
    attn_context *c = new_context();
    attn_structure *s = NULL;
    assert_int_equal(attn_structure_parse(&s, c, text, strlen(text), "f", NULL), ATTN_OK);
    assert_int_equal(attn_structure_size(s), 1);
    assert_int_equal(attn_structure_residue(s, 0)->letter, 'G');
    assert_true(attn_structure_residue(s, 0)->ca[0] == 1 && !attn_structure_residue(s, 0)->has_cb);
    attn_structure_destroy(s);
    attn_context_destroy(c);
}

static void nucleotides_are_no_residues(void **state)
{
    (void)state;
    static const char text[] = "ATOM      1  P    DA D   1       0.000   0.000   0.000\n"
                               "ATOM      2  P     U R   1       0.000   0.000   0.000\n"
                               "ATOM      3  CA  XYZ P   1       0.000   0.000   0.000\n";
    attn_context *c = new_context();
    attn_structure *s = NULL;
    assert_int_equal(attn_structure_parse(&s, c, text, strlen(text), "f", NULL), ATTN_OK);
    assert_string_equal(attn_structure_chain(s), "P");
    assert_int_equal(attn_structure_residue(s, 0)->letter, 'X');
    attn_structure_destroy(s);
    assert_int_equal(attn_structure_parse(&s, c, text, strlen(text), "f", "D"), ATTN_ERROR_NOT_FOUND);
    assert_non_null(strstr(attn_context_error(c), "no chain 'D'; there are 'P'"));
    attn_context_destroy(c);
}

static void a_byte_order_mark_is_no_text(void **state)
{
    (void)state;
    char text[1 << 13];
    snprintf(text, sizeof text, "\xef\xbb\xbf%s", strchr(pdb, '\n') + 1);
    check_chain(text);
    snprintf(text, sizeof text, "\xef\xbb\xbf%s", cif);
    check_chain(text);
}

static void distances_follow_the_rule_asked_for(void **state)
{
    (void)state;
    attn_context *c = new_context();
    attn_structure *s = NULL;
    int64_t to[5];
    double identity;
    float d[25];
    assert_int_equal(attn_structure_parse(&s, c, pdb, sizeof pdb - 1, "f", NULL), ATTN_OK);
    assert_int_equal(attn_structure_map(s, "-AG-M", 5, to, &identity), ATTN_OK);
    assert_float_equal(identity, 1, 0);
    const int64_t expected[] = {-1, 0, 1, -1, 2};
    assert_memory_equal(to, expected, sizeof to);
    attn_structure_distances(s, to, 5, ATTN_CBETA_ATOM, d);
    assert_true(isnan(d[0]) && isnan(d[1 * 5 + 3]));
    assert_float_equal(d[2 * 5 + 4], 3, 1e-6); /* C-alpha of glycine to C-beta of methionine */
    assert_float_equal(d[4 * 5 + 2], 3, 1e-6);
    assert_float_equal(d[1 * 5 + 2], sqrt(1.765 * 1.765 + 3.42 * 3.42 + 0.751 * 0.751), 1e-5);
    attn_structure_distances(s, to, 5, ATTN_CBETA_IMPUTED, d);
    assert_true(isnan(d[2 * 5 + 4])); /* no N and C to place it from */
    assert_float_equal(d[1 * 5 + 1], 0, 0);
    attn_structure_destroy(s);
    attn_context_destroy(c);
}

/* Ideal geometry: 1.522 from the C-alpha, angle 1.927 to N, dihedral C-N-CA-CB of -2.143. */
static void an_imputed_beta_has_ideal_geometry(void **state)
{
    (void)state;
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
    attn_context *c = new_context();
    attn_structure *s = NULL;
    int64_t to[3] = {0, 1, 2};
    float d[9];
    assert_int_equal(attn_structure_parse(&s, c, text, sizeof text - 1, "f", NULL), ATTN_OK);
    attn_structure_distances(s, to, 3, ATTN_CBETA_IMPUTED, d);
    assert_float_equal(d[1], 5, 1e-5); /* the same residue, moved by 5 */
    /* Residue 3 is residue 1 turned by a quarter about x: (x, y, z) becomes (x, -z, y). */
    double y = 1.522 * cos(1.927), out = 1.522 * sin(1.927), z = out * sin(2.143);
    double distance = hypot(y + z, z - y); /* between (x, y, z) and (x, -z, y) */
    double other = hypot(y - z, z + y);    /* were the hand the other one */
    assert_float_equal(distance, other, 1e-12);
    assert_float_equal(d[2], distance, 1e-5);
    attn_structure_destroy(s);
    attn_context_destroy(c);
}

static void precision_counts_the_best_pairs(void **state)
{
    (void)state;
    const float nan = NAN;
    const float scores[16] = {0, .9f, .8f, .7f, 0, 0, .9f, .1f, 0, 0, 0, .2f, 0, 0, 0, 0};
    const float distances[16] = {0, 5, 9, 5, 0, 0, nan, 5, 0, 0, 0, 5, 0, 0, 0, 0};
    attn_context *c = new_context();
    double p;
    int64_t n;
    assert_int_equal(attn_contact_precision(c, scores, distances, 4, &(attn_contact_range){1, 0, 2, 0}, &p, &n),
                     ATTN_OK);
    assert_float_equal(p, 0.5, 0); /* (0,1) touches, (0,2) does not; (1,2) is not resolved */
    assert_int_equal(n, 2);
    assert_int_equal(attn_contact_precision(c, scores, distances, 4, &(attn_contact_range){2, 3, 9, 0}, &p, &n),
                     ATTN_OK);
    assert_int_equal(n, 2); /* (0,2), (1,3) */
    assert_float_equal(p, 0.5, 0);
    assert_int_equal(attn_contact_precision(c, scores, distances, 4, &(attn_contact_range){3, 0, 9, 4.9}, &p, &n),
                     ATTN_OK);
    assert_float_equal(p, 0, 0);
    assert_int_equal(attn_contact_precision(c, scores, distances, 4, &(attn_contact_range){4, 0, 9, 0}, &p, &n),
                     ATTN_OK);
    assert_true(isnan(p));
    attn_context_destroy(c);
}

static void check_error(const char *text, attn_status status, const char *message)
{
    attn_context *c = new_context();
    attn_structure *s = NULL;
    assert_int_equal(attn_structure_parse(&s, c, text, strlen(text), "f", NULL), status);
    assert_string_equal(attn_context_error(c), message);
    attn_context_destroy(c);
}

static void errors_say_where(void **state)
{
    (void)state;
    check_error("", ATTN_ERROR_FORMAT, "f: no residues of a protein in it");
    check_error("ATOM      1  N   ALA A   1      11.104\n", ATTN_ERROR_FORMAT,
                "f:1: an atom's record of less than 54 columns");
    check_error("ATOM      1  N   ALA A   1      11.104   6.13x  -6.504\n", ATTN_ERROR_FORMAT,
                "f:1: columns 31 to 54 are no coordinates");
    check_error("ATOM      1  N   ALA A   x      11.104   6.134  -6.504\n", ATTN_ERROR_FORMAT,
                "f:1: columns 23 to 26 are no residue number");
    check_error("data_X\nloop_\n_atom_site.id\n_atom_site.Cartn_x\n1 2\n", ATTN_ERROR_FORMAT,
                "f:5: the loop over _atom_site lacks a column (atom, residue, chain, number, x, y or z)");
    attn_context *c = new_context();
    attn_structure *s = NULL;
    int64_t to[3];
    assert_int_equal(attn_structure_parse(&s, c, pdb, sizeof pdb - 1, "f", NULL), ATTN_OK);
    assert_int_equal(attn_structure_map(s, "WWW", 3, to, NULL), ATTN_ERROR_FORMAT);
    attn_structure_destroy(s);
    attn_context_destroy(c);
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
    (void)state;
    assert_true(faults_try_all(read_and_map, (void *)pdb) > 0);
    assert_true(faults_try_all(read_and_map, (void *)cif) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_formats_give_the_same_chain),
        cmocka_unit_test(of_two_residues_in_one_place_the_first_is_taken),
        cmocka_unit_test(nucleotides_are_no_residues),
        cmocka_unit_test(a_byte_order_mark_is_no_text),
        cmocka_unit_test(a_chain_without_a_name_is_named_in_words),
        cmocka_unit_test(distances_follow_the_rule_asked_for),
        cmocka_unit_test(an_imputed_beta_has_ideal_geometry),
        cmocka_unit_test(precision_counts_the_best_pairs),
        cmocka_unit_test(errors_say_where),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
