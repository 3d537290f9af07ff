/* SPDX-License-Identifier: MIT
 * labels: no-isa
 *
 * Tests tokenizers. The expected ids were computed by hand from the rules of each model. tests/parity compares many
 * more texts with the library `tokenizers`.
 */
#include "support/faults.h"
#include "support/fixture.h"
#include "support/scratch.h"

#include "base/context.h"
#include "data/subword.h"
#include "apps/checkpoint/tokenizer_files.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char bert[] =
    "{\"version\": \"1.0\","
    "\"truncation\": {\"direction\": \"Right\", \"max_length\": 128, \"strategy\": \"LongestFirst\", \"stride\": 0},"
    "\"padding\": null,"
    "\"added_tokens\": ["
    "{\"id\": 0, \"content\": \"[PAD]\", \"special\": true, \"normalized\": false},"
    "{\"id\": 2, \"content\": \"[CLS]\", \"special\": true, \"normalized\": false},"
    "{\"id\": 3, \"content\": \"[SEP]\", \"special\": true, \"normalized\": false},"
    "{\"id\": 4, \"content\": \"[MASK]\", \"special\": true, \"normalized\": false, \"lstrip\": true},"
    "{\"id\": 14, \"content\": \"New York\", \"special\": false, \"normalized\": true, \"single_word\": true}],"
    "\"normalizer\": {\"type\": \"BertNormalizer\", \"clean_text\": true, \"handle_chinese_chars\": true,"
    " \"strip_accents\": null, \"lowercase\": true},"
    "\"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"},"
    "\"post_processor\": {\"type\": \"TemplateProcessing\","
    " \"single\": [{\"SpecialToken\": {\"id\": \"[CLS]\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", "
    "\"type_id\": 0}},"
    "  {\"SpecialToken\": {\"id\": \"[SEP]\", \"type_id\": 0}}],"
    " \"pair\": [{\"SpecialToken\": {\"id\": \"[CLS]\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", "
    "\"type_id\": 0}},"
    "  {\"SpecialToken\": {\"id\": \"[SEP]\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}},"
    "  {\"SpecialToken\": {\"id\": \"[SEP]\", \"type_id\": 1}}],"
    " \"special_tokens\": {\"[CLS]\": {\"id\": \"[CLS]\", \"ids\": [2], \"tokens\": [\"[CLS]\"]},"
    "  \"[SEP]\": {\"id\": \"[SEP]\", \"ids\": [3], \"tokens\": [\"[SEP]\"]}}},"
    "\"decoder\": null,"
    "\"model\": {\"type\": \"WordPiece\", \"unk_token\": \"[UNK]\", \"continuing_subword_prefix\": \"##\","
    " \"max_input_chars_per_word\": 10, \"vocab\": {\"[PAD]\": 0, \"[UNK]\": 1, \"[CLS]\": 2, \"[SEP]\": 3, "
    "\"[MASK]\": 4,"
    " \"un\": 5, \"##able\": 6, \"##ab\": 7, \"##le\": 8, \"able\": 9, \"ete\": 10, \",\": 11, \"\\u6f22\": 12, "
    "\"a\": 13}}}";

static const char gpt2[] =
    "{\"added_tokens\": [{\"id\": 0, \"content\": \"<s>\", \"special\": true, \"normalized\": false}],"
    "\"normalizer\": null,"
    "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
    "\"use_regex\": true},"
    "\"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": false},"
    "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": \"\","
    " \"end_of_word_suffix\": \"\", \"fuse_unk\": false, \"vocab\": {\"<s>\": 0, \"a\": 1, \"b\": 2, \"c\": 3, "
    "\"\\u0120\": 4,"
    " \"ab\": 5, \"bc\": 6, \"\\u0120a\": 7, \"abc\": 8, \"\\u00c3\": 9, \"\\u00a9\": 10, \"'\": 11, \"s\": 12, "
    "\"'s\": 13, \"aa\": 14,"
    " \"aaaa\": 15}, \"merges\": [\"b c\", \"a b\", \"\\u0120 a\", \"ab c\", [\"'\", \"s\"], \"a a\", \"aa aa\"]}}";

