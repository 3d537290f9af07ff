/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests alignments: file formats, errors, the selection of rows and the ids of residues.
 */
#include "support/fixture.h"
#include "support/tensors.h"
#include "support/faults.h"

#include "data/proteins.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static attn_alignment *parse(attn_context *c, const char *text, const char *name, attn_alignment_options options)
{
    attn_alignment *a = NULL;
    attn_status status = attn_alignment_parse(&a, c, text, strlen(text), name, &options);
    if (status != ATTN_OK)
        print_error("%s\n", attn_context_error(c));
    assert_int_equal(status, ATTN_OK);
    return a;
}

/* Checks that the rows of the parsed alignment, joined by spaces, are `rows`. */
static void check_rows(const char *text, const char *name, attn_alignment_options options, attn_alignment_format origin,
                       const char *rows)
{
    attn_context *c = test_context();
    attn_alignment *a = parse(c, text, name, options);
    char joined[512] = "";
    for (int64_t i = 0; i < attn_alignment_rows(a); i++) {
        assert_int_equal(strlen(attn_alignment_row(a, i)), attn_alignment_columns(a));
        snprintf(joined + strlen(joined), sizeof joined - strlen(joined), "%s%s", i ? " " : "",
                 attn_alignment_row(a, i));
    }
    assert_string_equal(joined, rows);
    assert_int_equal(attn_alignment_origin(a), origin);
    attn_alignment_destroy(a);
    end_context(c);
}

#define NONE ((attn_alignment_options){0})

static void a3m_drops_insertions_and_extra_records(void **state)
{
    const char *text = "#A3M#\n>ss_pred\nHHHH12\n>ss_conf\n9999\n>query one\nACD\nE-\n>sequence_consensus\nACDE\n"
                       ">b\r\nAaCc..D*E-\r\n>c\n-C-EG\n";
    check_rows(text, "x.a3m", NONE, ATTN_ALIGNMENT_A3M, "ACDE- ACDE- -C-EG");
    check_rows(text, "X.A3M.GZ", NONE, ATTN_ALIGNMENT_A3M, "ACDE- ACDE- -C-EG");
    check_rows(">a\nACdE\n>b\nAC-e\n", "X.A3M", NONE, ATTN_ALIGNMENT_A3M, "ACE AC-");
    check_rows(text, "x", NONE, ATTN_ALIGNMENT_A3M, "ACDE- ACDE- -C-EG");
    check_rows(text, "x.a3m.gz", (attn_alignment_options){.max_rows = 2}, ATTN_ALIGNMENT_A3M, "ACDE- ACDE-");
    check_rows(text, "x", (attn_alignment_options){.query_columns = true}, ATTN_ALIGNMENT_A3M, "ACDE ACDE -C-E");
}

static void fasta_keeps_every_column(void **state)
{
    check_rows(">a\nAC-DE*\n>b\nac.dE*\n", "x.fasta", (attn_alignment_options){.format = ATTN_ALIGNMENT_FASTA},
               ATTN_ALIGNMENT_FASTA, "AC-DE AC-DE");
    check_rows(">a\nAC-DE\n>b\nA*~DE\n", "x.fa", NONE, ATTN_ALIGNMENT_FASTA, "AC-DE AX-DE");
}

