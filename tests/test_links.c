/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests word alignments: reading them, converting them to prepared text and to pieces, and using them in batches.
 */
#include "support/fixture.h"
#include "support/faults.h"

#include "data/corpus.h"
#include "data/model1.h"
#include "data/pairs.h"
#include "data/token_words.h"
#include "data/vocab.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char text[] = "Go now, Tom!\tVa, Tom !\n"
                           "\n"
                           "I am here.\tMe voici.\n"
                           "Go.\tVa\xe2\x80\xaf!\n";

CONTEXT_OF_TESTS(.threads = 2)

static attn_pairs *read_pairs(bool keep, int64_t most)
{
    attn_pairs *pairs = NULL;
    attn_pairs_options options = {.keep_text = keep, .max_examples = most};
    assert_int_equal(attn_pairs_parse(&pairs, context, text, sizeof text - 1, "t", &options), ATTN_OK);
    return pairs;
}

static attn_status link_with(attn_pairs *pairs, const attn_pairs *kept, const char *lines)
{
    ATTN__CALL(context);
    return attn__pairs_link(pairs, kept, ATTN_COMPAT_NONE, lines, strlen(lines), "x.align");
}

static void check_links(const attn_pairs *pairs, int64_t i, int n, const attn__link *expected)
{
    assert_int_equal(pairs->links[i].n, n);
    for (int l = 0; l < n; l++) {
        assert_int_equal(pairs->links[i].items[l].source, expected[l].source);
        assert_int_equal(pairs->links[i].items[l].target, expected[l].target);
    }
}

static void lines_are_read_and_follow_their_pairs(void **state)
{
    attn_pairs *all = read_pairs(true, 0), *part, *mixed;
    assert_int_equal(link_with(all, all,
                               "\xef\xbb\xbf"
                               "0-0 2-1\t 2-2\r\n\n0-0\n"),
                     ATTN_OK);
    check_links(all, 0, 3, (attn__link[]){{0, 0}, {2, 1}, {2, 2}});
    check_links(all, 1, 0, NULL);
    check_links(all, 2, 1, (attn__link[]){{0, 0}});
    for (int64_t begin = -1; begin < 2; begin++)
        assert_int_equal(attn_pairs_slice(&part, all, begin,
                                          begin < 0 ? 1
                                          : begin   ? 0
                                                    : attn_pairs_size(all) + 1),
                         ATTN_ERROR_ARGUMENT);
    assert_int_equal(attn_pairs_slice(&part, all, 2, 3), ATTN_OK);
    check_links(part, 0, 1, (attn__link[]){{0, 0}});
    attn_pairs *other = read_pairs(true, 0);
    assert_int_equal(attn_pairs_mix(&mixed, part, other, 2, 1), ATTN_OK);
    check_links(mixed, 0, 1, (attn__link[]){{0, 0}});
    check_links(mixed, 1, 0, NULL);
    check_links(mixed, 2, 0, NULL);
    attn_pairs_destroy(mixed);
    attn_pairs_destroy(part);
    attn_pairs_destroy(other);
    attn_pairs_destroy(all);
    /* An alignment may have lines for the whole file, or only for the pairs that are read. */
    attn_pairs *first = read_pairs(true, 2);
    assert_int_equal(link_with(first, first, "0-0\n1-1\n0-0\n"), ATTN_OK);
    attn_pairs_destroy(first);
    first = read_pairs(true, 2);
    assert_int_equal(link_with(first, first, "0-0\n1-1\n"), ATTN_OK);
    attn_pairs_destroy(first);
}

