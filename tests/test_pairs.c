/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests sentence pairs: preparation of text, reading, and splitting into parts.
 */
#include "support/fixture.h"
#include "support/tensors.h"
#include "support/faults.h"

#include "data/sentences.h"
#include "attn/io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_normalized(const char *text, attn_compat compat, const char *expected)
{
    attn_context *c = test_context();
    char out[256];
    size_t needed;
    assert_int_equal(attn_text_normalize(c, text, strlen(text), compat, out, sizeof out, &needed), ATTN_OK);
    assert_string_equal(out, expected);
    assert_int_equal(needed, strlen(expected));
    assert_true(needed <= 2 * strlen(text));
    end_context(c);
}

static void text_is_prepared(void **state)
{
    check_normalized("Go.", ATTN_COMPAT_NONE, "go .");
    check_normalized("Va\xe2\x80\xaf!", ATTN_COMPAT_NONE, "va !");
    check_normalized("Va\xe2\x80\xaf!", ATTN_COMPAT_D2L, "va !");
    check_normalized("\xc3\x89t\xc3\xa9, \xc5\x92uvre \xc3\x87"
                     "a ?",
                     ATTN_COMPAT_NONE,
                     "\xc3\xa9t\xc3\xa9 , \xc5\x93uvre \xc3\xa7"
                     "a ?");
    check_normalized("J\xe2\x80\x99"
                     "ai 3.14 \xe2\x82\xac\xe2\x80\x89; 10:30:",
                     ATTN_COMPAT_NONE, "j'ai 3.14 \xe2\x82\xac ; 10:30 :");
    check_normalized("J\xe2\x80\x99"
                     "ai 3.14 ; x:",
                     ATTN_COMPAT_D2L,
                     "j\xe2\x80\x99"
                     "ai 3 .14 ; x:");
    check_normalized("co\xc2\xadop\xe2\x80\x8b"
                     "eration...",
                     ATTN_COMPAT_NONE, "cooperation . . .");
    check_normalized("\xc4\xb0\xc6\x8f\xc6\x81 \xe1\xbc\x88\xd3\x80", ATTN_COMPAT_NONE, /* İƏƁ ἈӀ */
                     "i\xc9\x99\xc9\x93 \xe1\xbc\x80\xd3\x8f");
    check_normalized("  a   b  ", ATTN_COMPAT_NONE, "a b");
    check_normalized("!?", ATTN_COMPAT_NONE, "! ?");
    check_normalized("\xc2\xab\xc2\xa0Oui\xc2\xa0\xc2\xbb", ATTN_COMPAT_NONE, "\xc2\xab oui \xc2\xbb");
    check_normalized("", ATTN_COMPAT_NONE, "");
}

static void a_small_buffer_cuts_and_tells_the_length(void **state)
{
    attn_context *c = *state;
    char out[4];
    size_t needed;
    assert_int_equal(attn_text_normalize(c, "Hello!", 6, ATTN_COMPAT_NONE, out, sizeof out, &needed), ATTN_OK);
    assert_string_equal(out, "hel");
    assert_int_equal(needed, 7);
    assert_int_equal(attn_text_normalize(c, "Hello!", 6, ATTN_COMPAT_NONE, NULL, 0, &needed), ATTN_OK);
    assert_int_equal(needed, 7);
    assert_int_equal(attn_text_detokenize("a , b !", false, out, sizeof out), 5);
    assert_string_equal(out, "a, ");
}

static void invalid_utf8_is_told(void **state)
{
    attn_context *c = *state;
    static const char *const bad[] = {
        "ab\xff", "ab\xc3", "ab\xc0\x80", "ab\xed\xa0\x80", "ab\xf4\x90\x80\x80", "ab\x80", "ab\xf8\x90\x80\x80"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        attn_context_clear_error(c);
        char out[16];
        assert_int_equal(attn_text_normalize(c, bad[i], strlen(bad[i]), ATTN_COMPAT_NONE, out, sizeof out, NULL),
                         ATTN_ERROR_FORMAT);
        assert_string_equal(attn_context_error(c), "byte 2: invalid UTF-8");
    }
}