/* A stop ('*') after the last residue is dropped, or becomes a gap if other rows are longer. */
static void stops_at_the_end_are_gaps(void **state)
{
    static const struct {
        const char *text, *rows;
    } cases[] = {
        {">q\nMKVL-\n>s\nMKVL*\n", "MKVL MKVL"},
        {">q\nMKVL*\n>s\nMKVL-\n", "MKVL MKVL"},
        {">q\nMKV*--\n>s\nMKVLA*\n", "MKV-- MKVLA"},
        {">q\nMK*\n>s\nMKV\n>t\nMK-\n", "MK- MKV MK-"},
        {">q\nM*V*\n>s\nM*--\n", "MXV M--"},
        {">q\nMKV-\n>s\nMKV-\n", "MKV- MKV-"},
        {">q\nMKV*\n>s\nMKV\n>t\nM-V*\n", "MKV MKV M-V"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_rows(cases[i].text, "x.fasta", (attn_alignment_options){.format = ATTN_ALIGNMENT_FASTA},
                   ATTN_ALIGNMENT_FASTA, cases[i].rows);
    check_rows("# STOCKHOLM 1.0\nq MK*\ns MKV\nt MK*\n#=GC RF xxx\n//\n", "x", NONE, ATTN_ALIGNMENT_STOCKHOLM,
               "MK- MKV MK-");
    check_rows("# STOCKHOLM 1.0\nq MK*\ns MK*\n#=GC RF xxx\n//\n", "x", NONE, ATTN_ALIGNMENT_STOCKHOLM, "MK MK");
}

/* Columns are numbered by counting the residues of the query in the file, including insertions. */
static void columns_are_numbered_by_residues_of_the_query(void **state)
{
    attn_context *c = *state;
    static const struct {
        const char *text, *name, *query;
        int64_t numbers[8];
    } cases[] = {
        {">q\nMKaaVL-AG\n>s\nMKVLWAG\n", "x.a3m", "MKAAVLAG", {1, 2, 5, 6, 0, 7, 8}},
        {">q\n-MKV*\n>s\nWM-V*\n", "x.fasta", "MKV", {0, 1, 2, 3}},
        {">q\nm.Kv\n>s\nmaKv\n", "x.a2m", "MKV", {1, 2, 3}},
        {"# STOCKHOLM 1.0\nq MKlV-A\ns MK.VCA\n#=GC RF xx.xxx\n//\n", "x", "MKLVA", {1, 2, 4, 0, 5}},
        {"CLUSTAL\n\nq MK-\ns MKV\n\nq VL\ns VL\n", "x", "MKVL", {1, 2, 0, 3, 4}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_context_clear_error(c);
        attn_alignment *a = parse(c, cases[i].text, cases[i].name, NONE), *chosen = NULL;
        assert_int_equal(attn_alignment_select(&chosen, a, &(attn_selection){.depth = 1}), ATTN_OK);
        assert_string_equal(attn_alignment_query(a), cases[i].query);
        assert_string_equal(attn_alignment_query(chosen), cases[i].query);
        for (int64_t k = 0; k < attn_alignment_columns(a); k++) {
            assert_int_equal(attn_alignment_number(a, k), cases[i].numbers[k]);
            assert_int_equal(attn_alignment_number(chosen, k), cases[i].numbers[k]);
        }
        attn_alignment_destroy(chosen);
        attn_alignment_destroy(a);
    }
}

/* A file of ffindex ends with a NUL byte, which is ignored. */
static void nul_bytes_at_the_end_are_passed_over(void **state)
{
    static const char one[] = ">q\nMKV\n>s\nMKL\n\0\0\n", two[] = ">q\nMKV\n\0>s\nMKL\n\0";
    attn_context *c = *state;
    attn_alignment *a = NULL;
    assert_int_equal(attn_alignment_parse(&a, c, one, sizeof one - 1, "x.a3m", NULL), ATTN_OK);
    assert_int_equal(attn_alignment_rows(a), 2);
    attn_alignment_destroy(a);
    assert_refused(c, attn_alignment_parse(&a, c, one, sizeof one - 1, "x", &(attn_alignment_options){.max_rows = -1}),
                   ATTN_ERROR_ARGUMENT, "max_rows is negative: -1");
    assert_int_equal(attn_alignment_parse(&a, c, two, sizeof two - 1, "x.a3m", NULL), ATTN_ERROR_FORMAT);
    assert_string_equal(attn_context_error(c),
                        "x.a3m:3: found a zero byte; if the file is a database of alignments, extract one of them "
                        "with ffindex_get");
}

/* Columns in which the query has a dot are insertions and are removed. Columns with lower case letters are kept,
 * because files of EVcouplings mark low coverage in this way. */
static void a2m_keeps_the_querys_columns(void **state)
{
    check_rows(">q\nAC..DE\n>b\nA-gkDE\n", "x.a2m", NONE, ATTN_ALIGNMENT_A2M, "ACDE A-DE");
    check_rows(">q\nacDEf\n>b\n.cD-.\n", "x.a2m", NONE, ATTN_ALIGNMENT_A2M, "ACDEF -CD--");
    check_rows(">q\nacDEf\n>b\n.cD-.\n", "x", NONE, ATTN_ALIGNMENT_A2M, "ACDEF -CD--");
}

static void stockholm_blocks_are_joined(void **state)
{
    const char *text = "# STOCKHOLM 1.0\n#=GF ID X\n\nq/1-4  ACg.D\nb      A-k.-\n#=GC RF xx..x\n\n"
                       "q/1-4  E\nb      e\n#=GC RF x\n//\n\n";
    check_rows(text, "x.sto", NONE, ATTN_ALIGNMENT_STOCKHOLM, "ACDE A--E");
    check_rows("# STOCKHOLM 1.0\nq AC.D\nb ACeD\n//\n", "x", NONE, ATTN_ALIGNMENT_STOCKHOLM, "ACD ACD");
    check_rows("# STOCKHOLM 1.0\nq AC\nb AD\n\nq D\nb E\n//\n", "x", (attn_alignment_options){.max_rows = 1},
               ATTN_ALIGNMENT_STOCKHOLM, "ACD");
}

static void clustal_blocks_are_joined(void **state)
{
    const char *text = "CLUSTAL W (1.83) multiple sequence alignment\n\n\nq/1-4  AC-D 3\nb      A-kE 3\n       *  .\n\n"
                       "q/1-4  EF 5\r\nb      e- 4\n       : \n";
    check_rows(text, "x.aln", NONE, ATTN_ALIGNMENT_CLUSTAL, "AC-DEF A-KEE-");
    check_rows("MUSCLE (3.8)\n\nq AC\n \nq D\n", "x", NONE, ATTN_ALIGNMENT_CLUSTAL, "ACD");
}

static void headers_of_clustal_are_recognized(void **state)
{
    static const char *const headers[] = {
        "Kalign (2.0) alignment in ClustalW format",
        "MSAPROBS version 0.9.7 multiple sequence alignment",
        "Biopython 1.84 multiple sequence alignment",
        "PROBCONS version 1.12 multiple sequence alignment",
        "clustal w",
        "MUSCLE",
        "FSA multiple sequence alignment",
        "\n \t\nCLUSTAL O(1.2.4) multiple sequence alignment",
    };
    char text[256];
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        snprintf(text, sizeof text, "%s\n\n\nq AC\ns AD\n  * \n\nq E\ns E\n", headers[i]);
        check_rows(text, "x.aln", NONE, ATTN_ALIGNMENT_CLUSTAL, "ACE ADE");
    }
}

/* Editors, and programs that pad lines, write such lines. */
static void lines_of_spaces_are_empty(void **state)
{
    check_rows("# STOCKHOLM 1.0\n   \nq AC\ns AD\n \t\nq E\ns E\n//\n  \n", "x", NONE, ATTN_ALIGNMENT_STOCKHOLM,
               "ACE ADE");
    check_rows("CLUSTAL\n  \nq AC\ns AD\n \t\nq E\ns E\n", "x", NONE, ATTN_ALIGNMENT_CLUSTAL, "ACE ADE");
    check_rows("\n \t\r\n# STOCKHOLM 1.0\nq AC\ns AD\n//\n", "x", NONE, ATTN_ALIGNMENT_STOCKHOLM, "AC AD");
    check_rows("  \n\t\n>q\nACE\n  \n>s\nADE\n", "x", NONE, ATTN_ALIGNMENT_FASTA, "ACE ADE");
}

/* The description of a sequence is not read as residues, and '*' ends a sequence. */
static void pir_is_read(void **state)
{
    static const char text[] = "C; a comment\n>P1;q\nHUMAN LACTASE\nAC-\nDE*\nC;Species: ACDE\n>F1;s\n\nA-KDE *\n";
    attn_context *c = *state;
    attn_alignment *a = parse(c, text, "x.pir", NONE);
    assert_string_equal(attn_alignment_name(a, 0), "q");
    attn_alignment_destroy(a);
    check_rows(text, "x.pir", NONE, ATTN_ALIGNMENT_FASTA, "AC-DE A-KDE");
    check_rows(text, "x.pir", (attn_alignment_options){.max_rows = 1}, ATTN_ALIGNMENT_FASTA, "AC-DE");
}

static void comments_are_no_sequences(void **state)
{
    check_rows("; made by hand\n>q\n;a note\nACE\n>s\nADE\n", "x", NONE, ATTN_ALIGNMENT_FASTA, "ACE ADE");
}

static void check_error(const char *text, attn_alignment_format format, const char *message)
{
    attn_context *c = test_context();
    attn_alignment *a = NULL;
    attn_alignment_options o = {.format = format};
    assert_refused(c, attn_alignment_parse(&a, c, text, strlen(text), "f", &o), ATTN_ERROR_FORMAT, message);
    assert_null(a);
    end_context(c);
}

static void errors_say_where(void **state)
{
    check_error("", ATTN_ALIGNMENT_ANY, "f: the file has no sequences");
    check_error("ACD\n", ATTN_ALIGNMENT_ANY, "f:1: expected '>'");
    check_error(">a\n\n>b\nA\n", ATTN_ALIGNMENT_ANY, "f:1: sequence 'a' is empty");
    check_error(">a\nACD\n>b\nAC\n", ATTN_ALIGNMENT_ANY,
                "f:3: sequence 'b' has 2 columns, but the first sequence has 3; in a3m");
    check_error(">a\nACD\n>b\nAC\n", ATTN_ALIGNMENT_FASTA,
                "f:3: sequence 'b' has 2 columns, but the first sequence has 3; the sequences must be aligned");
    check_error(">a\nAC\n>b\nA1\n", ATTN_ALIGNMENT_ANY, "f:4: '1' at column 2 is not a residue");
    check_error(">P1;a\nACD\n>P1;b\nACE\n", ATTN_ALIGNMENT_ANY,
                "f:3: a PIR header (such as >P1;name) precedes the sequence");
    check_error(">P1;a\nACD\nACD", ATTN_ALIGNMENT_ANY, "f:3: a PIR header (such as >P1;name) precedes the sequence");
    check_error(">a\nA\xff\n", ATTN_ALIGNMENT_ANY, "f:2: byte 0xff at column 2");
    check_error(">a\nabc\n", ATTN_ALIGNMENT_A3M, "f:1: sequence 'a' has only lower-case residues");
    check_error("# STOCKHOLM 1.0\nq AC\n\nz AC\n//\n", ATTN_ALIGNMENT_ANY,
                "f:4: the sequence 'z' is missing in the first block");
    check_error("# STOCKHOLM 1.0\nq A\n//\n\n# STOCKHOLM 1.0\nz A\n//\n", ATTN_ALIGNMENT_ANY,
                "f:5: found a second alignment");
    check_error("# STOCKHOLM 1.0\nq A\n//\nz A\n", ATTN_ALIGNMENT_ANY,
                "f:4: found text after the line //, which ends the alignment");
    check_error("# STOCKHOLM 1.0\nq A\nb C\nq D\n//\n", ATTN_ALIGNMENT_ANY,
                "f:4: found a second sequence of the name 'q'; the first is in line 2");
    check_error("CLUSTAL W\n\nq AC\nb AC\n\nz AC\n", ATTN_ALIGNMENT_ANY,
                "f:6: the sequence 'z' is missing in the first block");
    check_error("CLUSTAL W\n\nq AC\nq AC\n", ATTN_ALIGNMENT_ANY, "f:4: found a second sequence of the name 'q'");
    check_error("CLUSTAL W\n\nq AC 2 x\n", ATTN_ALIGNMENT_ANY, "f:3: '2' at column");
    check_error("# STOCKHOLM 1.0\nq\n", ATTN_ALIGNMENT_ANY, "f:2: no sequence follows the name 'q'");
    check_error("# STOCKHOLM 1.0\nq AC\n#=GC RF x\n", ATTN_ALIGNMENT_ANY,
                "#=GC RF has 1 columns, but the sequences have 2");
}

/* Returns a random number of Knuth's MMIX generator. The Python script that made the expected results drew the same
 * rows. */
static uint64_t next(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 33;
}

static attn_alignment *random_alignment(attn_context *c, int64_t rows, int64_t columns)
{
    static const char letters[] = "ACDE-";
    char base[64], *text = malloc((size_t)(rows * (columns + 16)));
    size_t used = 0;
    uint64_t x = 7;
    for (int64_t i = 0; i < columns; i++)
        base[i] = letters[next(&x) % 5];
    for (int64_t r = 0; r < rows; r++) {
        used += (size_t)sprintf(text + used, ">%d\n", (int)r);
        memcpy(text + used, base, (size_t)columns);
        for (uint64_t n = next(&x) % (uint64_t)columns; n > 0; n--) {
            char letter = letters[next(&x) % 5];
            text[used + next(&x) % (uint64_t)columns] = letter;
        }
        used += (size_t)columns;
        text[used++] = '\n';
    }
    attn_alignment *a = NULL;
    assert_int_equal(attn_alignment_parse(&a, c, text, used, "random", NULL), ATTN_OK);
    free(text);
    return a;
}

/* The expected rows come from the greedy selection in facebookresearch/esm's notebook, in NumPy. In the second case,
 * many rows are tied, and each mean has more than 128 terms, so that the order of summation matters. */
static void diverse_rows_are_the_notebooks(void **state)
{
    static const int expected[] = {0, 10, 13, 20, 22, 23, 24, 27, 31, 34, 35, 36, 37, 39, 43, 44, 46, 51, 57, 59};
    static const int last[] = {306, 307, 312, 313, 314, 318, 319, 320, 336, 337, 344, 346, 348, 350, 352,
                               354, 356, 357, 358, 361, 364, 368, 369, 373, 376, 379, 382, 383, 394, 395};
    attn_context *c = *state;
    attn_alignment *all = random_alignment(c, 60, 23), *chosen = NULL;
    assert_int_equal(attn_alignment_select(&chosen, all, &(attn_selection){.depth = 20}), ATTN_OK);
    assert_int_equal(attn_alignment_rows(chosen), 20);
    for (int i = 0; i < 20; i++)
        assert_int_equal(atoi(attn_alignment_name(chosen, i)), expected[i]);
    attn_alignment_destroy(chosen);
    attn_alignment_destroy(all);
    all = random_alignment(c, 400, 11);
    assert_int_equal(attn_alignment_select(&chosen, all, &(attn_selection){.depth = 150}), ATTN_OK);
    int64_t sum = 0, squares = 0;
    for (int i = 0; i < 150; i++) {
        int64_t row = atoi(attn_alignment_name(chosen, i));
        sum += row, squares += row * row;
    }
    for (int i = 0; i < 30; i++)
        assert_int_equal(atoi(attn_alignment_name(chosen, 120 + i)), last[i]);
    assert_int_equal(sum, 28126);
    assert_int_equal(squares, 7087572);
    attn_alignment_destroy(chosen);
    attn_alignment_destroy(all);
}

/* Two rows have the same mean distance to the rows chosen before, but different single distances. The first of the
 * two must be chosen. */
static void the_first_of_tied_rows_is_taken(void **state)
{
    static const char *const texts[] = {">0\nAAAA\n>1\nCCCC\n>2\nCCCA\n>3\nCAAA\n",
                                        ">0\nAAAA\n>1\nCCCC\n>2\nCAAA\n>3\nCCCA\n"};
    attn_context *c = *state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        attn_alignment *all = parse(c, texts[i], "x.fasta", NONE), *chosen = NULL;
        assert_ok(c, attn_alignment_select(&chosen, all, &(attn_selection){.depth = 3}));
        assert_string_equal(attn_alignment_name(chosen, 2), "2");
        attn_alignment_destroy(chosen);
        attn_alignment_destroy(all);
    }
}

typedef struct listener {
    int64_t calls, most;
} listener;

static bool listen(void *user, const char *things, int64_t done, int64_t total)
{
    listener *l = user;
    assert_string_equal(things, "sequences to choose");
    assert_true(done == l->calls + 1 && total == 300);
    return ++l->calls < l->most;
}

/* The selection may need memory for only a few numbers per row, whatever the depth. It reports progress and can be
 * interrupted. */
static void diverse_rows_take_little_memory_and_report_progress(void **state)
{
    enum { ROWS = 4000, COLUMNS = 23, DEPTH = 300 };
    attn_context *c = *state;
    attn_alignment *all = random_alignment(c, ROWS, COLUMNS), *chosen = NULL;
    size_t held, peak;
    listener l = {0, INT64_MAX};
    attn_context_memory(c, &held, NULL, NULL);
    attn_context_set_progress(c, listen, &l);
    assert_int_equal(attn_alignment_select(&chosen, all, &(attn_selection){.depth = DEPTH}), ATTN_OK);
    assert_int_equal(l.calls, DEPTH);
    attn_context_memory(c, NULL, &peak, NULL);
    /* With a table of all distances, the peak would be 2,400 bytes for each row. */
    assert_true(peak < held + (size_t)ROWS * 200);
    attn_alignment_destroy(chosen);
    l = (listener){0, 7};
    assert_int_equal(attn_alignment_select(&chosen, all, &(attn_selection){.depth = DEPTH}), ATTN_ERROR_INTERRUPTED);
    assert_int_equal(l.calls, 7);
    assert_null(chosen);
    attn_alignment_destroy(all);
}

static void other_choices_keep_the_query_and_the_order(void **state)
{
    attn_context *c = *state;
    attn_alignment *all = random_alignment(c, 50, 9), *chosen = NULL;
    int kinds_seen = 0;
    char previous[256] = "";
    for (uint64_t seed = 0; seed < 4; seed++) {
        attn_selection s = {.depth = 7, .how = ATTN_SELECT_RANDOM, .seed = seed};
        assert_int_equal(attn_alignment_select(&chosen, all, &s), ATTN_OK);
        assert_int_equal(attn_alignment_rows(chosen), 7);
        char names[256] = "";
        for (int i = 0; i < 7; i++) {
            int row = atoi(attn_alignment_name(chosen, i));
            assert_string_equal(attn_alignment_row(chosen, i), attn_alignment_row(all, row));
            assert_true(i == 0 ? row == 0 : row > atoi(attn_alignment_name(chosen, i - 1)));
            snprintf(names + strlen(names), sizeof names - strlen(names), "%d ", row);
        }
        kinds_seen += strcmp(names, previous) != 0;
        memcpy(previous, names, sizeof previous);
        attn_alignment_destroy(chosen);
    }
    assert_true(kinds_seen >= 3);
    attn_selection first = {.depth = 3, .how = ATTN_SELECT_FIRST}, all_rows = {.depth = 1000};
    assert_int_equal(attn_alignment_select(&chosen, all, &first), ATTN_OK);
    assert_string_equal(attn_alignment_name(chosen, 2), "2");
    attn_alignment_destroy(chosen);
    assert_int_equal(attn_alignment_select(&chosen, all, &all_rows), ATTN_OK);
    assert_int_equal(attn_alignment_rows(chosen), 50);
    attn_alignment_destroy(chosen);
    assert_int_equal(attn_alignment_select(&chosen, all, &(attn_selection){.depth = -1}), ATTN_ERROR_ARGUMENT);
    attn_alignment_destroy(all);
}

static void weights_count_like_rows(void **state)
{
    attn_context *c = *state;
    attn_alignment *a = parse(c, ">a\nACDEF\n>b\nACDEG\n>c\nACDGG\n>d\n-----\n", "x", NONE);
    double w[4];
    assert_int_equal(attn_alignment_weights(a, 0, w), ATTN_OK);
    assert_float_equal(w[0], 1.0 / 2, 0);
    assert_float_equal(w[1], 1.0 / 3, 0);
    assert_float_equal(w[2], 1.0 / 2, 0);
    assert_float_equal(w[3], 1, 0);
    assert_int_equal(attn_alignment_weights(a, 0.81, w), ATTN_OK);
    assert_float_equal(w[1], 1, 0);
    assert_int_equal(attn_alignment_weights(a, 1.5, w), ATTN_ERROR_ARGUMENT);
    attn_alignment_destroy(a);
}

/* A share of 0.55 must be 55 of 100 columns, although 0.55 * 100 is more than 55 in doubles. */
static void inexact_shares_count_whole_columns(void **state)
{
    attn_context *c = *state;
    char text[256];
    double w[2];
    int n = sprintf(text, ">a\n%0100d\n>b\n%0100d\n", 0, 0);
    for (int i = 0, column = 0; i < n; i++) {
        column = text[i] == '0' ? column + 1 : 0;
        text[i] = column == 0 ? text[i] : column > 55 && i > n / 2 ? 'C' : 'A';
    }
    attn_alignment *a = parse(c, text, "x.fa", NONE);
    assert_int_equal(attn_alignment_weights(a, 0.55, w), ATTN_OK);
    assert_float_equal(w[0], 0.5, 0);
    assert_int_equal(attn_alignment_weights(a, 0.56, w), ATTN_OK);
    assert_float_equal(w[0], 1, 0);
    attn_alignment_destroy(a);
}

/* Compares the weights with a plain loop over all pairs in double. Lengths are near multiples of the library's block
 * length. */
static void weights_are_those_of_plain_loops(void **state)
{
    enum { ROWS = 150, MOST = 300 };
    static const int lengths[] = {1, 15, 16, 17, 127, 128, 129, 300};
    static char text[ROWS * (MOST + 8)];
    attn_context *c = *state;
    unsigned random = 1;
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        int n = lengths[k], used = 0;
        for (int r = 0; r < ROWS; r++) {
            used += sprintf(text + used, ">%d\n", r);
            for (int i = 0; i < n; i++) { /* about r % 50 percent of the columns of row r have random residues */
                random = random * 1664525u + 1013904223u;
                bool own = (random >> 16) % 100 < (unsigned)(r % 50);
                text[used++] = own ? "ACDE-"[(random >> 8) % 5] : "ACDEFGHIK-"[i % 10];
            }
            text[used++] = '\n';
        }
        text[used] = 0;
        attn_alignment *a = parse(c, text, "x.fa", NONE);
        double weights[ROWS];
        assert_int_equal(attn_alignment_weights(a, 0.62, weights), ATTN_OK);
        for (int i = 0; i < ROWS; i++) {
            int alike = 0;
            for (int j = 0; j < ROWS; j++) {
                int equal = 0;
                for (int q = 0; q < n; q++)
                    equal += attn_alignment_row(a, i)[q] == attn_alignment_row(a, j)[q];
                alike += (double)equal >= 0.62 * (double)n;
            }
            assert_true(weights[i] == 1.0 / alike);
        }
        attn_alignment_destroy(a);
    }
}