static const char t5[] =
    "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFKC\"},"
    " {\"type\": \"Replace\", \"pattern\": {\"Regex\": \" {2,}\"}, \"content\": \" \"}]},"
    "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"\\u2581\", \"prepend_scheme\": \"first\", "
    "\"split\": true},"
    "\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"byte_fallback\": false, \"vocab\": [[\"<unk>\", 0.0], "
    "[\"\\u2581\", -3.0],"
    " [\"a\", -2.0], [\"b\", -2.0], [\"ab\", -3.5], [\"\\u2581ab\", -6.0], [\"abab\", -7.5], [\"1\", -4]]}}";

static attn__tokenizer *open_text(attn_context *c, const char *json)
{
    attn__tokenizer *t;
    attn_status status = attn__tokenizer_parse(&t, c, json, strlen(json), "tokenizer.json");
    if (status == ATTN_ERROR_UNSUPPORTED && strstr(attn_context_error(c), "no utf8proc"))
        skip();
    assert_ok(c, status);
    return t;
}

/* Encodes a text, and compares the ids with a list of numbers. */
static void check_ids(attn_context *c, const attn__tokenizer *t, const char *text, const char *second,
                      const attn__encode_options *options, const char *expected)
{
    attn__encoding tokens = {0};
    char ids[1024] = "";
    assert_ok(c, attn__tokenizer_encode(t, text, strlen(text), second, second ? strlen(second) : 0, options, &tokens));
    for (int64_t i = 0; i < tokens.n; i++)
        snprintf(ids + strlen(ids), sizeof ids - strlen(ids), "%s%" PRId32, i ? " " : "", tokens.ids[i]);
    assert_string_equal(ids, expected);
    attn__encoding_free(c, &tokens);
}

static void words_become_their_longest_pieces(void **state)
{
    attn_context *c = *state;
    attn__tokenizer *t = open_text(c, bert);
    check_ids(c, t, "Unable", NULL, NULL, "2 5 6 3");
    check_ids(c, t, "unlex", NULL, NULL, "2 1 3");
    check_ids(c, t, "able,able", NULL, NULL, "2 9 11 9 3");
    check_ids(c, t, "\xc3\x89t\xc3\xa9 A\xcc\x8a", NULL, NULL, "2 10 13 3");  /* accents, composed and not */
    check_ids(c, t, "a\xe6\xbc\xa2\xe6\xbc\xa2", NULL, NULL, "2 13 12 12 3"); /* each Han character is a word */
    check_ids(c, t, "a\x01\xe2\x80\x8b\ta", NULL, NULL, "2 13 13 3"); /* control characters go, tabs are spaces */
    check_ids(c, t, "ableableabl", NULL, NULL, "2 1 3");              /* more than 10 characters */
    check_ids(c, t, "", NULL, NULL, "2 3");
    check_ids(c, t, "", NULL, &(attn__encode_options){0}, "");
    check_ids(c, t, "\x01\xe2\x80\x8b", NULL, NULL, "2 3"); /* nothing is left after the normalizer */
    attn__tokenizer_destroy(t);
}

static void added_tokens_are_found_in_texts(void **state)
{
    attn_context *c = *state;
    attn__tokenizer *t = open_text(c, bert);
    attn__encoding tokens = {0};
    check_ids(c, t, "a[SEP]a [mask]", NULL, &(attn__encode_options){0}, "13 3 13 1 1 1");
    check_ids(c, t, "a NEW york a", NULL, &(attn__encode_options){0}, "13 14 13"); /* normalized */
    check_ids(c, t, "anew york", NULL, &(attn__encode_options){0}, "1 1");         /* no single word */
    assert_ok(c, attn__tokenizer_encode(t, "a  [MASK] a", 11, NULL, 0, &(attn__encode_options){0}, &tokens));
    assert_int_equal(tokens.n, 3);
    assert_int_equal(tokens.ids[1], 4);
    assert_int_equal(tokens.offsets[1][0], 1); /* with the spaces on its left */
    assert_int_equal(tokens.offsets[1][1], 9);
    attn__encoding_free(c, &tokens);
    attn__tokenizer_destroy(t);
}