static void tokens_are_joined_for_reading(void **state)
{
    char out[64];
    attn_text_detokenize("oui , \xc3\xa7"
                         "a va ! . . .",
                         true, out, sizeof out);
    assert_string_equal(out, "oui, \xc3\xa7"
                             "a va !...");
    attn_text_detokenize("yes , it is ! so : go ; on ?", false, out, sizeof out);
    assert_string_equal(out, "yes, it is! so: go; on?");
    assert_int_equal(attn_text_detokenize("", false, out, sizeof out), 0);
}

/* ------------------------------------------------------------------------------------------------ pairs */

static attn_status parse(attn_pairs **pairs, attn_context *c, const char *text, const attn_pairs_options *options)
{
    return attn_pairs_parse(pairs, c, text, strlen(text), "f.txt", options);
}

static void pairs_are_read(void **state)
{
    attn_context *c = *state;
    attn_pairs *pairs;
    assert_int_equal(parse(&pairs, c, "\xef\xbb\xbfGo.\tVa !\r\n\nHi.\tSalut !\tCC-BY\nRun!\tCours\xe2\x80\xaf!", NULL),
                     ATTN_OK);
    assert_int_equal(attn_pairs_size(pairs), 3);
    assert_string_equal(attn_pairs_get(pairs, 0).source, "go .");
    assert_string_equal(attn_pairs_get(pairs, 0).target, "va !");
    assert_string_equal(attn_pairs_get(pairs, 1).target, "salut !");
    assert_string_equal(attn_pairs_get(pairs, 2).target, "cours !");
    attn_pairs_destroy(pairs);
    assert_int_equal(parse(&pairs, c, "a\tb\nc\td\ne\tf\n", &(attn_pairs_options){.max_examples = 1}), ATTN_OK);
    assert_int_equal(attn_pairs_size(pairs), 1);
    attn_pairs_destroy(pairs);
    assert_int_equal(
        parse(&pairs, c, "a\tb\nc\td\ne\tf\n", &(attn_pairs_options){.max_examples = 1, .compat = ATTN_COMPAT_D2L}),
        ATTN_OK);
    assert_int_equal(attn_pairs_size(pairs), 2);
    attn_pairs_destroy(pairs);
}

/* Old spreadsheets end lines with CR. A file may mix LF, CR LF and CR. */
static void lines_may_end_with_cr_alone(void **state)
{
    attn_context *c = *state;
    attn_pairs *pairs;
    assert_int_equal(parse(&pairs, c, "one\tun\rtwo\tdeux\r\rthree\ttrois\r\nfour\tquatre", NULL), ATTN_OK);
    assert_int_equal(attn_pairs_size(pairs), 4);
    assert_string_equal(attn_pairs_get(pairs, 1).source, "two");
    assert_string_equal(attn_pairs_get(pairs, 2).target, "trois");
    attn_pairs_destroy(pairs);
    assert_int_equal(parse(&pairs, c, "a\tb\rno tab\r", NULL), ATTN_ERROR_FORMAT);
    assert_string_equal(attn_context_error(c), "f.txt:2: expected a tab between two sentences");
}

static void note_form(void *user, int64_t line, const char *text)
{
    if (line == 0)
        snprintf(user, 256, "%s", text);
}