typedef struct telling {
    int64_t times, done, total;
} telling;

static bool count_telling(void *user, const char *things, int64_t done, int64_t total)
{
    telling *t = user;
    assert_string_equal(things, "blocks of sequence pairs");
    assert_true(done > t->done && (t->total == 0 || t->total == total));
    *t = (telling){t->times + 1, done, total};
    return true;
}

static bool stop_at_once(void *user, const char *things, int64_t done, int64_t total)
{
    (void)user, (void)things, (void)done, (void)total;
    return false;
}

/* With 8,200 rows, the comparison is divided into parts. There are seven kinds of rows, and two rows are similar
 * only if they are of the same kind. */
static void many_rows_are_compared_in_parts(void **state)
{
    enum { ROWS = 8200, KINDS = 7 };
    static char text[ROWS * 16];
    static double weights[ROWS], again[ROWS];
    attn_context *c = *state;
    telling told = {0};
    int used = 0;
    for (int r = 0; r < ROWS; r++)
        used += sprintf(text + used, ">%d\n%.4s\n", r, &"AAAACCCCDDDDEEEEFFFFGGGGHHHH"[4 * (r % KINDS)]);
    attn_alignment *a = parse(c, text, "x.fa", NONE);
    attn_context_set_progress(c, count_telling, &told);
    assert_int_equal(attn_alignment_weights(a, 0, weights), ATTN_OK);
    attn_context_set_progress(c, stop_at_once, NULL);
    assert_refused(c, attn_alignment_weights(a, 0, again), ATTN_ERROR_INTERRUPTED, "blocks of sequence pairs");
    attn_context_set_progress(c, NULL, NULL);
    assert_true(told.times > 16 && told.done == told.total);
    for (int r = 0; r < ROWS; r++)
        assert_true(weights[r] == 1.0 / (ROWS / KINDS + (r % KINDS < ROWS % KINDS)));
    attn_alignment_destroy(a);
}