static void tokens_know_their_place_and_segment(void **state)
{
    attn_context *c = *state;
    attn__tokenizer *t = open_text(c, bert);
    attn__encoding tokens = {0};
    const char *first = "  \xc3\x89t\xc3\xa9", *second = "unable";
    static const uint32_t offsets[][2] = {{0, 0}, {2, 7}, {0, 0}, {0, 2}, {2, 6}, {0, 0}};
    static const int types[] = {0, 0, 0, 1, 1, 1}, texts[] = {-1, 0, -1, 1, 1, -1};
    assert_ok(c, attn__tokenizer_encode(t, first, strlen(first), second, strlen(second), NULL, &tokens));
    assert_int_equal(tokens.n, 6);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(tokens.offsets[i][0], offsets[i][0]);
        assert_int_equal(tokens.offsets[i][1], offsets[i][1]);
        assert_int_equal(tokens.types[i], types[i]);
        assert_int_equal(tokens.texts[i], texts[i]);
    }
    attn__encoding_free(c, &tokens);
    attn__tokenizer_destroy(t);
}

static void the_longer_text_is_cut(void **state)
{
    attn_context *c = *state;
    attn__tokenizer *t = open_text(c, bert);
    attn__encoding tokens = {0};
    check_ids(c, t, "un able a able", NULL, &(attn__encode_options){.special = true, .max_length = 4}, "2 5 9 3");
    check_ids(c, t, "un able a able", NULL, &(attn__encode_options){.special = true, .max_length = 4, .cut_left = true},
              "2 13 9 3");
    check_ids(c, t, "un able a able", "a a", &(attn__encode_options){.special = true, .max_length = 8},
              "2 5 9 13 3 13 13 3");
    check_ids(c, t, "un able a able", "a a a", &(attn__encode_options){.special = true, .max_length = 8},
              "2 5 9 13 3 13 13 3");
    check_ids(c, t, "a a a", "un able a able", &(attn__encode_options){.special = true, .max_length = 8},
              "2 13 13 3 5 9 13 3");
    check_ids(c, t, "un", "able", &(attn__encode_options){.special = true, .max_length = 3}, "2 3 3");
    assert_refused(
        c,
        attn__tokenizer_encode(t, "a", 1, "a", 1, &(attn__encode_options){.special = true, .max_length = 2}, &tokens),
        ATTN_ERROR_ARGUMENT, "it must be at least 3, the number of special tokens");
    attn__encoding_free(c, &tokens);
    attn__tokenizer_destroy(t);
}

static void tokens_have_names(void **state)
{
    attn_context *c = *state;
    attn__tokenizer *t = open_text(c, bert);
    size_t length;
    assert_int_equal(attn__tokenizer_size(t), 15);
    assert_string_equal(attn__tokenizer_token(t, 6, &length), "##able");
    assert_int_equal(length, 6);
    assert_string_equal(attn__tokenizer_token(t, 14, NULL), "New York");
    assert_null(attn__tokenizer_token(t, 15, NULL));
    assert_null(attn__tokenizer_token(t, -1, NULL));
    assert_int_equal(attn__tokenizer_find(t, "New York", 8), 14);
    assert_int_equal(attn__tokenizer_find(t, "un", 2), 5);
    assert_int_equal(attn__tokenizer_find(t, "u", 1), -1);
    assert_int_equal(attn__tokenizer_special(t, ATTN__TOKEN_CLS), 2);
    assert_int_equal(attn__tokenizer_special(t, ATTN__TOKEN_SEP), 3);
    assert_int_equal(attn__tokenizer_special(t, ATTN__TOKEN_PAD), 0);
    assert_int_equal(attn__tokenizer_special(t, ATTN__TOKEN_MASK), 4);
    assert_int_equal(attn__tokenizer_special(t, ATTN__TOKEN_UNK), 1);
    assert_int_equal(attn__tokenizer_max_length(t), 128);
    attn__tokenizer_destroy(t);
}

static void bytes_merge_in_the_order_of_the_merges(void **state)
{
    attn_context *c = *state;
    attn__tokenizer *t = open_text(c, gpt2);
    check_ids(c, t, "abc", NULL, NULL, "1 6"); /* b c comes before a b */
    check_ids(c, t, "ab abc", NULL, NULL, "5 7 6");
    check_ids(c, t, "aaaaaa", NULL, NULL, "15 14");
    check_ids(c, t, "a's\xc3\xa9", NULL, NULL, "1 13 9 10");
    check_ids(c, t, "a  a", NULL, NULL, "1 4 7"); /* the last space belongs to the word */
    check_ids(c, t, "<s>a", NULL, NULL, "0 1");
    check_ids(c, t, "xa", NULL, NULL, "1"); /* without an unknown token, unknown bytes are left out */
    attn__tokenizer_destroy(t);
}

