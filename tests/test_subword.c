/* SPDX-License-Identifier: MIT
 * labels: no-isa no-tsan
 *
 * Tests vocabularies of pieces. Decoding must give the encoded text, and damaged files must be refused with a message.
 */
#include "support/fixture.h"
#include "support/tensors.h"

#include "data/sentences.h"
#include "data/subword.h"
#include "data/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fixture {
    attn_context *c;
    attn_pairs *pairs;
    attn_vocab *vocab;
} fixture;

static void read_pairs(fixture *f, bool keep)
{
    static const char *const names[] = {"Anna", "Paul", "Marie", "Peter"}, *const verbs[] = {"sings", "reads", "goes"};
    char text[8192], *at = text;
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 3; j++)
            at += sprintf(at, "%s %s in the House, now!\t %s  est l\xc3\xa0, c'est-\xc3\xa0-dire %s\xe2\x80\xaf!\n",
                          names[i], verbs[j], names[i], verbs[j]);
    }
    assert_int_equal(
        attn_pairs_parse(&f->pairs, f->c, text, (size_t)(at - text), "t", &(attn_pairs_options){.keep_text = keep}),
        ATTN_OK);
}

static int set_up(void **state)
{
    static fixture kept;
    fixture *f = &kept;
    *f = (fixture){.c = test_context()};
    read_pairs(f, true);
    assert_int_equal(
        attn_vocab_build(&f->vocab, f->pairs, ATTN_SIDE_SOURCE,
                         &(attn_vocab_options){.kind = ATTN_VOCAB_UNIGRAM, .max_size = 340, .joint = true}),
        ATTN_OK);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    attn_vocab_destroy(f->vocab);
    attn_pairs_destroy(f->pairs);
    end_context(f->c);
    return 0;
}

static void decoding_restores_the_text(void **state)
{
    fixture *f = *state;
    assert_string_equal(attn_pairs_get(f->pairs, 0).source, "Anna sings in the House, now!");
    assert_string_equal(attn_pairs_get(f->pairs, 0).target,
                        "Anna  est l\xc3\xa0, c'est-\xc3\xa0-dire sings\xe2\x80\xaf!");
}

static void parts_are_those_of_the_words(void **state)
{
    fixture *f = *state;
    fixture words = {.c = f->c};
    attn_pairs *kept, *normalized;
    attn_pairs_split_options how = {.seed = 3, .valid = 0.3, .test = -1};
    read_pairs(&words, false);
    assert_int_equal(attn_pairs_split(NULL, &kept, NULL, f->pairs, &how), ATTN_OK);
    assert_int_equal(attn_pairs_split(NULL, &normalized, NULL, words.pairs, &how), ATTN_OK);
    assert_true(attn_pairs_size(kept) > 0 && attn_pairs_size(kept) < 12);
    assert_int_equal(attn_pairs_size(kept), attn_pairs_size(normalized));
    for (int64_t i = 0; i < attn_pairs_size(kept); i++)
        assert_int_equal(attn_pairs_get(kept, i).source[0] | 0x20, attn_pairs_get(normalized, i).source[0]);
    attn_pairs_destroy(kept);
    attn_pairs_destroy(normalized);
    attn_pairs_destroy(words.pairs);
}

/* Encodes `text` to ids and pieces, and decodes them to the same text. */
static void check_round(const fixture *f, const attn_vocab *vocab, const char *text)
{
    int32_t ids[256];
    int64_t n, unknown;
    char tokens[4096], *back;
    assert_int_equal(attn_vocab_encode(vocab, text, &(attn_encode_options){.steps = 256}, ids, 256, &n, &unknown),
                     ATTN_OK);
    assert_int_equal(unknown, 0);
    assert_int_equal(ids[n - 1], attn_vocab_special(vocab, ATTN_SPECIAL_EOS));
    attn_vocab_decode(vocab, ids, n, tokens, sizeof tokens);
    assert_int_equal(attn__vocab_join(vocab, tokens, &back), ATTN_OK);
    assert_string_equal(back, text);
    attn__free(f->c, back);
}