/* The paper's example (Henikoff and Henikoff 1994) has the weights 0.267, 0.267, 0.200, 0.267. */
static void position_weights_are_the_papers(void **state)
{
    attn_context *c = *state;
    attn_alignment *a = parse(c, ">1\nGYVGS\n>2\nGFDGF\n>3\nGYDGF\n>4\nGYQGG\n", "x", NONE);
    double w[5];
    assert_int_equal(attn_alignment_position_weights(a, w), ATTN_OK);
    assert_true(fabs(w[0] - 4 * 4.0 / 15) < 1e-12);
    assert_true(fabs(w[1] - 4 * 4.0 / 15) < 1e-12);
    assert_true(fabs(w[2] - 4 * 3.0 / 15) < 1e-12);
    assert_true(fabs(w[3] - 4 * 4.0 / 15) < 1e-12);
    attn_alignment_destroy(a);
    /* Gaps and X are not residues. The third row has one residue, in column 2. Column 2 has two kinds of residue, of
     * which one occurs three times. */
    a = parse(c, ">1\nGY\n>2\nGF\n>3\n-Y\n>4\nXY\n>5\n--\n", "x", NONE);
    assert_int_equal(attn_alignment_position_weights(a, w), ATTN_OK);
    double raw[] = {(1.0 / 2 + 1.0 / 6) / 2, (1.0 / 2 + 1.0 / 2) / 2, 1.0 / 6, 1.0 / 6, 0};
    for (int i = 0; i < 5; i++)
        assert_true(fabs(w[i] - raw[i] * 5 / (raw[0] + raw[1] + raw[2] + raw[3])) < 1e-12);
    attn_alignment_destroy(a);
    a = parse(c, ">1\n--\n>2\nXX\n", "x", NONE);
    assert_int_equal(attn_alignment_position_weights(a, w), ATTN_OK);
    assert_true(w[0] == 0 && w[1] == 0);
    attn_alignment_destroy(a);
}