static void the_best_sum_of_scores_wins(void **state)
{
    attn_context *c = *state;
    attn__tokenizer *t = open_text(c, t5);
    check_ids(c, t, "ab", NULL, NULL, "5");     /* -6 against -3 -3.5 */
    check_ids(c, t, "abab", NULL, NULL, "5 4"); /* -6 -3.5 against -3 -7.5 */
    check_ids(c, t, "ba  ab", NULL, NULL, "1 3 2 5");
    check_ids(c, t,
              "a\xe6\xbc\xa2\xe5\xad\x97"
              "b",
              NULL, NULL, "1 2 0 3");               /* unknown neighbors are one token */
    check_ids(c, t, "\xc2\xb9", NULL, NULL, "1 7"); /* NFKC */
    attn__tokenizer_destroy(t);
}

/* The numbers of replacement characters are those of bytes.decode(errors="replace") in Python. */
static void malformed_text_is_replaced(void **state)
{
    static const struct {
        const char *text;
        int64_t n;
    } cases[] = {{"\xff", 1},         {"\xc3", 1},     {"\xe2\x82", 1},         {"\xe2\x28", 2},
                 {"\xed\xa0\x80", 3}, {"\xc0\x80", 2}, {"\xf4\x90\x80\x80", 4}, {"\xf0\x9f\x98\xe2\x82\xac", 2}};
    attn_context *c = *state;
    static const char json[] = "{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \".\"}, "
                               "\"behavior\": \"Isolated\", \"invert\": false}, \"model\": {\"type\": \"WordLevel\", "
                               "\"vocab\": {\"<unk>\": 0, \"\\ufffd\": 1}, \"unk_token\": \"<unk>\"}}";
    attn__tokenizer *t = open_text(c, json);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn__encoding tokens = {0};
        size_t size = strlen(cases[i].text);
        assert_ok(c, attn__tokenizer_encode(t, cases[i].text, size, NULL, 0, NULL, &tokens));
        assert_int_equal(tokens.n, cases[i].n);
        assert_int_equal(tokens.ids[0], 1);
        assert_int_equal(tokens.offsets[0][0], 0);
        assert_int_equal(tokens.offsets[tokens.n - 1][1], size);
        attn__encoding_free(c, &tokens);
    }
    attn__tokenizer_destroy(t);
}

#define WITH(part, model) "{" part ", \"model\": " model "}"
#define WORDS             "{\"type\": \"WordLevel\", \"vocab\": {\"a\": 0}, \"unk_token\": \"a\"}"

