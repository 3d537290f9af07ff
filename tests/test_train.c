/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Compares measures and schedules with values that other programs computed.
 */
#include "support/faults.h"
#include "support/fixture.h"

#include "attn/train.h"
#include "train/chrf.h"
#include "train/bleu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CLOSE(a, b, tolerance) assert_true(fabs((a) - (b)) <= (tolerance))

static void bleu_of_a_sentence(void **state)
{
    CLOSE(attn_bleu_d2l("il est mouille .", "il est calme .", 2), 0.658, 5e-4);
    CLOSE(attn_bleu_d2l("A B", "A B C D E F", 2), 0.135, 5e-4);
    CLOSE(attn_bleu_d2l("va !", "va !", 2), 1, 0);
    CLOSE(attn_bleu_d2l("", "va !", 2), 0, 0);
    /* Computed by hand: 'a a a' has one match of three with 'a b', and no matching pair. The brevity penalty is 1. */
    CLOSE(attn_bleu_d2l("a a a", "a b", 1), sqrt(1.0 / 3), 1e-12);
}

/* The expected scores come from sacrebleu 2.6.0, corpus_bleu with its defaults. */
static void bleu_of_a_corpus(void **state)
{
    const char *predictions[] = {
        "Il est calme .", "J'ai perdu 1,000 euros, hier...",        "“Bonjour” &quot;dit-il&quot;, à 3-4 heures!", "",
        "va !",           "the cat the cat on the mat\xE2\x80\xAF!"};
    const char *references[] = {
        "Il est très calme .",     "J'ai perdu 1,000 euros hier.", "« Bonjour », dit-il à 3-4 heures !", "rien", "va !",
        "the cat sat on the mat !"};
    attn_context *context = *state;
    attn_bleu bleu;
    assert_int_equal(attn_bleu_corpus(&bleu, context, predictions, references, NULL, 6), ATTN_OK);
    CLOSE(bleu.score, 43.30208342733989, 1e-9);
    assert_int_equal(bleu.prediction_length, 34);
    assert_int_equal(bleu.reference_length, 32);
    assert_int_equal(attn_bleu_corpus(&bleu, context, predictions, references, NULL, 1), ATTN_OK);
    CLOSE(bleu.score, 35.1862973998119, 1e-9);
    const char *two[] = {"a b", "c d"};
    attn_bleu_corpus(&bleu, context, two, two + 1, NULL, 1);
    CLOSE(bleu.score, 0, 0);
    /* The score is 0 without n-grams of three words, as in sacrebleu. */
    attn_bleu_corpus(&bleu, context, two, two, NULL, 1);
    CLOSE(bleu.score, 0, 0);
    CLOSE(bleu.precisions[0], 100, 1e-9);
    attn_bleu_corpus(&bleu, context, two, two + 1, NULL, 1);
    CLOSE(bleu.precisions[0], 0, 0);
    const char *lines[] = {"a divi-\nded word and its end-\n ", "a divided word and its end-"};
    attn_bleu_corpus(&bleu, context, lines, lines + 1, NULL, 1);
    CLOSE(bleu.score, 100, 1e-9);
}

/* The expected scores come from sacrebleu 2.6.0, CHRF().corpus_score. Its signature is
 * nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0. */
static void chrf_of_a_corpus(void **state)
{
    const char *predictions[] = {
        "Il est calme .", "J'ai perdu 1,000 euros, hier...",        "“Bonjour” &quot;dit-il&quot;, à 3-4 heures!", "",
        "va !",           "the cat the cat on the mat\xE2\x80\xAF!"};
    const char *references[] = {
        "Il est très calme .",     "J'ai perdu 1,000 euros hier.", "« Bonjour », dit-il à 3-4 heures !", "rien", "va !",
        "the cat sat on the mat !"};
    static const struct {
        const char *prediction, *reference;
        double score;
        /* n-gram lengths that the reference does not have do not count */
    } ones[] = {{"abcdef ghi", "ab", 51.22950819672132},
                {"日本語😀", "日本の😀語", 27.415143603133163},
                {"ab", "cd", 0},
                {"", "", 0}};
    attn_context *context = *state;
    double chrf;
    assert_int_equal(attn_chrf_corpus(&chrf, context, predictions, references, NULL, 6), ATTN_OK);
    CLOSE(chrf, 67.57119757468558, 1e-9);
    assert_int_equal(attn_chrf_corpus(&chrf, context, predictions, references, NULL, 1), ATTN_OK);
    CLOSE(chrf, 48.00844901517588, 1e-9);
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++) {
        assert_int_equal(attn_chrf_corpus(&chrf, context, &ones[i].prediction, &ones[i].reference, NULL, 1), ATTN_OK);
        CLOSE(chrf, ones[i].score, 1e-9);
    }
}