/* 90 copies of a row and 10 single rows have 11 different rows. So 5 weighted draws have 5/11 copies on average.
 * Without weights, they would have 4.5 copies. */
static void weighted_choice_passes_over_copies(void **state)
{
    static const char letters[] = "ACDEFGHIKLM";
    char text[4096], row[11] = "";
    int used = sprintf(text, ">q\nWWWWWWWWWW\n"), copies = 0;
    for (int i = 0; i < 100; i++)
        used += sprintf(text + used, ">%d\n%s\n", i, (char *)memset(row, letters[i < 90 ? 0 : i - 89], 10));
    attn_context *c = *state;
    attn_alignment *all = parse(c, text, "x", NONE), *some;
    for (int seed = 0; seed < 200; seed++) {
        attn_selection how = {.depth = 6, .how = ATTN_SELECT_WEIGHTED, .seed = (uint64_t)seed};
        assert_int_equal(attn_alignment_select(&some, all, &how), ATTN_OK);
        assert_int_equal(attn_alignment_rows(some), 6);
        assert_string_equal(attn_alignment_name(some, 0), "q");
        for (int i = 1; i < 6; i++)
            copies += attn_alignment_row(some, i)[0] == 'A';
        attn_alignment_destroy(some);
    }
    assert_true(copies > 200 * 0.3 && copies < 200 * 0.65);
    attn_alignment_destroy(all);
}