static void what_is_unknown_is_refused_by_name(void **state)
{
    static const struct {
        const char *json, *error;
        attn_status status;
    } cases[] = {
        {WITH("\"normalizer\": {\"type\": \"Foo\"}", WORDS), "tokenizer.json: normalizer \"Foo\" is not supported",
         ATTN_ERROR_UNSUPPORTED},
        {WITH("\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}, {\"type\": \"Bar\"}]}",
              WORDS),
         "normalizer \"Bar\" is not supported; supported: BertNormalizer, NFC", ATTN_ERROR_UNSUPPORTED},
        {WITH("\"normalizer\": {\"lowercase\": true}", WORDS), "normalizer: \"type\" is missing", ATTN_ERROR_FORMAT},
        {WITH("\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAAA\"}", WORDS),
         "normalizer Precompiled: the charsmap is damaged", ATTN_ERROR_FORMAT},
        {WITH("\"pre_tokenizer\": {\"type\": \"UnicodeScripts\"}", WORDS),
         "tokenizer.json: pre_tokenizer \"UnicodeScripts\" is not supported; supported: BertPreTokenizer",
         ATTN_ERROR_UNSUPPORTED},
        {WITH("\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(?<=a)b\"}, \"behavior\": "
              "\"Isolated\", \"invert\": false}",
              WORDS),
         "pre_tokenizer Split: the pattern \"(?<=a)b\" is not supported: found a group of an unknown kind",
         ATTN_ERROR_UNSUPPORTED},
        {WITH("\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\p{Han}\"}, \"behavior\": "
              "\"Isolated\", \"invert\": false}",
              WORDS),
         "found a \\p{..} that names no general category", ATTN_ERROR_UNSUPPORTED},
        {WITH("\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \"a\"}, \"behavior\": \"Moved\"}",
              WORDS),
         "behavior \"Moved\" is not supported", ATTN_ERROR_UNSUPPORTED},
        {WITH("\"post_processor\": {\"type\": \"Baz\"}", WORDS), "post_processor \"Baz\" is not supported",
         ATTN_ERROR_UNSUPPORTED},
        {WITH("\"post_processor\": {\"type\": \"BertProcessing\", \"cls\": [\"x\", 7], \"sep\": [\"a\", 0]}", WORDS),
         "post_processor: no token has the id 7", ATTN_ERROR_FORMAT},
        {WITH("\"version\": \"2.0\"", WORDS), "version \"2.0\" is not supported; supported: 1.0",
         ATTN_ERROR_UNSUPPORTED},
        {"{\"model\": {\"type\": \"Tiktoken\"}}", "model \"Tiktoken\" is not supported; supported: WordPiece, BPE",
         ATTN_ERROR_UNSUPPORTED},
        {"{}", "tokenizer.json: \"model\" is missing", ATTN_ERROR_FORMAT},
        {"{\"model\": {\"type\": \"BPE\", \"dropout\": 0.1, \"vocab\": {}, \"merges\": []}}",
         "dropout of merges is not supported", ATTN_ERROR_FORMAT},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": [\"a b\"]}}",
         "merge 0, \"a\" and \"b\", has a token that is not in the vocabulary", ATTN_ERROR_FORMAT},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a\"]}}", "merge 0 is not two tokens",
         ATTN_ERROR_FORMAT},
        {"{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 99999999}}}",
         "the id 99999999 of \"a\" is not from 0 to 4194303", ATTN_ERROR_FORMAT},
        {"{\"model\": {\"type\": \"Unigram\", \"unk_id\": 1, \"vocab\": [[\"a\", 0]]}}",
         "unk_id is not in the vocabulary", ATTN_ERROR_FORMAT},
        {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", 0], [\"b\", \"1\"]]}}",
         "an entry of the vocabulary is not a token with a score", ATTN_ERROR_FORMAT},
    };
    attn_context *c = *state;
    attn__tokenizer_destroy(open_text(c, bert));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        attn__tokenizer *t;
        assert_refused(c, attn__tokenizer_parse(&t, c, cases[i].json, strlen(cases[i].json), "tokenizer.json"),
                       cases[i].status, cases[i].error);
        assert_null(t);
    }
}

static void a_model_without_an_unknown_token_names_the_text(void **state)
{
    attn_context *c = *state;
    attn__tokenizer *t = open_text(c, "{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0}}}");
    attn__encoding tokens = {0};
    assert_refused(c, attn__tokenizer_encode(t, "xyz", 3, NULL, 0, NULL, &tokens), ATTN_ERROR_FORMAT,
                   "the model has no unknown token, and \"xyz\" is not in its vocabulary");
    assert_int_equal(tokens.n, 0);
    attn__encoding_free(c, &tokens);
    attn__tokenizer_destroy(t);
}

/* Each of these patterns would try exponentially many ways, or has no end. */
static void a_pattern_that_tries_too_many_ways_is_refused(void **state)
{
    attn_context *c = *state;
    attn__tokenizer *t = open_text(
        c, WITH("\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"a*a*a*a*a*a*b\"}, \"behavior\": "
                "\"Isolated\", \"invert\": false}",
                WORDS));
    attn__encoding tokens = {0};
    char text[400];
    memset(text, 'a', sizeof text);
    assert_refused(c, attn__tokenizer_encode(t, text, sizeof text, NULL, 0, NULL, &tokens), ATTN_ERROR_FORMAT,
                   "takes more than the limit of");
    attn__encoding_free(c, &tokens);
    attn__tokenizer_destroy(t);
}

/* A line of 4 MiB is one word for BPE, and 4 million marks for NFKC. Quadratic work would take hours. */
static void long_lines_are_not_quadratic(void **state)
{
    enum { N = 4 << 20 };
    attn_context *c = *state;
    attn__encoding tokens = {0};
    char *text = malloc(N);
    assert_non_null(text);
    memset(text, 'a', N);
    attn__tokenizer *t = open_text(c, gpt2);
    assert_ok(c, attn__tokenizer_encode(t, text, N, NULL, 0, NULL, &tokens));
    assert_int_equal(tokens.n, N / 4);
    attn__tokenizer_destroy(t);
    for (size_t i = 0; i < N; i += 4)
        memcpy(text + i, "\xcc\x81\xcc\xa3", 4); /* marks of the classes 230 and 220 */
    t = open_text(c, t5);
    assert_ok(c, attn__tokenizer_encode(t, text, N, NULL, 0, NULL, &tokens));
    assert_int_equal(tokens.n, 2);
    attn__tokenizer_destroy(t);
    attn__encoding_free(c, &tokens);
    free(text);
}