/* Compares the scores of all pairs of some texts with those of corpora of a single pair. */
static void chrf_of_all_pairs(void **state)
{
    const char *texts[] = {"the cat the cat on the mat", "Il est calme .", "",
                           "the cat sat on the mat !",   "tttttttt tt",    "va",
                           "the cat the cat on the mat", "日本語😀 the",    "il est très calme"};
    enum { N = sizeof texts / sizeof *texts };
    double chrf[N * N], one;
    attn_context *context = *state;
    assert_int_equal(attn__chrf_pairs(context, texts, N, chrf), ATTN_OK);
    for (int i = 0; i < N * N; i++) {
        assert_int_equal(attn_chrf_corpus(&one, context, &texts[i / N], &texts[i % N], NULL, 1), ATTN_OK);
        CLOSE(chrf[i], one, 1e-12);
    }
}

/* The expected scores come from sacrebleu 2.6.0 with several references per line, for all lines together and for
 * each line alone. */
static void several_references(void **state)
{
    const char *predictions[] = {
        "Il est calme .", "J'ai perdu 1,000 euros, hier...", "the cat the cat on the mat", "", "va !", "ab"};
    const char *references[] = {"Il est très calme .",
                                "Il est calme .",
                                "J'ai perdu 1,000 euros hier.",
                                "Hier, j'ai perdu 1,000 euros...",
                                "J'ai perdu mille euros, hier...",
                                "the cat sat on the mat !",
                                "the cat the cat",
                                "rien",
                                "vas-y !",
                                "va",
                                "va, va !",
                                "abcd",
                                "x"};
    static const int64_t counts[] = {2, 3, 2, 1, 3, 2};
    static const struct {
        double bleu, chrf;
        int64_t length;
    } ones[] = {{100, 100, 4},
                {86.94417438899828, 85.28616768857526, 9},
                {57.21248424548511, 85.36427958521794, 7},
                {0, 0, 1},
                {0, 87.49999999999999, 2},
                {0, 47.169811320754704, 1}};
    attn_context *context = *state;
    attn_bleu bleu;
    double chrf;
    assert_int_equal(attn_bleu_corpus(&bleu, context, predictions, references, counts, 6), ATTN_OK);
    CLOSE(bleu.score, 74.6518205882744, 1e-9);
    assert_int_equal(bleu.reference_length, 24);
    assert_int_equal(attn_chrf_corpus(&chrf, context, predictions, references, counts, 6), ATTN_OK);
    CLOSE(chrf, 84.00797435084836, 1e-9);
    const char *const *reference = references;
    for (int i = 0; i < 6; reference += counts[i++]) {
        assert_int_equal(attn_bleu_corpus(&bleu, context, predictions + i, reference, counts + i, 1), ATTN_OK);
        CLOSE(bleu.score, ones[i].bleu, 1e-9);
        assert_int_equal(bleu.reference_length, ones[i].length);
        assert_int_equal(attn_chrf_corpus(&chrf, context, predictions + i, reference, counts + i, 1), ATTN_OK);
        CLOSE(chrf, ones[i].chrf, 1e-9);
    }
    assert_int_equal(attn_bleu_corpus(&bleu, context, predictions, references, (int64_t[]){1, 0}, 2),
                     ATTN_ERROR_ARGUMENT);
    assert_says(context, "prediction 1 has 0 references");
    assert_int_equal(attn_chrf_corpus(&chrf, context, predictions, references, (int64_t[]){-1}, 1),
                     ATTN_ERROR_ARGUMENT);
}