static void residues_have_the_models_ids(void **state)
{
    static const int32_t expected[] = {0, 20, 15, 11, 7, 10, 16, 6, 30, 24, 0, 24, 25, 26, 27, 28, 24, 4, 5, 24};
    attn_context *c = *state;
    attn_alignment *a = parse(c, ">a\nMKTVRQG-X\n>b\nXBUZOJLAX\n", "x", NONE);
    int32_t ids[20];
    attn_alignment_tokens(a, ids);
    assert_memory_equal(ids, expected, sizeof ids);
    assert_int_equal(attn_residue_id('a'), -1);
    assert_int_equal(attn_residue_id('.'), 29);
    assert_string_equal(attn_residue_symbol(ATTN_RESIDUE_MASK), "<mask>");
    assert_null(attn_residue_symbol(33));
    attn_alignment_destroy(a);
}

/* Checks the shares of masked, replaced and kept residues, of 20,000. Whether a residue is masked does not depend on
 * its neighbours. */
static void residues_are_hidden_by_place(void **state)
{
    enum { N = 20000 };
    static int32_t tokens[N], labels[N], other[N], other_labels[N];
    for (int i = 0; i < N; i++) {
        tokens[i] = i % 100 == 0 ? ATTN_RESIDUE_CLS : 4 + i % 20;
        other[i] = i < N / 2 ? ATTN_RESIDUE_PAD : tokens[i];
    }
    attn_masking masking = {.seed = 3, .stream = 5};
    int64_t chosen = attn_mask_residues(&masking, N, tokens, labels), counts[3] = {0};
    for (int i = 0; i < N; i++) {
        int32_t before = i % 100 == 0 ? ATTN_RESIDUE_CLS : 4 + i % 20;
        if (labels[i] < 0) {
            assert_int_equal(tokens[i], before);
            continue;
        }
        assert_int_equal(labels[i], before);
        counts[tokens[i] == ATTN_RESIDUE_MASK ? 0 : tokens[i] == before ? 1 : 2]++;
    }
    assert_true(chosen > 0.14 * N && chosen < 0.16 * N);
    assert_int_equal(chosen, counts[0] + counts[1] + counts[2]);
    assert_true(counts[0] > 0.77 * (double)chosen && counts[0] < 0.83 * (double)chosen);
    assert_true(counts[1] > 0.08 * (double)chosen && counts[2] > 0.07 * (double)chosen);
    attn_mask_residues(&masking, N, other, other_labels);
    for (int i = 0; i < N; i++)
        assert_int_equal(other_labels[i], i < N / 2 ? -1 : labels[i]);
    masking.stream = 6;
    attn_mask_residues(&masking, N / 2, tokens, other_labels);
    assert_true(memcmp(labels, other_labels, N / 2 * sizeof *labels) != 0);
}