static void every_byte_is_encoded(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(attn_vocab_special(f->vocab, (attn_special)i), i);
    check_round(f, f->vocab, "Anna reads, Peter GOES!");
    /* The name of a special token in a text is read as ordinary letters. */
    check_round(f, f->vocab, "\xe2\x98\x83 <eos> <pad> 100 %");
}

/* A translation may be any number of the shortest pieces. */
static void pieces_of_one_letter_are_joined(void **state)
{
    fixture *f = *state;
    char tokens[2 * 70], *back;
    for (int n = 1; n <= 70; n++) {
        for (int i = 0; i < n; i++)
            memcpy(tokens + 2 * i, i < n - 1 ? "e " : "e", 2);
        assert_int_equal(attn__vocab_join(f->vocab, tokens, &back), ATTN_OK);
        assert_int_equal(strspn(back, "e"), n);
        attn__free(f->c, back);
    }
}

static void bpe_encodes_and_decodes(void **state)
{
    fixture *f = *state;
    attn_vocab *bpe;
    assert_int_equal(attn_vocab_build(&bpe, f->pairs, ATTN_SIDE_TARGET,
                                      &(attn_vocab_options){.kind = ATTN_VOCAB_BPE, .max_size = 320}),
                     ATTN_OK);
    check_round(f, bpe, "c'est-\xc3\xa0-dire Marie!");
    attn_vocab_destroy(bpe);
}

static void encoding_is_cut_at_its_steps(void **state)
{
    fixture *f = *state;
    int32_t ids[8];
    int64_t n;
    assert_int_equal(
        attn_vocab_encode(f->vocab, "zyzzyva zyzzyva zyzzyva", &(attn_encode_options){.steps = 8}, ids, 8, &n, NULL),
        ATTN_OK);
    assert_int_equal(n, 8);
    assert_int_equal(ids[7], attn_vocab_special(f->vocab, ATTN_SPECIAL_EOS));
}

static void file_round_trip_keeps_the_vocabulary(void **state)
{
    fixture *f = *state;
    attn_vocab *again;
    attn_bytes file, second;
    assert_int_equal(attn_vocab_format(f->vocab, &file), ATTN_OK);
    assert_int_equal(attn_vocab_parse_subwords(&again, f->c, file.data, file.size, "s"), ATTN_OK);
    assert_int_equal(attn_vocab_format(again, &second), ATTN_OK);
    assert_int_equal(file.size, second.size);
    assert_memory_equal(file.data, second.data, file.size);
    attn_bytes_free(f->c, &file);
    attn_bytes_free(f->c, &second);
    assert_true(attn_vocab_has_subwords(again));
    attn_vocab_destroy(again);
}

/* 500 characters occur ten times each and 200 once, which is 4 of 100 characters. */
static void more_characters_than_pieces_are_refused_with_the_size_that_is_enough(void **state)
{
    fixture *f = *state;
    attn_pairs *pairs;
    attn_vocab *vocab;
    enum { LINES = 5200 };
    char *text = malloc(LINES * 8), *at = text;
    for (int i = 0; i < LINES; i++) {
        int code = 0x4e00 + (i < 5000 ? i % 500 : i - 4500);
        at += sprintf(at, "%c%c%c\tx\n", 0xe0 | code >> 12, 0x80 | (code >> 6 & 0x3f), 0x80 | (code & 0x3f));
    }
    assert_int_equal(
        attn_pairs_parse(&pairs, f->c, text, (size_t)(at - text), "t", &(attn_pairs_options){.keep_text = true}),
        ATTN_OK);
    attn_vocab_options options = {.kind = ATTN_VOCAB_UNIGRAM, .max_size = 800, .character_coverage = 1};
    assert_refused(f->c, attn_vocab_build(&vocab, pairs, ATTN_SIDE_SOURCE, &options), ATTN_ERROR_ARGUMENT,
                   "800 pieces are too few for the characters of the texts: set vocabulary_size to at least 961");
    options.max_size = 961;
    assert_int_equal(attn_vocab_build(&vocab, pairs, ATTN_SIDE_SOURCE, &options), ATTN_OK);
    attn_vocab_destroy(vocab);
    options = (attn_vocab_options){.kind = ATTN_VOCAB_UNIGRAM, .max_size = 800, .character_coverage = 0.98};
    assert_int_equal(attn_vocab_build(&vocab, pairs, ATTN_SIDE_SOURCE, &options), ATTN_OK);
    attn_vocab_destroy(vocab);
    attn_pairs_destroy(pairs);
    free(text);
}