typedef struct shared {
    attn_context *context;
    const attn__tokenizer *tokenizer;
    bool ok;
} shared;

static void *encode_often(void *user)
{
    shared *s = user;
    attn__encoding tokens = {0};
    s->ok = true;
    for (int i = 0; i < 200 && s->ok; i++)
        s->ok = attn__tokenizer_encode(s->tokenizer, "Unable, un able", 15, NULL, 0, NULL, &tokens) == ATTN_OK &&
                tokens.n == 7 && tokens.ids[2] == 6;
    attn__encoding_free(s->context, &tokens);
    return NULL;
}

static void threads_share_a_tokenizer(void **state)
{
    attn_context *c = *state;
    attn__tokenizer *t = open_text(c, bert);
    pthread_t threads[4];
    shared work[4];
    for (int i = 0; i < 4; i++) {
        work[i] = (shared){c, t, false};
        assert_int_equal(pthread_create(&threads[i], NULL, encode_often, &work[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_true(work[i].ok);
    }
    attn__tokenizer_destroy(t);
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void directories_have_tokenizer_json_or_vocab_txt(void **state)
{
    attn_context *c = *state;
    attn__tokenizer *t;
    char folder[64];
    attn__tokenizer_destroy(open_text(c, bert));
    scratch_open(folder);
    assert_refused(c, attn__tokenizer_open(&t, c, folder), ATTN_ERROR_NOT_FOUND,
                   "the directory has no tokenizer.json, no vocab.txt");
    write_file(folder, "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nUn\n##able\r\n\xc3\xa9\n");
    assert_ok(c, attn__tokenizer_open(&t, c, folder));
    check_ids(c, t, "unable [MASK]", "\xc3\xa9", NULL, "2 1 4 3 1 3");
    attn__tokenizer_destroy(t);
    write_file(folder, "tokenizer_config.json",
               "{\"do_lower_case\": false, \"strip_accents\": null, \"model_max_length\": 512, "
               "\"mask_token\": {\"content\": \"[MASK]\"}, \"cls_token\": \"[CLS]\", \"tokenizer_class\": "
               "\"BertTokenizer\"}");
    assert_ok(c, attn__tokenizer_open(&t, c, folder));
    check_ids(c, t, "Unable [MASK]", "\xc3\xa9", NULL, "2 5 6 4 3 7 3");
    assert_int_equal(attn__tokenizer_max_length(t), 512);
    attn__tokenizer_destroy(t);
    write_file(folder, "tokenizer.json", bert);
    assert_ok(c, attn__tokenizer_open(&t, c, folder));
    check_ids(c, t, "unable", NULL, NULL, "2 5 6 3");
    attn__tokenizer_destroy(t);
    scratch_close(folder);
    scratch_open(folder);
    write_file(folder, "vocab.txt", "<cls>\n<pad>\nA\n");
    write_file(folder, "tokenizer_config.json", "{\"tokenizer_class\": \"EsmTokenizer\"}");
    assert_refused(c, attn__tokenizer_open(&t, c, folder), ATTN_ERROR_UNSUPPORTED,
                   "tokenizer_class \"EsmTokenizer\" is not supported with vocab.txt");
    scratch_close(folder);
}

/* The pieces of a learned model are tokens with their own ids (T5) or with those of fairseq (XLM-RoBERTa). */
static void sentencepiece_models_have_the_ids_of_their_kind(void **state)
{
    attn_context *c = *state;
    attn__subword *spm;
    attn__tokenizer *t, *moved;
    attn__encoding tokens = {0}, others = {0};
    char folder[64], path[128];
    const char *texts[64];
    size_t size;
    attn__tokenizer_destroy(open_text(c, bert));
    for (int i = 0; i < 64; i++)
        texts[i] = i % 2 ? "a token of a text" : "the text of a token";
    attn_status status = attn__subword_train(&spm, c, texts, 64, "unigram", 280, 1);
    if (status == ATTN_ERROR_UNSUPPORTED)
        skip(); /* a build without SentencePiece */
    assert_ok(c, status);
    scratch_open(folder);
    const char *bytes = attn__subword_bytes(spm, &size);
    snprintf(path, sizeof path, "%s/spiece.model", folder);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    assert_refused(c, attn__tokenizer_open(&t, c, folder), ATTN_ERROR_UNSUPPORTED, "tokenizer_class \"\"");
    write_file(folder, "tokenizer_config.json", "{\"tokenizer_class\": \"T5Tokenizer\", \"eos_token\": \"<eos>\"}");
    assert_ok(c, attn__tokenizer_open(&t, c, folder));
    write_file(folder, "tokenizer_config.json", "{\"tokenizer_class\": \"XLMRobertaTokenizer\"}");
    assert_ok(c, attn__tokenizer_open(&moved, c, folder));
    const char *text = "a text<extra_id_3>";
    assert_ok(c, attn__tokenizer_encode(t, text, strlen(text), NULL, 0, NULL, &tokens));
    assert_ok(c, attn__tokenizer_encode(moved, text, 6, NULL, 0, NULL, &others));
    assert_true(tokens.n >= 4);
    assert_int_equal(others.n, tokens.n);
    assert_int_equal(others.ids[0], 0);
    assert_int_equal(others.ids[others.n - 1], 2);
    for (int64_t i = 0; i < tokens.n - 2; i++)
        assert_int_equal(others.ids[1 + i], tokens.ids[i] + 1);
    assert_int_equal(tokens.ids[tokens.n - 2], attn__subword_size(spm) + 96);
    assert_int_equal(tokens.ids[tokens.n - 1], attn__tokenizer_find(t, "<eos>", 5));
    assert_int_equal(attn__tokenizer_special(moved, ATTN__TOKEN_MASK), attn__subword_size(spm) + 1);
    attn__encoding_free(c, &tokens);
    attn__encoding_free(c, &others);
    attn__tokenizer_destroy(t);
    attn__tokenizer_destroy(moved);
    attn__subword_destroy(spm);
    scratch_close(folder);
}

static attn_status read_and_encode(attn_context *c, void *user)
{
    attn__tokenizer *t;
    attn__encoding tokens = {0};
    const char *json = user, *text = "Unable A\xcc\x8a [MASK] new york abab  \xe6\xbc\xa2";
    attn_status status = attn__tokenizer_parse(&t, c, json, strlen(json), "tokenizer.json");
    if (status == ATTN_OK)
        status = attn__tokenizer_encode(t, text, strlen(text), "un", 2, NULL, &tokens);
    attn__encoding_free(c, &tokens);
    attn__tokenizer_destroy(t);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    const char *all[] = {bert, gpt2, t5};
    attn__tokenizer_destroy(open_text(*state, bert));
    for (int i = 0; i < 3; i++)
        assert_true(faults_try_all(read_and_encode, (void *)(uintptr_t)all[i]) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_WITH_CONTEXT(words_become_their_longest_pieces),
        TEST_WITH_CONTEXT(added_tokens_are_found_in_texts),
        TEST_WITH_CONTEXT(tokens_know_their_place_and_segment),
        TEST_WITH_CONTEXT(the_longer_text_is_cut),
        TEST_WITH_CONTEXT(tokens_have_names),
        TEST_WITH_CONTEXT(bytes_merge_in_the_order_of_the_merges),
        TEST_WITH_CONTEXT(the_best_sum_of_scores_wins),
        TEST_WITH_CONTEXT(malformed_text_is_replaced),
        TEST_WITH_CONTEXT(what_is_unknown_is_refused_by_name),
        TEST_WITH_CONTEXT(a_model_without_an_unknown_token_names_the_text),
        TEST_WITH_CONTEXT(a_pattern_that_tries_too_many_ways_is_refused),
        TEST_WITH_CONTEXT(long_lines_are_not_quadratic),
        TEST_WITH_CONTEXT(threads_share_a_tokenizer),
        TEST_WITH_CONTEXT(directories_have_tokenizer_json_or_vocab_txt),
        TEST_WITH_CONTEXT(sentencepiece_models_have_the_ids_of_their_kind),
        TEST_WITH_CONTEXT(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