/* The number of pairs, the first pair and the note of files in the forms that downloads and spreadsheets have. */
static void numbers_quotes_and_headers_are_no_sentences(void **state)
{
    attn_context *c = *state;
    static const struct {
        const char *text;
        int n;
        const char *source, *target, *note;
    } cases[] = {
        {"1\tGo.\t7\tVa !\n2\tRun.\t8\tCours !\tx\n", 2, "Go.", "Va !",
         "f.txt: each sentence has a number before it, which is left out"},
        {"\xef\xbb\xbf"
         "1\tGo.\t7\tVa !\n",
         1, "Go.", "Va !", "f.txt: each sentence has a number before it, which is left out"},
        {"id\tsentence\tid\ttranslation\n1\tGo.\t7\tVa !\n", 1, "Go.", "Va !",
         "f.txt: each sentence has a number before it, which is left out; line 1 names the columns and is left out"},
        /* one line without numbers: all lines are as they are written */
        {"1\tGo.\t7\tVa !\nRun.\tCours !\n", 2, "1", "Go.", ""},
        {"1\tun\n2\tdeux\n", 2, "1", "un", ""},
        {"\"Go.\"\t\"Va !\"\n\"a \"\"b\"\"\"\t\"c\"\n", 2, "Go.", "Va !",
         "f.txt: the quotes around the fields are left out"},
        {"\"a \"\"b\"\" c\"\tx\ny\t\"z, z\"\n", 2, "a \"b\" c", "x",
         "f.txt: the quotes around the fields are left out"},
        {"\"Go!\" he said.\t\xc2\xab Va ! \xc2\xbb\n\"Run.\"\tCours !\n", 2, "\"Go!\" he said.",
         "\xc2\xab Va ! \xc2\xbb", ""},
        {"\n\"English\"\t\"French\"\n\"Go.\"\t\"Va !\"\n", 1, "Go.", "Va !",
         "f.txt: the quotes around the fields are left out; line 2 names the columns and is left out"},
        {"en\tfr\nGo.\tVa !\n", 1, "Go.", "Va !", "f.txt: line 1 names the columns and is left out"},
        {"en_US\tfr-FR\nGo.\tVa !\n", 1, "Go.", "Va !", "f.txt: line 1 names the columns and is left out"},
        {"eng_Latn\tfra_Latn\nGo.\tVa !\n", 1, "Go.", "Va !", "f.txt: line 1 names the columns and is left out"},
        {"English sentence\tFrench sentence\nGo.\tVa !\n", 1, "Go.", "Va !",
         "f.txt: line 1 names the columns and is left out"},
        {"English_ok\tFrench lessons\nGo.\tVa !\n", 2, "English_ok", "French lessons", ""},
        {"id\tsource\ttarget\n7\tGo.\tVa !\n", 1, "Go.", "Va !",
         "f.txt: the first field of each line is left out; line 1 names the columns and is left out"},
        {"score\tsrc\ttgt\n0.93\tGo.\tVa !\n", 1, "Go.", "Va !",
         "f.txt: the first field of each line is left out; line 1 names the columns and is left out"},
        {"1\tGo.\tVa !\n2\tRun.\tCours !\n", 2, "Go.", "Va !", "f.txt: the first field of each line is left out"},
        {"1\tone\tCC-BY\n", 1, "1", "one", ""},
        {"en\tfr\tlicense\nGo.\tVa !\tCC\n", 1, "Go.", "Va !", "f.txt: line 1 names the columns and is left out"},
        {"source\ttarget", 1, "source", "target", ""}, /* the only line is a pair */
        {"English\tAnglais\nGo.\tVa !\n", 2, "English", "Anglais", ""},
        {"1\t\"Go.\"\t7\t\"Va !\"\n", 1, "Go.", "Va !",
         "f.txt: each sentence has a number before it, which is left out; the quotes around the fields are left out"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char note[256] = "";
        attn_pairs *pairs;
        attn_pairs_options options = {.keep_text = true, .bad = {note_form, note}};
        assert_int_equal(parse(&pairs, c, cases[i].text, &options), ATTN_OK);
        assert_int_equal(attn_pairs_size(pairs), cases[i].n);
        assert_string_equal(attn_pairs_get(pairs, 0).source, cases[i].source);
        assert_string_equal(attn_pairs_get(pairs, 0).target, cases[i].target);
        assert_string_equal(note, cases[i].note);
        attn_pairs_destroy(pairs);
        /* the same with a maximum, which bounds the memory */
        assert_int_equal(parse(&pairs, c, cases[i].text, &(attn_pairs_options){.keep_text = true, .max_examples = 1}),
                         ATTN_OK);
        assert_int_equal(attn_pairs_size(pairs), 1);
        assert_string_equal(attn_pairs_get(pairs, 0).source, cases[i].source);
        attn_pairs_destroy(pairs);
    }
}

static void bad_lines_are_named(void **state)
{
    attn_context *c = *state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "f.txt: there are no sentence pairs"},
        {"\n\r\n", "f.txt: there are no sentence pairs"},
        {"a\tb\n\nno tab\n", "f.txt:3: expected a tab between two sentences"},
        {"a\tb\n\tc\n", "f.txt:2: the sentence before the tab is missing"},
        {"a\tb\nc\t \n", "f.txt:2: the sentence after the tab is missing"},
        {"a\tb\nc\td\xff\n", "f.txt:2: invalid UTF-8 at byte 3 of the line"},
        {"\rabc", "f.txt:2: expected a tab between two sentences"},
        {"a\tb\n123456789\n", "f.txt:2: the line has 9 bytes; at most 8 are supported"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_context_clear_error(c);
        attn_pairs *pairs;
        assert_int_equal(parse(&pairs, c, cases[i].text, &(attn_pairs_options){.max_line = 8}), ATTN_ERROR_FORMAT);
        assert_null(pairs);
        assert_string_equal(attn_context_error(c), cases[i].error);
    }
}