/* Every third of the 200,000 words of a line differs. Comparing each word with each other word would take minutes. */
static void bleu_of_long_lines(void **state)
{
    enum { WORDS = 200000 };
    static char prediction[8 * WORDS + 1], reference[8 * WORDS + 1];
    const char *predictions[] = {prediction}, *references[] = {reference};
    for (size_t i = 0, at = 0; i < WORDS; i++, at += 8) {
        snprintf(prediction + at, 9, "w%06zu ", i % 3 == 2 ? i + WORDS : i);
        snprintf(reference + at, 9, "w%06zu ", i);
    }
    attn_context *context = *state;
    attn_bleu bleu;
    assert_int_equal(attn_bleu_corpus(&bleu, context, predictions, references, NULL, 1), ATTN_OK);
    assert_int_equal(bleu.prediction_length, WORDS);
    CLOSE(bleu.precisions[0], 100.0 * (WORDS - WORDS / 3) / WORDS, 1e-9);
    /* 66,667 pairs of neighbouring words have no changed word. */
    CLOSE(bleu.precisions[1], 100.0 * 66667 / (WORDS - 1), 1e-9);
    /* An order without a match counts half a match. */
    CLOSE(bleu.precisions[2], 100.0 / 2 / (WORDS - 2), 1e-9);
}

static void schedules_rise_and_fall(void **state)
{
    attn_schedule s = {.kind = ATTN_SCHEDULE_COSINE, .peak = 2, .warmup = 10, .total = 110, .floor = 0.1};
    CLOSE(attn_schedule_rate(&s, 5), 1, 1e-12);
    CLOSE(attn_schedule_rate(&s, 10), 2, 1e-12);
    CLOSE(attn_schedule_rate(&s, 60), 1.1, 1e-12);
    CLOSE(attn_schedule_rate(&s, 110), 0.2, 1e-12);
    CLOSE(attn_schedule_rate(&s, 1000), 0.2, 1e-12);
    CLOSE(attn_schedule_rate(&s, -5), 0, 0);
    s.kind = ATTN_SCHEDULE_INVERSE_SQUARE_ROOT;
    CLOSE(attn_schedule_rate(&s, 40), 1, 1e-12);
    s = (attn_schedule){.kind = ATTN_SCHEDULE_COSINE, .peak = 2, .warmup = 10, .total = 10, .floor = 0.1};
    /* The warm-up reaches the peak rate, whatever the total number of steps. */
    CLOSE(attn_schedule_rate(&s, 10), 2, 0);
    CLOSE(attn_schedule_rate(&s, 11), 0.2, 1e-12);
    s = (attn_schedule){.kind = ATTN_SCHEDULE_STEP, .peak = 2, .warmup = 4, .total = 100, .floor = 0.1};
    CLOSE(attn_schedule_rate(&s, 2), 1, 0);
    CLOSE(attn_schedule_rate(&s, 100), 2, 0);
    CLOSE(attn_schedule_rate(&s, 101), 0.2, 1e-12);
    s = (attn_schedule){.peak = 3};
    CLOSE(attn_schedule_rate(&s, 1), 3, 0);
}

static attn_status both_measures(attn_context *context, void *user)
{
    static const char *const predictions[] = {"the cat sat .", "a dog"}, *const references[] = {"the cat .", "one dog",
                                                                                                "a dog !"};
    attn_bleu bleu;
    double chrf;
    (void)user;
    attn_status status = attn_bleu_corpus(&bleu, context, predictions, references, (int64_t[]){1, 2}, 2);
    return status == ATTN_OK ? attn_chrf_corpus(&chrf, context, predictions, references, (int64_t[]){1, 2}, 2) : status;
}

static void measures_survive_failed_allocations(void **state)
{
    (void)state;
    assert_true(faults_try_all(both_measures, NULL) > 20);
}

RUN_TESTS(TEST(bleu_of_a_sentence), TEST_WITH_CONTEXT(bleu_of_a_corpus), TEST_WITH_CONTEXT(chrf_of_a_corpus),
          TEST_WITH_CONTEXT(chrf_of_all_pairs), TEST_WITH_CONTEXT(several_references),
          TEST_WITH_CONTEXT(bleu_of_long_lines), TEST(schedules_rise_and_fall),
          TEST(measures_survive_failed_allocations))