static attn_status read_and_choose(attn_context *context, void *user)
{
    static const char text[] = ">a\nACDE\n>b\nACDF\n>c\nGGGG\n>d\nACCC\n";
    attn_alignment *all = NULL, *some = NULL;
    attn_selection *selection = user;
    attn_status status = attn_alignment_parse(&all, context, text, sizeof text - 1, "f", NULL);
    if (status == ATTN_OK)
        status = attn_alignment_select(&some, all, selection);
    attn_alignment_destroy(some);
    attn_alignment_destroy(all);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    assert_true(faults_try_all(read_and_choose, &(attn_selection){.depth = 2}) > 0);
    assert_true(faults_try_all(read_and_choose, &(attn_selection){.depth = 2, .how = ATTN_SELECT_RANDOM}) > 0);
    assert_true(faults_try_all(read_and_choose, &(attn_selection){.depth = 2, .how = ATTN_SELECT_WEIGHTED}) > 0);
}

RUN_TESTS(TEST(a3m_drops_insertions_and_extra_records), TEST(fasta_keeps_every_column),
          TEST_WITH_CONTEXT(nul_bytes_at_the_end_are_passed_over),
          TEST_WITH_CONTEXT(columns_are_numbered_by_residues_of_the_query), TEST(stops_at_the_end_are_gaps),
          TEST(a2m_keeps_the_querys_columns), TEST(stockholm_blocks_are_joined), TEST(clustal_blocks_are_joined),
          TEST(lines_of_spaces_are_empty), TEST(headers_of_clustal_are_recognized), TEST_WITH_CONTEXT(pir_is_read),
          TEST(comments_are_no_sequences), TEST(errors_say_where), TEST_WITH_CONTEXT(diverse_rows_are_the_notebooks),
          TEST_WITH_CONTEXT(the_first_of_tied_rows_is_taken),
          TEST_WITH_CONTEXT(diverse_rows_take_little_memory_and_report_progress),
          TEST_WITH_CONTEXT(other_choices_keep_the_query_and_the_order), TEST_WITH_CONTEXT(weights_count_like_rows),
          TEST_WITH_CONTEXT(inexact_shares_count_whole_columns), TEST_WITH_CONTEXT(weights_are_those_of_plain_loops),
          TEST_WITH_CONTEXT(many_rows_are_compared_in_parts), TEST_WITH_CONTEXT(position_weights_are_the_papers),
          TEST_WITH_CONTEXT(weighted_choice_passes_over_copies), TEST_WITH_CONTEXT(residues_have_the_models_ids),
          TEST(residues_are_hidden_by_place), TEST(every_allocation_may_fail))