static void a_line_of_a_megabyte_is_refused(void **state)
{
    attn_context *c = *state;
    attn_pairs *pairs;
    size_t size = 1 << 20;
    char *text = malloc(size);
    memset(text, 'x', size);
    text[5] = '\t';
    assert_int_equal(attn_pairs_parse(&pairs, c, text, size, "f.txt", NULL), ATTN_ERROR_FORMAT);
    assert_string_equal(attn_context_error(c), "f.txt:1: the line has 1048576 bytes; at most 65536 are supported");
    free(text);
}

/* Pair i is "s<i mod sources>" and "t<i>". */
static attn_pairs *numbered(attn_context *c, int n, int sources)
{
    char *text = malloc((size_t)n * 32), *at = text;
    for (int i = 0; i < n; i++)
        at += sprintf(at, "s%d\tt%d\n", i % sources, i);
    attn_pairs *pairs;
    assert_int_equal(attn_pairs_parse(&pairs, c, text, (size_t)(at - text), "n", NULL), ATTN_OK);
    free(text);
    return pairs;
}

static int part_of_source(attn_pairs *const parts[3], const char *source)
{
    int found = -1;
    for (int p = 0; p < 3; p++) {
        for (int64_t i = 0; i < attn_pairs_size(parts[p]); i++) {
            if (strcmp(attn_pairs_get(parts[p], i).source, source) == 0) {
                assert_true(found == -1 || found == p);
                found = p;
            }
        }
    }
    return found;
}

static void translations_of_a_sentence_stay_together(void **state)
{
    attn_context *c = *state;
    attn_pairs *all = numbered(c, 3000, 1000), *parts[3], *again[3];
    attn_pairs_split_options options = {.seed = 7, .valid = 0.1, .test = 0.2};
    assert_int_equal(attn_pairs_split(&parts[0], &parts[1], &parts[2], all, &options), ATTN_OK);
    assert_int_equal(attn_pairs_split(&again[0], &again[1], &again[2], all, &options), ATTN_OK);
    int64_t sum = 0;
    for (int p = 0; p < 3; p++) {
        assert_int_equal(attn_pairs_size(parts[p]), attn_pairs_size(again[p]));
        sum += attn_pairs_size(parts[p]);
    }
    assert_int_equal(sum, 3000);
    assert_in_range(attn_pairs_size(parts[1]), 200, 400);
    assert_in_range(attn_pairs_size(parts[2]), 480, 720);
    for (int i = 0; i < 1000; i += 37) {
        char source[16];
        snprintf(source, sizeof source, "s%d", i);
        assert_true(part_of_source(parts, source) >= 0);
    }
    for (int p = 0; p < 3; p++) {
        attn_pairs_destroy(parts[p]);
        attn_pairs_destroy(again[p]);
    }
    assert_int_equal(
        attn_pairs_split(&parts[0], &parts[1], NULL, all, &(attn_pairs_split_options){.compat = ATTN_COMPAT_D2L}),
        ATTN_OK);
    assert_int_equal(attn_pairs_size(parts[0]), 512);
    assert_int_equal(attn_pairs_size(parts[1]), 3000 - 512);
    attn_pairs_destroy(parts[0]);
    attn_pairs_destroy(parts[1]);
    assert_int_equal(
        attn_pairs_split(&parts[0], NULL, NULL, all, &(attn_pairs_split_options){.valid = 0.5, .test = 0.5}),
        ATTN_ERROR_ARGUMENT);
    attn_pairs_destroy(all);
}

/* Splits 3000 pairs with different hashes. A share of 0 means the default of a twentieth, and a negative share means
 * an empty part. */