/* Preparation splits "now," and "Tom!" into two words each. The narrow space in "Va !" separates no words. */
static void prepared_words_get_the_links_of_theirs(void **state)
{
    attn_pairs *kept = read_pairs(true, 0), *pairs = read_pairs(false, 0);
    assert_int_equal(link_with(pairs, kept, "1-0 2-1 2-2\n2-1\n0-0\n"), ATTN_OK);
    assert_string_equal(attn_pairs_get(pairs, 0).source, "go now , tom !");
    assert_string_equal(attn_pairs_get(pairs, 0).target, "va , tom !");
    check_links(pairs, 0, 8, (attn__link[]){{1, 0}, {1, 1}, {2, 0}, {2, 1}, {3, 2}, {4, 2}, {3, 3}, {4, 3}});
    check_links(pairs, 1, 4, (attn__link[]){{2, 1}, {2, 2}, {3, 1}, {3, 2}});
    check_links(pairs, 2, 4, (attn__link[]){{0, 0}, {0, 1}, {1, 0}, {1, 1}});
    attn_pairs_destroy(pairs);
    attn_pairs_destroy(kept);
}

static void wrong_alignments_are_refused(void **state)
{
    static const char *const cases[][2] = {
        {"0-0\n\n", "x.align: found 2 lines of word alignments for 3 sentence pairs; expected one line for each pair"},
        {"0-0\n\n\n\n",
         "x.align: found 4 lines of word alignments for 3 sentence pairs; expected one line for each pair"},
        {"0-0\n1-\n\n", "x.align:2: \"1-\" is not a pair of word numbers, source-target, such as 0-0"},
        {"0-0\n1-1 0:0\n\n", "x.align:2: \"0:0\" is not a pair"},
        {"\n\n-1-0\n", "x.align:3: \"-1-0\" is not a pair"},
        {"\n0-0-0\n\n", "x.align:2: \"0-0-0\" is not a pair"},
        {"3-0\n\n\n",
         "x.align:1: \"3-0\" names a word that the source sentence does not have; the 3 words of the sentence are numbered from 0"},
        {"\n0-0 1-2\n\n",
         "x.align:2: \"1-2\" names a word that the target sentence does not have; the 2 words of the sentence are numbered from 0"},
        {"\n\n99999999999999999999-0\n",
         "x.align:3: \"99999999999999999999-0\" names a word that the source sentence does not have; the 1 words"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn_pairs *pairs = read_pairs(true, 0);
        assert_refused(context, link_with(pairs, pairs, cases[i][0]), ATTN_ERROR_FORMAT, cases[i][1]);
        attn_pairs_destroy(pairs);
    }
}

/* Builds a vocabulary that has every word of the data. Tokens are then words, or pieces, depending on `kind`. */
static void build(attn_vocab **vocab, const attn_pairs *pairs, attn_side side, attn_vocab_kind kind)
{
    attn_vocab_options options = {.min_frequency = 1, .kind = kind, .max_size = 300};
    assert_int_equal(attn_vocab_build(vocab, pairs, side, &options), ATTN_OK);
}

/* Checks that the target weights of token j sum to 1, all on tokens of words in `words`. */
static void check_row(const float *row, int64_t n, const attn__token_words *source, const char *words)
{
    double sum = 0, highest = 0;
    for (int64_t k = 0; k < n; k++) {
        bool meant = k < source->n && strchr(words, (char)('0' + source->words[k]));
        assert_true((row[k] > 0) == meant);
        sum += (double)row[k];
        highest = fmax(highest, (double)row[k]);
    }
    assert_true(fabs(sum - (*words ? 1 : 0)) < 1e-6);
    for (int64_t k = 0; k < n; k++)
        assert_true(row[k] == 0 || fabs((double)row[k] - highest) < 1e-6);
}

static void check_batch(attn_vocab_kind kind)
{
    attn_pairs *pairs = read_pairs(true, 0);
    attn_vocab *vocab[2];
    attn_corpus *corpus;
    attn_batches *batches;
    attn_batch batch;
    attn__token_words words[2] = {{.context = context}, {.context = context}};
    float wanted[3 * 64 * 64] = {0};
    assert_int_equal(link_with(pairs, pairs, "0-0 2-1 1-1\n\n0-0\n"), ATTN_OK);
    build(&vocab[0], pairs, ATTN_SIDE_SOURCE, kind);
    build(&vocab[1], pairs, ATTN_SIDE_TARGET, kind);
    assert_int_equal(attn_corpus_create(&corpus, pairs, vocab[0], vocab[1], NULL), ATTN_OK);
    assert_int_equal(attn_batches_create(&batches, corpus, &(attn_batches_options){.in_order = true}), ATTN_OK);
    assert_true(attn_batches_next(batches, &batch));
    assert_int_equal(batch.size, 3);
    assert_true(batch.source_steps <= 64 && batch.target_steps <= 64);
    assert_true(attn__corpus_guide(corpus, &batch, wanted));
    static const char *const meant[3][3] = {{"0", "12", ""}, {"", "", ""}, {"0", "", ""}};
    for (int64_t row = 0; row < 3; row++) {
        attn_pair pair = attn_pairs_get(pairs, row);
        assert_int_equal(attn__token_words_fill(&words[0], vocab[0], pair.source), ATTN_OK);
        assert_int_equal(attn__token_words_fill(&words[1], vocab[1], pair.target), ATTN_OK);
        assert_int_equal(words[0].n + 1, batch.source_lens[row]);
        assert_int_equal(words[1].n + 1, batch.target_lens[row]);
        for (int64_t j = 0; j < batch.target_steps; j++) {
            const float *map = wanted + (row * batch.target_steps + j) * batch.source_steps;
            check_row(map, batch.source_steps, &words[0], j < words[1].n ? meant[row][words[1].words[j]] : "");
        }
    }
    for (int side = 0; side < 2; side++) {
        attn__token_words_free(&words[side]);
        attn_vocab_destroy(vocab[side]);
    }
    attn_batches_destroy(batches);
    attn_corpus_destroy(corpus);
    attn_pairs_destroy(pairs);
}

static void tokens_look_at_the_tokens_of_their_words(void **state)
{
    check_batch(ATTN_VOCAB_WORDS);
    if (attn_subwords_available())
        check_batch(ATTN_VOCAB_BPE);
}

/* Tokens that are cut off, and the end token, have no links. */
static void a_cut_sentence_keeps_the_links_of_what_is_left(void **state)
{
    attn_pairs *pairs = read_pairs(true, 0);
    attn_vocab *vocab[2];
    attn_corpus *corpus;
    assert_int_equal(link_with(pairs, pairs, "0-0 1-1 2-2\n2-1\n0-0\n"), ATTN_OK);
    build(&vocab[0], pairs, ATTN_SIDE_SOURCE, ATTN_VOCAB_WORDS);
    build(&vocab[1], pairs, ATTN_SIDE_TARGET, ATTN_VOCAB_WORDS);
    attn_encode_options options = {.steps = 3};
    assert_int_equal(attn_corpus_create(&corpus, pairs, vocab[0], vocab[1], &options), ATTN_OK);
    assert_int_equal(corpus->link_begin[1], 2);
    assert_int_equal(corpus->link_begin[2], 2);
    assert_int_equal(corpus->link_begin[3], 3);
    assert_int_equal(corpus->link[1].source, 1);
    assert_int_equal(corpus->link[1].target, 1);
    attn_corpus_destroy(corpus);
    attn_vocab_destroy(vocab[0]);
    attn_vocab_destroy(vocab[1]);
    attn_pairs_destroy(pairs);
}

/* ------------------------------------------------------------------------------------------------ IBM Model 1 */

static const char table[] =
    "The red car.\tLe char rouge.\nThe red dog!\tLe chien rouge !\nThe blue car!\tLe char bleu !\n"
    "The blue dog.\tLe chien bleu.\nA red house.\tUne maison rouge.\nthe end the\tle fin le\n";

static void guide_uses_the_most_likely_source_word(void **state)
{
    for (int keep = 0; keep < 2; keep++) {
        attn_pairs *pairs, *kept;
        attn_vocab *vocab[2];
        attn_corpus *corpus;
        attn__model1 *model;
        attn_bytes file;
        attn_pairs_options reading = {.keep_text = keep};
        assert_int_equal(attn_pairs_parse(&pairs, context, table, sizeof table - 1, "t", &reading), ATTN_OK);
        reading.keep_text = true;
        assert_int_equal(attn_pairs_parse(&kept, context, table, sizeof table - 1, "t", &reading), ATTN_OK);
        build(&vocab[0], pairs, ATTN_SIDE_SOURCE, ATTN_VOCAB_WORDS);
        build(&vocab[1], pairs, ATTN_SIDE_TARGET, ATTN_VOCAB_WORDS);
        assert_int_equal(attn_corpus_create(&corpus, pairs, vocab[0], vocab[1], NULL), ATTN_OK);
        assert_int_equal(attn__model1_learn(&model, corpus, vocab[0], vocab[1], 20), ATTN_OK);
        assert_int_equal(
            attn__model1_align(model, corpus, vocab[0], vocab[1], pairs, keep ? pairs : kept, ATTN_COMPAT_NONE, &file),
            ATTN_OK);
        const char *line = file.data;
        for (int i = 0; i < 6; i++, line = strchr(line, '\n') + 1) {
            if (i == 0 && !keep)
                assert_memory_equal(line, "0-0 2-1 1-2\n", 12);
            if (i == 1 && !keep)
                assert_memory_equal(line, "0-0 2-1 1-2 2-3\n", 16);
            if (i == 5)
                assert_memory_equal(line, "0-0 1-1 2-2\n", 12);
        }
        assert_int_equal(*line, 0);
        attn_pairs *again;
        assert_int_equal(attn_pairs_parse(&again, context, table, sizeof table - 1, "t", &reading), ATTN_OK);
        assert_int_equal(link_with(again, again, file.data), ATTN_OK);
        attn_pairs_destroy(again);
        attn_bytes_free(context, &file);
        attn__model1_free(model);
        attn_corpus_destroy(corpus);
        attn_vocab_destroy(vocab[0]);
        attn_vocab_destroy(vocab[1]);
        attn_pairs_destroy(kept);
        attn_pairs_destroy(pairs);
    }
}

/* ------------------------------------------------------------------------------------------------- memory */

static attn_status link_and_align(attn_context *own, void *user)
{
    const attn_pairs_options *reading = user;
    attn_pairs *pairs = NULL, *kept = NULL;
    attn_vocab *source = NULL, *target = NULL;
    attn_corpus *corpus = NULL;
    attn__model1 *model = NULL;
    attn_bytes file = {0};
    static const char lines[] = "0-0 2-1 1-1\n\n0-0\n";
    attn_vocab_options words = {.min_frequency = 1};
    attn_status status =
        attn_pairs_parse(&kept, own, text, sizeof text - 1, "t", &(attn_pairs_options){.keep_text = true});
    if (status == ATTN_OK)
        status = attn_pairs_parse(&pairs, own, text, sizeof text - 1, "t", reading);
    if (status == ATTN_OK)
        status = attn__pairs_link(pairs, kept, ATTN_COMPAT_NONE, lines, sizeof lines - 1, "x.align");
    if (status == ATTN_OK)
        status = attn_vocab_build(&source, pairs, ATTN_SIDE_SOURCE, &words);
    if (status == ATTN_OK)
        status = attn_vocab_build(&target, pairs, ATTN_SIDE_TARGET, &words);
    if (status == ATTN_OK)
        status = attn_corpus_create(&corpus, pairs, source, target, NULL);
    if (status == ATTN_OK)
        status = attn__model1_learn(&model, corpus, source, target, 2);
    if (status == ATTN_OK)
        status = attn__model1_align(model, corpus, source, target, pairs, kept, ATTN_COMPAT_NONE, &file);
    attn_bytes_free(own, &file);
    attn__model1_free(model);
    attn_corpus_destroy(corpus);
    attn_vocab_destroy(source);
    attn_vocab_destroy(target);
    attn_pairs_destroy(pairs);
    attn_pairs_destroy(kept);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    assert_true(faults_try_all(link_and_align, &(attn_pairs_options){0}) > 20);
}

RUN_TESTS_IN(open_context, close_context, TEST(lines_are_read_and_follow_their_pairs),
             TEST(prepared_words_get_the_links_of_theirs), TEST(wrong_alignments_are_refused),
             TEST(tokens_look_at_the_tokens_of_their_words), TEST(a_cut_sentence_keeps_the_links_of_what_is_left),
             TEST(guide_uses_the_most_likely_source_word), TEST(every_allocation_may_fail))