static void check_refused(attn_context *c, const char *bytes, size_t size)
{
    attn_vocab *vocab;
    assert_refused(c, attn_vocab_parse_subwords(&vocab, c, bytes, size, "damaged.spm"), ATTN_ERROR_FORMAT,
                   "damaged.spm");
    assert_null(vocab);
    attn_context_clear_error(c);
}

/* The offset of the first unit in the rules' double array is known, because the array follows its size. */
static void damage_is_refused(void **state)
{
    fixture *f = *state;
    attn_bytes file;
    assert_int_equal(attn_vocab_format(f->vocab, &file), ATTN_OK);
    const char *bytes = file.data;
    size_t size = file.size, at = 0;
    check_refused(f->c, bytes, 0);
    check_refused(f->c, bytes, size / 2);
    check_refused(f->c, "not a model at all", 18);
    static const unsigned char first_unit[4] = {0x00, 0x84, 0x00, 0x00};
    while (at + 4 < size && memcmp(bytes + at, first_unit, 4) != 0)
        at++;
    assert_true(at + 4 < size);
    char *damaged = malloc(size);
    memcpy(damaged, bytes, size);
    damaged[at + 2] = damaged[at + 3] = (char)0x7f;
    check_refused(f->c, damaged, size);
    memcpy(damaged, bytes, size);
    damaged[at - 2] = 0x7f;
    check_refused(f->c, damaged, size);
    free(damaged);
    /* This key has more than 32 bits. protobuf ignores the upper bits, and would read another field. */
    static const char key[] = "\x9a\x80\x80\x80\x10\x02\x12\x00";
    char *longer = malloc(size + 8);
    memcpy(longer, bytes, size);
    memcpy(longer + size, key, 8);
    check_refused(f->c, longer, size + 8);
    attn_bytes_free(f->c, &file);
    free(longer);
}

static void impossible_vocabulary_sizes_are_refused(void **state)
{
    fixture *f = *state;
    attn_vocab *vocab;
    assert_refused(f->c,
                   attn_vocab_build(&vocab, f->pairs, ATTN_SIDE_SOURCE,
                                    &(attn_vocab_options){.kind = ATTN_VOCAB_UNIGRAM, .max_size = 10}),
                   ATTN_ERROR_ARGUMENT, "vocabulary");
    assert_null(vocab);
    attn_context_clear_error(f->c);
}

#define TEST_PREPARED(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_PREPARED(decoding_restores_the_text),
        TEST_PREPARED(parts_are_those_of_the_words),
        TEST_PREPARED(every_byte_is_encoded),
        TEST_PREPARED(pieces_of_one_letter_are_joined),
        TEST_PREPARED(bpe_encodes_and_decodes),
        TEST_PREPARED(encoding_is_cut_at_its_steps),
        TEST_PREPARED(file_round_trip_keeps_the_vocabulary),
        TEST_PREPARED(damage_is_refused),
        TEST_PREPARED(impossible_vocabulary_sizes_are_refused),
        TEST_PREPARED(more_characters_than_pieces_are_refused_with_the_size_that_is_enough)};
    if (!attn_subwords_available())
        return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