static void negative_shares_give_empty_parts(void **state)
{
    attn_context *c = *state;
    static const struct {
        double valid, test;
        int64_t least[3], most[3];
    } cases[] = {{-1, -1, {3000, 0, 0}, {3000, 0, 0}},
                 {-1, 0.5, {1400, 0, 1400}, {1600, 0, 1600}},
                 {0, -1, {2800, 100, 0}, {2900, 200, 0}},
                 {0, 0, {2600, 100, 100}, {2800, 200, 200}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_context_clear_error(c);
        attn_pairs *all = numbered(c, 3000, 3000), *parts[3];
        attn_pairs_split_options options = {.seed = 7, .valid = cases[i].valid, .test = cases[i].test};
        assert_int_equal(attn_pairs_split(&parts[0], &parts[1], &parts[2], all, &options), ATTN_OK);
        for (int p = 0; p < 3; p++) {
            assert_true(attn_pairs_size(parts[p]) >= cases[i].least[p] &&
                        attn_pairs_size(parts[p]) <= cases[i].most[p]);
            attn_pairs_destroy(parts[p]);
        }
        attn_pairs_destroy(all);
    }
}

static attn_status read_and_split(attn_context *c, void *user)
{
    (void)user;
    attn_pairs *all, *train = NULL, *valid = NULL;
    attn_status status = parse(&all, c, "a\tb\nc\td\ne\tf\n", NULL);
    if (status == ATTN_OK)
        status = attn_pairs_split(&train, &valid, NULL, all, NULL);
    attn_pairs_destroy(train);
    attn_pairs_destroy(valid);
    attn_pairs_destroy(all);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    assert_true(faults_try_all(read_and_split, NULL) >= 5);
}

/* A pair is removed if an earlier pair has the same sentences, or if one side is much longer than the other. The
 * other pairs keep their order. */
static void pairs_are_filtered_and_mixed(void **state)
{
    static const char text[] =
        "a b\tx y\na b\tx z\na b\tx y\nab\t\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\nab\tabcde\na b\tx y\n";
    attn_context *c = *state;
    attn_pairs *all, *kept, *mixed;
    attn_pairs_filtered counts;
    attn_pairs_filter_options options = {.max_ratio = 2, .unique = true};
    assert_int_equal(attn_pairs_parse(&all, c, text, sizeof text - 1, "f", NULL), ATTN_OK);
    assert_int_equal(attn_pairs_filter(&kept, &counts, all, &options), ATTN_OK);
    assert_int_equal(counts.duplicates, 2);
    /* Lengths are compared in characters: 2 and 4 characters are similar enough, although they have 2 and 8 bytes. */
    assert_int_equal(counts.unlike, 1);
    assert_int_equal(attn_pairs_size(kept), 3);
    assert_string_equal(attn_pairs_get(kept, 1).target, "x z");
    assert_string_equal(attn_pairs_get(kept, 2).source, "ab");
    assert_int_equal(attn_pairs_mix(&mixed, kept, all, 2, 1), ATTN_OK);
    assert_int_equal(attn_pairs_size(mixed), 5);
    assert_string_equal(attn_pairs_get(mixed, 1).target, "x z");
    attn_pairs_destroy(mixed);
    assert_int_equal(attn_pairs_mix(&mixed, kept, all, 100, 1), ATTN_OK);
    assert_int_equal(attn_pairs_size(mixed), 9);
    attn_pairs_destroy(mixed);
    attn_pairs_destroy(kept);
    assert_int_equal(attn_pairs_filter(&kept, &counts, all, &(attn_pairs_filter_options){0}), ATTN_OK);
    assert_int_equal(attn_pairs_size(kept), 6);
    attn_pairs_destroy(kept);
    options.max_ratio = 0.5;
    assert_int_equal(attn_pairs_filter(&kept, &counts, all, &options), ATTN_ERROR_ARGUMENT);
    attn_pairs_destroy(all);
}

RUN_TESTS(TEST(text_is_prepared), TEST_WITH_CONTEXT(a_small_buffer_cuts_and_tells_the_length),
          TEST_WITH_CONTEXT(invalid_utf8_is_told), TEST(tokens_are_joined_for_reading),
          TEST_WITH_CONTEXT(pairs_are_read), TEST_WITH_CONTEXT(lines_may_end_with_cr_alone),
          TEST_WITH_CONTEXT(numbers_quotes_and_headers_are_no_sentences), TEST_WITH_CONTEXT(bad_lines_are_named),
          TEST_WITH_CONTEXT(a_line_of_a_megabyte_is_refused),
          TEST_WITH_CONTEXT(translations_of_a_sentence_stay_together),
          TEST_WITH_CONTEXT(negative_shares_give_empty_parts), TEST_WITH_CONTEXT(pairs_are_filtered_and_mixed),
          TEST(every_allocation_may_fail))
